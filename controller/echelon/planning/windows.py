"""The windows of senders: how many packets may be on their way at once.

Flows that a plan ranks by deadlines share a window: all those of a job from one host to another,
which are called a stream. The host gives each free place of the window to the most urgent of them.
A packet keeps the queue that it got when it reached a port, and what waits at the host does not;
so the window is no larger than it takes to fill the path, and what is left waits in exact order.
Flows that are ranked otherwise, or not at all, have a window each, and so they share a queue flow
by flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.planning.paths import is_tree, links_of, packets_held
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import Overdue, Ranking, Steps

SPARE_PACKETS = 4
"""Packets in a window beyond those that fill its path.

They cover packets that have arrived and are not acknowledged yet, and keep a packet or two in the
queue of the slowest link. On fabrics 4 was measured to be enough."""
MOST_UNANSWERED = 4
"""Packets for each acknowledgement. It may not be more than the packets to spare.

RFC 9293 asks for one for two segments. Where a job sends both ways, acknowledgements take the
place of its own packets: with one for two packets, jobs of eight drawn scenarios were 0.8 % slower
than with one for four."""
ACK_BYTES = 64
"""The length of an acknowledgement: the shortest frame of Ethernet."""
UNKNOWN_PATH = 8
"""The window of flows without a path in the plan."""
MOST_TIMES_LARGER = 4
"""A flow's window of its own is at most so many times what fits its path."""


def shares_window(ranking: Ranking | None) -> bool:
    """Return whether flows of a ranking share the window of their stream where hosts rank them.

    These are flows with deadlines, and those that are sent in turn. What is ranked by its job, or
    by the bytes that it has sent, shares queues fairly with others of the same rank, which is part
    of the policy.
    """
    if ranking is None:
        return False
    urgency = ranking.at_host().urgency
    if isinstance(urgency, Steps):
        return urgency.due_s is not None and bool(urgency.thresholds)
    return isinstance(urgency, Overdue)


@dataclass(frozen=True, slots=True)
class FlowWindows:
    """The windows of one flow, in packets."""

    single: int
    """The window of the flow, where it has one of its own."""
    shared: int
    """The window of its stream, where it shares that."""
    initial: int
    """Packets in flight at first."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of senders, and the cost of acknowledgements.

    A window begins with `initial` packets and opens by one for each that is acknowledged. In a
    queue where packets wait, this doubles it with each round trip (slow start, RFC 5681). One
    acknowledgement answers several packets once the window is open; the packets before are few.
    Acknowledgements return on the same path, before all other traffic.
    """

    packet_bytes: int = 1
    full: int | None = 1
    """Packets in flight when the window is open; None: as many as each path needs."""
    initial: int | None = 1
    """Packets in flight at first.

    None: as many as the path holds (`packets_held`), or all where each path has its window.
    """
    acknowledgement_bytes: int = 0
    passes: bool = False
    """Whether a flow ends when its last packet has passed all links: see `PassingTime`."""
    streams: bool = False
    """Whether flows that are ranked by deadlines share windows."""
    longest: int = UNKNOWN_PATH
    """The largest window that a path of the plan needs, where each path has its window."""

    def under(self, plan: Plan, fabric: Fabric) -> Windows:
        """Return the windows of flows that have the paths and rankings of a plan."""
        windows = self.over({flow.path for flow in plan.flows}, fabric)
        rankings = {flow.ranking for flow in plan.flows}
        streams = self.streams and plan.hosts_rank and any(map(shares_window, rankings))
        return replace(windows, streams=streams)

    def over(self, paths: Iterable[Sequence[str]], fabric: Fabric) -> Windows:
        """Return the windows of flows that have these paths."""
        if self.full is not None:
            return self
        fitting = [self.fitting(path, fabric) for path in paths if not is_tree(path)]
        return replace(self, longest=max(fitting, default=UNKNOWN_PATH))

    def fitting(self, path: Sequence[str], fabric: Fabric) -> int:
        """Return the window that fills a path."""
        return packets_held(path, fabric, self.packet_bytes) + SPARE_PACKETS

    def on_path(self, path: Sequence[str] | None, fabric: Fabric) -> FlowWindows:
        """Return the windows of a flow on a path. Without a path it begins with one packet."""
        shared = single = self.full or self.longest
        initial = 1
        if path is not None:
            if self.full is None:
                shared = initial = self.fitting(path, fabric)
                # Flows share a queue in proportion to what they have in it, so windows of flows
                # that meet are equal, unless that would be far too much for the shorter path.
                single = initial = max(shared, min(self.longest, MOST_TIMES_LARGER * shared))
            elif self.initial is None:
                initial = packets_held(path, fabric, self.packet_bytes)
        if self.initial is not None:
            initial = self.initial
        return FlowWindows(single, shared, min(initial, single))

    @property
    def together(self) -> int:
        """Packets for each acknowledgement."""
        if self.full is None:
            return MOST_UNANSWERED
        return max(1, self.full // 2)

    @property
    def acknowledging(self) -> Fraction:
        """Bytes of acknowledgements for each byte of a flow."""
        return Fraction(self.acknowledgement_bytes, self.together * self.packet_bytes)

    def passing(self, path: Sequence[str], fabric: Fabric) -> PassingTime:
        """Return what a path adds to the time of a flow."""
        if not self.passes:
            return PassingTime(0.0, 0.0, self.packet_bytes)
        return PassingTime.over(path, fabric, self.packet_bytes)


def opened(
    sent_bytes: float,
    initial: int,
    full: int,
    packet_bytes: int,
) -> tuple[int, int | None]:
    """Return the packets in flight after `sent_bytes`, and the bytes up to which that holds.

    None: for ever. The window is `initial` packets at first and `full` when it is open.
    """
    window = end = initial
    while window < full and sent_bytes >= end * packet_bytes:
        window = min(2 * window, full)
        end += window
    if window == full:
        return window, None
    return window, end * packet_bytes


@dataclass(frozen=True, slots=True)
class PassingTime:
    """The time from the moment when a flow's last byte has left its slowest link's sender.

    All links delay it, and all but the slowest have to send the last packet once more, since each
    node stores a packet before it forwards it.
    """

    delay_s: float
    s_per_byte: float
    """The sum of 1 / rate over all links but the slowest."""
    packet_bytes: int

    @classmethod
    def over(
        cls,
        path: Sequence[str],
        fabric: Fabric,
        packet_bytes: int,
    ) -> PassingTime:
        """Return that of a path; nothing for a tree, or between two workers of one host."""
        links = links_of(path)
        if not links or is_tree(path):
            return cls(0.0, 0.0, packet_bytes)
        delay_s = 0.0
        each_s = []
        for link in links:
            delay_s += fabric.delay_s[link]
            each_s.append(1 / float(fabric.capacity_Bps[link]))
        return cls(delay_s, sum(each_s) - max(each_s), packet_bytes)

    def seconds(self, size_bytes: float) -> float:
        """Return the time for a flow of this size."""
        return self.delay_s + min(size_bytes, self.packet_bytes) * self.s_per_byte
