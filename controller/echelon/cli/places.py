"""Where a scenario can run: in virtual time inside this process, or on hosts of its own with real sockets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from echelon.policies.base import Policy
    from echelon.scenarios.results import PolicyRun
    from echelon.scenarios.scenario import Scenario

Runner = Callable[["Scenario", str, "Callable[[], Policy]", Callable[[str, int], None]], "PolicyRun"]
"""A function that runs a scenario under one policy: (scenario, policy's label, maker of the policy, progress(job,
iteration))."""
Watch = Callable[[str], AbstractContextManager[None]]
"""A context entered with the URL of a run's service when its jobs are about to start, and left when they are done."""


def _virtual(module: str, watch: Watch) -> Runner:
    return cast("Runner", import_module(module).run)


def _on_hosts(backend: str, target: str, watch: Watch) -> Runner:
    from echelon.hosts.run import run

    return partial(run, backend=backend, target=target, watch=watch)


PLACES: Mapping[str, Mapping[str, Callable[[Watch], Runner]]] = {
    "virtual": {
        "fluid": partial(_virtual, "echelon.virtual.fluid_run"),
        "softswitch": partial(_virtual, "echelon.virtual.run"),
    },
    "namespaces": {target: partial(_on_hosts, "namespaces", target) for target in ("softswitch", "bmv2")},
    "mininet": {target: partial(_on_hosts, "mininet", target) for target in ("softswitch", "bmv2")},
}
"""Makers of a `Runner`, by name of the fabric's backend and of the target. A maker imports when it is called."""

PRIVATE = frozenset({"namespaces", "mininet"})
"""Backends that build interfaces and processes, and therefore run in namespaces of their own."""

TARGETS = tuple(dict.fromkeys(target for targets in PLACES.values() for target in targets))


def place(fabric: str, target: str) -> Callable[[Watch], Runner]:
    """Return the maker of the runner. Raise `DocumentError` for an unknown fabric or target, or for two that do not go
    together."""
    from echelon.documents import DocumentError, suggestion

    if fabric not in PLACES:
        raise DocumentError("--fabric", "", f"unknown fabric '{fabric}' ({suggestion(fabric, PLACES)})")
    if target not in TARGETS:
        raise DocumentError("--target", "", f"unknown target '{target}' ({suggestion(target, TARGETS)})")
    if target not in PLACES[fabric]:
        others = [name for name, targets in PLACES.items() if target in targets]
        raise DocumentError(
            "--target", "", f"{target} does not run on the {fabric} fabric (add --fabric {' or '.join(others)})"
        )
    return PLACES[fabric][target]
