"""The ports of the switch as seen from inside: where packets come from and go to."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

__all__ = ["Obstacle", "Port", "PortError", "send_all"]


class PortError(Exception):
    """A port cannot be opened; the message names it and the reason."""


class Obstacle(Enum):
    """The reason why a port did not take a packet."""

    FULL = "full"
    """There is no room now. Offer the packet again when the port is writable, or after a while."""
    DOWN = "down"
    """The port carries nothing until it is up again."""
    REFUSED = "refused"
    """This packet can never be sent there."""
    NO_PEER = "no_peer"
    """The other end has no peer."""


class Port(Protocol):
    """One port. Its methods never wait. A port that breaks goes down, and never raises."""

    @property
    def name(self) -> str:
        """Return the name as the user wrote it."""

    @property
    def up(self) -> bool:
        """Return whether the port can carry packets."""

    @property
    def fd(self) -> int | None:
        """Return the descriptor to poll for arriving packets; None while the port is down."""

    @property
    def lost(self) -> int:
        """Return the number of packets that were lost before `receive` could return them."""

    def receive(self, limit: int) -> Sequence[bytes]:
        """Return at most `limit` packets that have arrived, the oldest first."""

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send packets from the front of the list, removing each one taken.

        Return why the first remaining packet was not taken.
        """

    def reopen(self) -> bool:
        """Check whether the port is up or down now; return whether `fd` has changed."""

    def close(self) -> None:
        """Release the port's resources."""


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
    """Call `send` until all packets are sent, or one is not taken.

    `send` returns how many it took or raises OSError.
    """
    try:
        while packets:
            del packets[: send(packets)]
    except OSError as error:
        return _OBSTACLES.get(error.errno or 0, Obstacle.REFUSED)
    return None
