"""Targets: everything that differs between kinds of switch, in one package for each.

In come the options in a switch's entry of the configuration. Out come its capabilities, its
sessions, the driver of its queues, and launchers for test beds. Begin with `target`; nothing
outside a target's package asks for its name.
"""

from echelon.switches.targets.target import (
    DEFAULT_TARGET,
    TARGETS,
    UNRANKED_TARGET,
    Site,
    Target,
    find_target,
)

__all__ = ["DEFAULT_TARGET", "TARGETS", "UNRANKED_TARGET", "Site", "Target", "find_target"]
