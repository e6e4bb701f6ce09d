"""A switch of fixed function whose queues, by the class selector of packets, may share by weight.

Any cluster has such switches, and hosts that mark each connection with a class for good: nobody
ranks packets, and no host needs a shim or a program in its kernel. Besides what `dscp` refuses, it
refuses plans that rank packets at hosts.

The embedded switch stands for it, with a small program (`p4src/dscp`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.switches.targets.dscp import DscpLauncher, DscpOptions, DscpTarget

if TYPE_CHECKING:
    from echelon.switches.lowering.capabilities import Capabilities
    from echelon.switches.targets.launching import SwitchLauncher


class ClassesLauncher(DscpLauncher):
    """A launcher of the same switch under this target's name."""

    target = "classes"


class ClassesTarget(DscpTarget):
    """The target `classes`."""

    name = "classes"
    limits = "nobody ranks packets, and no queue has a guaranteed share (docs/policies.md)"

    def capabilities(self, options: DscpOptions) -> Capabilities:
        by_class = super().capabilities(options)
        return replace(
            by_class,
            hosts_rank=False,
            weights=True,
        )

    def launcher(self) -> SwitchLauncher:
        return ClassesLauncher()
