"""The account of a switch in real time, and why packets end inside it.

It is the virtual switch's account (`softswitch.virtual.conservation`): packets in plus `replicated`
equals packets out plus dropped plus queued, at every instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["TURN", "Account", "Drop", "PortAccount"]

TURN = 128
"""The number of packets that one port receives or sends in one go.

No port may keep the others waiting.
"""


class Drop(StrEnum):
    """The reason why a packet ended inside the switch."""

    INGRESS = "ingress"
    """The program dropped it before the queues."""
    NO_PORT = "no_port"
    """It was sent to a port that the switch does not have."""
    NO_QUEUE = "no_queue"
    """It was sent to a queue that the port does not have."""
    QUEUE_FULL = "queue_full"
    """Its queue had no room."""
    EGRESS = "egress"
    """The program dropped it after the queues."""
    PORT_DOWN = "port_down"
    """It was sent to a port that is down, or waited there when the port went down."""
    NO_PEER = "no_peer"
    """The other end of the port had no peer."""
    REFUSED = "refused"
    """The port cannot send it: it is too long for the interface, or too short for its kind."""


@dataclass(frozen=True, slots=True)
class PortAccount:
    """The packets and bytes of one port since the switch started."""

    packets_in: int
    bytes_in: int
    packets_out: int
    bytes_out: int
    dropped: int
    """Packets dropped on their way out of this port."""
    queued: int


@dataclass(frozen=True, slots=True)
class Account:
    """The whereabouts of all packets at one instant."""

    packets_in: int
    replicated: int
    """Return the number of packets that the switch made itself.

    Each copy beyond the first of a multicast or a clone counts.
    """
    packets_out: int
    dropped: dict[str, int]
    """Dropped packets by reason."""
    queued: int
    ports: dict[int, PortAccount]

    @property
    def missing(self) -> int:
        """Return the number of packets that vanished; a negative number appeared.

        A correct switch has 0.
        """
        return (
            self.packets_in
            + self.replicated
            - self.packets_out
            - sum(self.dropped.values())
            - self.queued
        )
