"""The door of `echelon switch-config`."""

from __future__ import annotations

from echelon.cli.doors import DESCRIBE, Command

SWITCH_CONFIG = Command(
    DESCRIBE,
    "Write the queues of a fabric's switches as configurations of SONiC, or show what differs.",
    "echelon_site.switch_config.command:switch_config",
)
