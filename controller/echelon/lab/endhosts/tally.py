"""Counts of the packets of several flows, as seen by their end hosts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PacketTally:
    """The counts that all transports keep."""

    retransmitted: int = 0
    """Packets sent again."""
    duplicate: int = 0
    """Packets received whose bytes had all been received before."""
    reordered: int = 0
    """Packets with new bytes that arrived after one sent later. Retransmissions do not count (RFC 4737)."""
