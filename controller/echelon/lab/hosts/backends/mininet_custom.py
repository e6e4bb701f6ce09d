"""The topologies, switches, controller and defaults that the files in topologies/ give to `mn --custom`.

`rate` is the rate of hosts' links (or of the bottleneck, where there is one) in Mbit/s; other rates follow from it.
All other parameters are those of `echelon.fabric.builders`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from fractions import Fraction

from echelon.fabric import builders
from echelon.fabric.load import FabricSpec, build_fabric
from echelon.lab.hosts.backends.mininet_library import load_mininet
from echelon.targets import DEFAULT_TARGET, TARGETS

load_mininet()

from echelon.lab.hosts.backends.mininet_nodes import EchelonController, FabricTopo, switch_class  # noqa: E402

__all__ = ["controllers", "default_controller", "switches", "topology"]

switches = {name: switch_class(name) for name in TARGETS}
switches["default"] = switches[DEFAULT_TARGET]
controllers = {"echelon": EchelonController}

_BUILDERS: Mapping[str, Callable[..., FabricSpec]] = {
    "one_tor": builders.one_tor,
    "thesis_a": builders.thesis_a,
    "thesis_b": builders.thesis_b,
    "dumbbell": builders.dumbbell,
    "line": builders.line,
    "leaf_spine": builders.leaf_spine,
    "fat_tree": builders.fat_tree,
    "rail_optimised": builders.rail_optimised,
}


def default_controller() -> type[EchelonController]:
    """Return the default controller, for `findController` of `mn`, which a custom file may replace."""
    return EchelonController


def topology(name: str) -> Callable[..., FabricTopo]:
    """Return a function that builds the topology from `mn`'s numbers. Wrong numbers end the command with one line."""
    build = _BUILDERS[name]

    def topo(*numbers: float, rate: float | None = None, **named: float) -> FabricTopo:
        if rate is not None:
            named["rate_bps"] = round(rate * 10**6)
        if "oversubscription" in named:
            named["oversubscription"] = Fraction(str(named["oversubscription"]))  # type: ignore[assignment]
        try:
            return FabricTopo(build_fabric(build(*numbers, **named)))
        except (ValueError, TypeError) as error:
            # An exception would make `mn` kill processes by their names.
            print(f"--topo {name}: {error}", file=sys.stderr)
            raise SystemExit(2) from None

    return topo
