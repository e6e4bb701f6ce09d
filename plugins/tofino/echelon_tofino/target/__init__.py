"""Tofino: tables, queues and digests by BF Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from echelon.switches.targets.target import Site, Target
from echelon_tofino.target.options import TofinoOptions

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.southbound.queues import QueueDriver
    from echelon.switches.southbound.session import SessionFactory
    from echelon.switches.targets.launching import SwitchLauncher
    from echelon.switches.targets.rates import QueueRates
    from echelon.switches.targets.virtual import VirtualFabricFactory


class Tofino(Target[TofinoOptions]):
    """The target `tofino`."""

    name = "tofino"
    architecture: ClassVar[str] = "tna"
    options = TofinoOptions

    def capabilities(self, options: TofinoOptions) -> Capabilities:
        from echelon_tofino.target.capabilities import tofino

        return tofino(options.depth, options.mtu)

    def queue_driver(self, options: TofinoOptions, site: Site) -> QueueDriver:
        from echelon_tofino.target.queues import BfrtQueues

        return BfrtQueues(site.switch, sorted(site.port_rates_bps))

    def session_factory(self, options: TofinoOptions) -> SessionFactory:
        from echelon_tofino.target.session import BfrtSession

        return partial(
            BfrtSession,
            device=options.device,
            binary=options.binary,
        )

    def queue_rates(self, entry: Mapping[str, object]) -> QueueRates:
        from echelon_tofino.target.rates import BfrtRates

        return BfrtRates(str(entry["address"]), int(str(entry.get("device", 0))))

    def virtual_fabric(self) -> VirtualFabricFactory | None:
        from echelon.switches.targets.virtual import virtual_switches

        model = virtual_switches(self.name)
        if model is None:
            return None
        return cast("VirtualFabricFactory", model.TofinoTestbed)

    def launcher(self) -> SwitchLauncher:
        from echelon_tofino.target.launcher import TofinoLauncher

        return TofinoLauncher()
