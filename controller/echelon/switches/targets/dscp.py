"""A switch of fixed function: eight strict queues a port, by the class selector of packets.

Any cluster has such switches.

Hosts rank (`echelon.switches.lowering.at_hosts`). What such a switch lacks is refused: weights,
rates and guaranteed shares of queues, entries for jobs or flows, and so paths other than those by
address, digests, and aggregation. It sees no flow, and so compares none at a port: levels are
absolute.

The embedded switch stands for it, with a small program (`p4src/dscp`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.model.documents import Section
from echelon.switches.targets.softswitch import EmbeddedTarget, SoftswitchLauncher

if TYPE_CHECKING:
    from echelon.model.p4program import P4Program
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.targets.launching import SwitchLauncher


class DscpOptions(Section):
    """Nothing: tables and queues are reached at the switch's one address."""


class DscpLauncher(SoftswitchLauncher):
    """A launcher of the embedded switch, whose controller brings it the program."""

    target = "dscp"


class DscpTarget(EmbeddedTarget[DscpOptions]):
    """The target `dscp`."""

    name = "dscp"
    options = DscpOptions
    ranks = False
    needs_address = False
    limits = (
        "hosts rank: levels are absolute, and no queue has a guaranteed share"
        " (docs/ranking-at-hosts.md)"
    )

    def capabilities(self, options: DscpOptions) -> Capabilities:
        from echelon.switches.targets.softswitch.capabilities import softswitch

        return replace(
            softswitch(),
            target=self.name,
            ranks=False,
            weights=False,
            rates=False,
            max_ecmp_groups=0,
            max_ecmp_members=0,
        )

    def program(self, options: DscpOptions | None = None) -> P4Program:
        from echelon.model.p4program import program

        return program("dscp")

    def launcher(self) -> SwitchLauncher:
        return DscpLauncher()
