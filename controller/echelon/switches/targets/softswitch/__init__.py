"""The embedded switch, in real or virtual time: P4Runtime and gNMI at one address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from echelon.switches.targets.launching import ExecutableLauncher, Place, Ports, SwitchLauncher
from echelon.switches.targets.options import V1modelOptions
from echelon.switches.targets.target import O, Site, Target

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.southbound.queues import QueueDriver
    from echelon.switches.targets.virtual import VirtualFabricFactory


class SoftswitchOptions(V1modelOptions):
    """The program alone: tables and queues are reached at the switch's one address."""


class SoftswitchLauncher(ExecutableLauncher):
    """A launcher of `softswitch`, which shapes its ports itself."""

    target = "softswitch"
    executable = "softswitch"
    remedy = "pip install 'echelon-p4[lab]' brings it"
    unix_ports = True

    def arguments(self, place: Place, ports: Ports) -> Sequence[str]:
        arguments: list[str] = []
        for port, rate_bps in place.rates_bps.items():
            arguments += ["--port-rate", f"{port}={rate_bps}"]
        if place.queue_bytes is not None:
            arguments += ["--queue-depth", str(place.queue_bytes)]
        return arguments


def _embedded() -> Any:
    """Return the module with the embedded switches in virtual time; None: it is not installed."""
    from echelon.switches.targets.virtual import virtual_switches

    return virtual_switches("softswitch")


class EmbeddedTarget(Target[O]):
    """A target for which the embedded switch stands, whatever its program."""

    def queue_driver(self, options: O, site: Site) -> QueueDriver:
        from echelon.switches.targets.softswitch.queues import GnmiQueues

        return GnmiQueues(site.switch)

    def virtual_fabric(self) -> VirtualFabricFactory | None:
        embedded = _embedded()
        if embedded is None:
            return None
        return cast("VirtualFabricFactory", embedded.VirtualTestbed)

    def virtual_packets_per_s(self) -> int:
        embedded = _embedded()
        in_c = embedded is not None and embedded.runs_in_c()
        if in_c:
            return 500_000
        return super().virtual_packets_per_s()


class Softswitch(EmbeddedTarget[SoftswitchOptions]):
    """The target `softswitch`."""

    name = "softswitch"
    options = SoftswitchOptions

    def capabilities(self, options: SoftswitchOptions) -> Capabilities:
        from echelon.switches.targets.softswitch.capabilities import softswitch

        return softswitch(options.program)

    def launcher(self) -> SwitchLauncher:
        return SoftswitchLauncher()
