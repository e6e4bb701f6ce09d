"""Queues of egress ports, configured through each target's own channel. A target brings a `QueueDriver`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from echelon.lowering.intent import QueueSetting


class QueueDriver(Protocol):
    """The queues of one switch. It lives as long as the switch is managed, through all sessions; calls do not overlap.

    Every call raises `echelon.southbound.errors.SouthboundError`, one line that names switch and port.
    """

    async def open(self) -> None:
        """Before anything else of each session: is the channel there, and the switch behind it fit for the settings?

        What the channel can set but not read back is set here.
        """

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        """Settings in force, by (port, queue).

        A setting that `write` was given comes back equal to it as long as the switch still holds what that made of it.
        Where a port is not configured, or not as this driver would do it, its queues are missing.
        """

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        """Brings these queues to their settings, all others stay; packets that wait in them stay too.

        Each port is changed as a whole or not at all.
        """
