"""What a port of the switch is to the outside: where packets come from and go to."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

__all__ = ["Obstacle", "Port", "PortError", "send_all"]


class PortError(Exception):
    """A port cannot be opened; the message names it and says why."""


class Obstacle(Enum):
    """Why a port did not take a packet."""

    FULL = "full"
    """no room now; offer it again when the port is writable, or after a while"""
    DOWN = "down"
    """the port carries nothing until it is up again"""
    REFUSED = "refused"
    """this packet can never be sent there"""
    NO_PEER = "no_peer"
    """nobody is at the other end"""


class Port(Protocol):
    """One port. Nothing waits; a port that breaks becomes down, and never raises."""

    @property
    def name(self) -> str:
        """As the user wrote it."""

    @property
    def up(self) -> bool:
        """Whether it can carry packets."""

    @property
    def fd(self) -> int | None:
        """What to poll for packets that come; None while it is down."""

    @property
    def lost(self) -> int:
        """Packets that came and were lost before `receive` could have them."""

    def receive(self, limit: int) -> Sequence[bytes]:
        """Packets that have come, `limit` at most, the oldest first."""

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send packets from the front of the list, removing each one taken. Says why the first that is left is."""

    def reopen(self) -> bool:
        """See whether the port is up or down now; returns whether `fd` has changed."""

    def close(self) -> None:
        """Give up what it holds."""


_OBSTACLES = {
    errno.EAGAIN: Obstacle.FULL,
    errno.ENOBUFS: Obstacle.FULL,
    errno.ENOMEM: Obstacle.FULL,
    errno.ENETDOWN: Obstacle.DOWN,
    errno.ENXIO: Obstacle.DOWN,
    errno.ENODEV: Obstacle.DOWN,
    errno.ENOENT: Obstacle.NO_PEER,
    errno.ECONNREFUSED: Obstacle.NO_PEER,
    errno.ENOTSOCK: Obstacle.NO_PEER,
}


def send_all(send: Callable[[list[bytes]], int], packets: list[bytes]) -> Obstacle | None:
    """Call `send` until all packets are sent, or one is not taken; it returns how many it took or raises OSError."""
    try:
        while packets:
            del packets[: send(packets)]
    except OSError as error:
        return _OBSTACLES.get(error.errno or 0, Obstacle.REFUSED)
    return None
