"""The messages between the two ends of a flow: parts of the flow, and how much of it has arrived.

How segments travel is not decided here: `echelon.lab.endhosts.shim` turns them into Ethernet frames or UDP payloads.
Lengths are counted as on the wire, with all headers.

There is an object for every packet, so these classes are not frozen: a frozen one takes four times as long to make.
"""

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


@dataclass(slots=True)
class DataSegment:
    """A part of a flow.

    `remaining` falls with every segment of a flow, so it is also the segment's position.
    """

    remaining: int
    """Bytes of the flow from the first of this segment to the flow's last."""
    length_bytes: int
    last: bool = False
    """Whether this is the last segment of the flow."""
    alone: bool = False
    """Everything before this segment has been acknowledged."""
    drain: bool = False
    """A switch asks the sender to let its window run empty once."""
    prompt: bool = False
    """The sender's window is not fully open, so the receiver acknowledges at once."""
    resent: bool = False
    """A retransmission."""


@dataclass(slots=True)
class AckSegment:
    """An acknowledgement: all but the last `missing_bytes` bytes of the flow have arrived."""

    missing_bytes: int
    drain: bool = False
    """It answers a segment that asked for draining."""
    resent: bool = False
    """It answers a retransmission."""
