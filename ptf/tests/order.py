"""Queues in the order of ranks: each packet goes between those that are more and less urgent.

Queues are slowed so that packets wait. Every packet carries its place in what a test sends in
`remaining`, which does not count for these ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echelon_ptf import entries, frames
from echelon_ptf.base import EchelonTest, Flow, receive_all, skipped_on
from echelon_ptf.entries import Deadline, Fixed
from echelon_ptf.frames import DRAIN
from scapy.packet import Packet

_S = 1_000_000
_PERIOD_US = 100 * _S
_FRAME_BYTES = 500
_MIDDLE = 4
_NO_ORDER = "its queues have fixed steps behind the most urgent flow"


class _OrderTest(EchelonTest):
    """Flows that are ranked in parts of 100 s, in the seven queues from 1 on."""

    slow: Sequence[int] = ()
    """The queues in which packets wait: all but the first, for a second each."""

    def setUp(self) -> None:
        super().setUp()
        for queue in self.slow:
            self.slow_queue(queue, 1, _FRAME_BYTES)
        self.profile_number = self.new_profile()
        self.install(*entries.relative(self.profile_number, _PERIOD_US, [], range(1, 8)))

    def rank(self, due_s: int) -> Deadline:
        return Deadline(self.new_echelonflow(), self.profile_number, 0, due_s * _S)

    def due(self, due_s: int) -> Flow:
        """Return a flow of a new job that is due so many seconds after its first packet."""
        return self.shim_flow(self.rank(due_s))

    def of_pair(self, pair: int, job: int, due_s: int) -> Flow:
        """Return a flow of a job between a pair of hosts."""
        flow = self.new_flow()
        entry = entries.flow(flow, self.rank(due_s), 2, 2)
        self.install(entry, entries.shim_flow_of(job, flow, flow, pair))
        return Flow(job, flow, flow, entry)

    def packets(self, flow: Flow, count: int = 2, **fields: Any) -> list[Packet]:
        body = _FRAME_BYTES - frames.HEADER_BYTES
        return [flow.packet(payload_bytes=body, **fields) for _ in range(count)]

    def sent(self, *bursts: list[Packet]) -> list[list[int]]:
        """Send bursts, and return the queues of the packets of each when all have left."""
        packets = [packet for burst in bursts for packet in burst]
        for place, packet in enumerate(packets):
            packet[frames.Shim].remaining = place
        # All are made first, because scapy is slow.
        for frame in [bytes(packet) for packet in packets]:
            self.send(frame)
        queues = {}
        for frame in receive_all(self, len(packets)):
            shim = frames.shim_of(frame)
            self.assertFalse(int(shim.flags) & DRAIN)
            queues[shim.remaining] = frames.queue_of(frame)
        left = iter([queues[place] for place in range(len(packets))])
        return [[next(left) for _ in burst] for burst in bursts]


@skipped_on(tna=_NO_ORDER)
class AboveAndBelow(_OrderTest):
    """The first takes the middle queue, others go next to it, and the last share what is there."""

    slow = range(1, 8)

    def runTest(self) -> None:
        flows = [self.due(due_s) for due_s in (40, 60, 20, 0, 80, 90, 95)]
        queues = self.sent(*(self.packets(flow) for flow in flows))
        self.assertEqual([each[0] for each in queues], [4, 3, 5, 6, 2, 1, 1])


@skipped_on(tna=_NO_ORDER)
class BetweenTwo(_OrderTest):
    """A packet goes to a queue between those that hold others."""

    slow = (2, 4)

    def runTest(self) -> None:
        lower = self.new_profile()
        self.install(*entries.relative(lower, _PERIOD_US, [], [2]))
        calm = self.shim_flow(Deadline(self.new_echelonflow(), lower, 0, 60 * _S))
        # The last is below all, whether the one before has left or not.
        flows = [self.due(10), calm, self.due(55), self.due(70)]
        queues = self.sent(*(self.packets(flow) for flow in flows))
        self.assertEqual([each[0] for each in queues], [4, 2, 3, 1])


@skipped_on(tna=_NO_ORDER)
class TheNearerOfTwo(_OrderTest):
    """If no queue is between two others, a packet goes to the one whose rank is nearer."""

    slow = range(1, 8)

    def runTest(self) -> None:
        flows = [self.due(due_s) for due_s in (10, 60, 20, 50)]
        queues = self.sent(*(self.packets(flow) for flow in flows))
        self.assertEqual([each[0] for each in queues], [4, 3, 4, 3])


@skipped_on(tna=_NO_ORDER)
class AnEmptyQueueSaysNothing(_OrderTest):
    """What has left does not count, however urgent it was."""

    def runTest(self) -> None:
        for due_s in (0, 90, 10, 50):
            flow = self.due(due_s)
            for _ in range(2):
                self.assertEqual(self.queue_of(flow.packet()), _MIDDLE)


@skipped_on(tna=_NO_ORDER)
class OthersSayNothing(_OrderTest):
    """Packets that are not ranked relative to others do not count where they wait."""

    slow = (_MIDDLE,)

    def runTest(self) -> None:
        other = self.shim_flow(Fixed(_MIDDLE))
        queues = self.sent(self.packets(other, 3), self.packets(self.due(0), 1))
        self.assertEqual(queues[1], [_MIDDLE])


@skipped_on(tna=_NO_ORDER)
class AStreamKeepsItsQueue(_OrderTest):
    """A flow does not rise while its packets wait, and asks nobody to drain.

    It gets its place when they have left.
    """

    slow = (3, 4)

    def runTest(self) -> None:
        calm, urgent = self.due(80), self.due(30)
        seen = self.sent(
            self.packets(urgent),
            self.packets(calm),
            # 95 s late by now.
            self.packets(calm, age_us=95 * _S),
        )
        self.assertEqual(seen, [[4, 4], [3, 3], [3, 3]])
        seen = self.sent(self.packets(urgent), self.packets(calm))
        self.assertEqual(seen, [[4, 4], [5, 5]])


@skipped_on(tna=_NO_ORDER)
class AStreamFallsAtOnce(_OrderTest):
    """A stream falls to below a queue that is more urgent than what it sends now, and stays there
    while it waits.
    """

    slow = (2, 3, 4)

    def runTest(self) -> None:
        job, pair = self.new_job(), self.new_flow()
        urgent, calm = self.of_pair(pair, job, 30), self.of_pair(pair, job, 80)
        between = self.due(60)
        seen = self.sent(
            self.packets(urgent),
            self.packets(between),
            self.packets(calm),
            self.packets(urgent),
            self.packets(between),
        )
        self.assertEqual(seen, [[4, 4], [3, 3], [2, 2], [2, 2], [3, 3]])


@skipped_on(tna=_NO_ORDER)
class AWindowThatWaitsIsAsUrgentAsItsFirstPacket(_OrderTest):
    """What a flow has sent last does not count before it is next."""

    slow = (3, 4)

    def runTest(self) -> None:
        first, second = self.due(30), self.due(60)
        seen = self.sent(
            self.packets(first),
            self.packets(second),
            self.packets(second, age_us=50 * _S),
            self.packets(first),
        )
        self.assertEqual(seen, [[4, 4], [3, 3], [3, 3], [4, 4]])


@skipped_on(tna=_NO_ORDER)
class AQueueThatNoneHasLeft(_OrderTest):
    """It is as urgent as the first packet that came."""

    def runTest(self) -> None:
        self.slow_port(20, _FRAME_BYTES)
        seen = self.sent(
            self.packets(self.due(30), 4),
            self.packets(self.due(60), 1),
            self.packets(self.due(55), 1),
        )
        self.assertEqual(seen, [[4, 4, 4, 4], [3], [3]])


@skipped_on(tna=_NO_ORDER)
class AFallKeepsTheOrder(_OrderTest):
    """Queues are strict: what fell leaves behind what had not."""

    def runTest(self) -> None:
        self.slow_port(20, _FRAME_BYTES)
        job, pair = self.new_job(), self.new_flow()
        urgent, calm = self.of_pair(pair, job, 30), self.of_pair(pair, job, 80)
        bursts = [
            self.packets(urgent, 4),
            self.packets(self.due(60), 4),
            self.packets(calm, 4),
        ]
        packets = [packet for burst in bursts for packet in burst]
        for place, packet in enumerate(packets):
            packet[frames.Shim].remaining = place
        for frame in [bytes(packet) for packet in packets]:
            self.send(frame)
        seen = [frames.shim_of(frame).remaining for frame in receive_all(self, len(packets))]
        self.assertEqual(seen, list(range(len(packets))))


@skipped_on(tna=_NO_ORDER)
class FlowsOfAPair(_OrderTest):
    """Flows of a job from one host to another share their place, whatever their own ranks."""

    slow = (3, 4)

    def runTest(self) -> None:
        job = self.new_job()
        one, another = self.new_flow(), self.new_flow()
        first = self.of_pair(one, job, 30)
        second = self.of_pair(one, job, 60)
        third = self.of_pair(another, job, 45)
        seen = self.sent(
            self.packets(first), self.packets(second), self.packets(third), self.packets(first)
        )
        # The third is more urgent than the second, which goes behind the first.
        self.assertEqual(seen, [[4, 4], [4, 4], [3, 3], [4, 4]])
