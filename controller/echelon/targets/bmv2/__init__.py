"""BMv2's `simple_switch_grpc`: tables by P4Runtime, queues in HTB trees on the interfaces behind its egress ports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from echelon.targets.bmv2.options import Bmv2Options, ServerAddress
from echelon.targets.target import Site, Target

if TYPE_CHECKING:
    from echelon.lowering.capabilities import Capabilities
    from echelon.southbound.queues import QueueDriver
    from echelon.targets.launching import SwitchLauncher
    from echelon.targets.rates import QueueRates


class Bmv2(Target[Bmv2Options]):
    """The target `bmv2`."""

    name = "bmv2"
    options = Bmv2Options

    def capabilities(self, options: Bmv2Options) -> Capabilities:
        from echelon.targets.bmv2.capabilities import bmv2

        return bmv2(options.depth, options.mtu)

    def queue_driver(self, options: Bmv2Options, site: Site) -> QueueDriver:
        from echelon.targets.bmv2.htb import Port
        from echelon.targets.bmv2.queues import Bmv2Queues, ShapedPort

        ports = [
            ShapedPort(number, options.interface(number), Port(rate_bps, options.mtu, options.depth))
            for number, rate_bps in sorted(site.port_rates_bps.items())
        ]
        return Bmv2Queues(site.switch, ports, options.namespace, options.thrift)

    def launcher(self) -> SwitchLauncher:
        from echelon.targets.bmv2.launcher import Bmv2Launcher

        return Bmv2Launcher()

    def queue_rates(self, entry: Mapping[str, object]) -> QueueRates:
        from echelon.targets.bmv2.rates import ThriftRates

        return ThriftRates(ServerAddress.parse(entry["thrift"]))
