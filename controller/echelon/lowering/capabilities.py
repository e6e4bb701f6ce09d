"""The capabilities of a target. Lowering refuses what the target cannot carry."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.rankings.in_switches import MICROSECONDS, TimeUnit


@dataclass(frozen=True, slots=True)
class QueueDepthMarks:
    """ECN marking by the depth of a packet's own queue, where that queue is in the switch.

    Table `ecn_threshold` carries it.
    """

    packets: int
    """Mark a packet that finds this many in its queue."""


@dataclass(frozen=True, slots=True)
class VirtualQueueMarks:
    """ECN marking by a virtual queue, where the real queues are outside the switch.

    The virtual queue counts the bytes that should wait at a port, in all its queues together: it grows by every packet
    and drains at the port's rate. Table `virtual_queue` carries it.
    """

    backlog_bytes: int
    """Mark packets while the virtual queue holds more than this."""


@dataclass(frozen=True, slots=True)
class QueueCellMarks:
    """ECN marking by the depth of a packet's own queue in cells of the packet buffer. Table `ecn_threshold` carries
    it."""

    cells: int
    """Mark a packet that finds this many cells in its queue."""


EcnMarks = QueueDepthMarks | QueueCellMarks | VirtualQueueMarks


@dataclass(frozen=True, slots=True)
class OuterQueues:
    """The queues behind a switch that does not see packets leave them. Table `promotion_hold` carries the hold times
    that follow from them."""

    depth_packets: int
    """Most packets that one queue holds."""
    frame_bytes: int
    """The largest frame, as the queues count it."""
    rate_error_percent: int = 1
    """Largest error of a queue's minimum rate."""
    delay_us: int = 20_000
    """Longest time between the switch's egress and the queue, plus the longest time by which the kernel sends late."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of one kind of switch: its queues, the sizes of its tables and the widths of their keys."""

    target: str
    """The target's name, for messages only."""
    queues: int
    """Queues of an egress port."""
    weights: bool
    """Whether queues of one level share by DWRR weight."""
    rates: bool
    """Whether a queue has minimum and maximum rates."""
    max_flows: int
    max_connections: int
    max_jobs: int
    max_profiles: int
    max_echelonflows: int
    max_groups: int
    """Groups of flows whose bytes are counted together, or whose windows have one origin."""
    max_ecmp_groups: int
    max_ecmp_members: int
    """Members of all ECMP groups together."""
    offset_bits: int
    """Width of a flow's offset or period, an unsigned number of `time`."""
    key_bits: int
    """Width of the keys that map packets to queues: a slack, a signed number of `time`, and others."""
    ecn: EcnMarks
    time: TimeUnit = MICROSECONDS
    """The unit of times."""
    attained_bytes: int = 1
    """The number of bytes that ranking `attained` counts as one."""
    position_ranges: bool = True
    """Whether positions on a connection, which have 32 bits, match as ranges. If not, each range is the fewest prefixes
    that cover it."""
    levels: int = 8
    """Strict-priority levels of an egress port."""
    outer_queues: OuterQueues | None = None
    """None: the queues are in the switch, whose egress sees packets leave them."""
