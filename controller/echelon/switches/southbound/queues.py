"""The queues of a switch's egress ports.

Each target brings a `QueueDriver`, which configures them its own way.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from echelon.switches.lowering.intent import QueueSetting

if TYPE_CHECKING:
    from finsy import GNMIClient


class QueueDriver(Protocol):
    """A driver of the queues of one switch.

    It serves all sessions with the switch; its calls do not overlap.

    Every call raises `echelon.switches.southbound.errors.SouthboundError`, whose text names switch
    and port in one line.
    """

    async def open(self, gnmi: GNMIClient | None) -> None:
        """Prepare for a new session: check the channel, and that the switch can hold the settings.

        `gnmi` is the session's gNMI client, or None where the switch does not serve gNMI. Whatever
        the channel can set but not read back is set here. It is called before any other call of the
        session.
        """
        ...

    async def read(self) -> Mapping[tuple[int, int], QueueSetting]:
        """Return the settings in force, by (port, queue).

        A setting that `write` was given comes back equal to it while the switch still holds what
        `write` made of it. The queues of a port are missing where the port is not configured, not as
        this driver would do it, or cannot be read; `write` says why then.
        """
        ...

    async def write(self, settings: Sequence[QueueSetting]) -> None:
        """Apply these settings.

        All other queues stay as they are, and so do the packets that wait in any queue.

        Each port is changed as a whole or not at all. After an error each port is tried by itself.
        """
        ...


@dataclass(frozen=True, slots=True)
class QueueCount:
    """The packets that have passed one queue of a port since the switch started."""

    packets: int
    size_bytes: int
    dropped_packets: int


@runtime_checkable
class QueueCounter(Protocol):
    """A driver that can also count what passes the queues."""

    async def counted(self) -> Mapping[tuple[int, int], QueueCount]:
        """Return the counts by (port, queue). Raise `SouthboundError`."""
        ...


@runtime_checkable
class WriterWatcher(Protocol):
    """A driver that can also tell who writes to the switch."""

    async def foreign_writer(self) -> str | None:
        """Return who wrote last in another role than the controller's; None: nobody has.

        Raise `SouthboundError`.
        """
        ...


@runtime_checkable
class PortWatcher(Protocol):
    """A driver that can also tell which ports are down."""

    def ports_down(self) -> AsyncGenerator[frozenset[int], None]:
        """Yield the ports that are down, at first and whenever they are others.

        Raise `SouthboundError`.
        """
        ...
