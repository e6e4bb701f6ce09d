"""The capabilities of a target, and the error where a plan exceeds them."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.model.errors import Code, CodedError
from echelon.planning.rankings.in_switches import Units


@dataclass(frozen=True, slots=True)
class QueueDepthMarks:
    """ECN marking by the depth of a packet's own queue, where that queue is in the switch.

    Table `ecn_threshold` carries it.
    """

    packets: int
    """Mark a packet that finds this many packets in its queue."""
    cells_of_packet: int | None = None
    """The cells of the packet buffer that a full packet takes, where the switch counts cells; None:
    it counts packets."""


@dataclass(frozen=True, slots=True)
class VirtualQueueMarks:
    """ECN marking by a virtual queue, where the real queues are outside the switch.

    The virtual queue counts the bytes that should wait at a port, in all its queues together: it
    grows by every packet and drains at the port's rate. Table `virtual_queue` carries it.
    """

    backlog_bytes: int
    """Mark packets while the virtual queue holds more than this."""


EcnMarks = QueueDepthMarks | VirtualQueueMarks


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """The room of a program for trees of switches that add up what flows bring."""

    places: int
    """Blocks that are added up at a time."""
    trees: int


@dataclass(frozen=True, slots=True)
class OuterQueues:
    """The queues that packets leave without the switch's ingress knowing.

    Table `promotion_hold` carries the hold times that follow from them.
    """

    depth_packets: int
    """Maximum number of packets that one queue holds."""
    frame_bytes: int
    """The largest frame, as the queues count it."""
    rate_error_percent: int = 1
    """Largest error of a queue's minimum rate."""
    delay_us: int = 20_000
    """Longest way from the switch's egress to the queue, with the longest delay of the kernel."""
    by_port: bool = False
    """Whether a port has one hold time, the longest of its queues'."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of one kind of switch: queues, sizes of tables and widths of keys."""

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
    units: Units
    """The units and widths of its numbers."""
    ecn: EcnMarks
    max_pairs: int = 0
    """Pairs of hosts whose flows of one job share their place in the queues of a port.

    0: each flow has its own.
    """
    ranks: bool = True
    """Whether switches know flows and rank their packets. If not, they forward by address and serve
    queues by code point, and hosts rank (`echelon.switches.lowering.at_hosts`)."""
    hosts_rank: bool = True
    """Whether hosts can rank packets where switches do not.

    If not, each flow has one queue for good."""
    rank_expires: bool = True
    """Whether egress compares how long a packet waited with the time for which its rank holds.
    Entries of table `level` then hold the lowest key of their range."""
    position_ranges: bool = True
    """Whether positions on a connection, which have 32 bits, match as ranges. If not, each range is
    the fewest prefixes that cover it."""
    left_by_position: bool = True
    """Whether switches know how much is left of a flow that they recognise by its bytes.

    If not, all of it counts.
    """
    sequence_numbers: bool = True
    """Whether switches read the sequence numbers of TCP: a connection that is alone between its
    hosts is then counted without what it sends again, rises when all that it has sent is
    acknowledged, and can be paused."""
    iterations_by_bytes: bool = True
    """Whether an iteration can begin behind the bytes of the one before, without a silence."""
    trees: TreeMemory | None = None
    """None: its program adds up nothing."""
    levels: int = 8
    """Strict-priority levels of an egress port."""
    outer_queues: OuterQueues | None = None
    """None: the switch's ingress knows which packets have left their queues."""


class LoweringError(CodedError, ValueError):
    """The error for a plan that asks for what the target cannot carry.

    Its text also says what would fit.
    """

    code: Code = "does-not-fit"

    def __init__(
        self,
        reason: str,
        job: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """The job without which the rest may fit; None: no single job is at fault."""
