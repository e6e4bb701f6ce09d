"""The tests of RoCE v2: flows by queue pair and packet number, answers, code points, and promotion
between messages.
"""

from __future__ import annotations

import time

from echelon_ptf import entries, frames
from echelon_ptf.base import (
    BEST_EFFORT_QUEUE,
    CONTROL_QUEUE,
    RECEIVER,
    EchelonTest,
    architecture,
    receive_all,
    skipped_on,
)
from echelon_ptf.entries import Fixed
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether

_MTU = 1024
_FIRST, _MIDDLE, _ONLY = 0x06, 0x07, 0x0A
_ACKNOWLEDGE, _CONGESTION = 0x11, 0x81
_GAP_S = 0.2
_FOREVER_S = 3600.0
_WRAP = 1 << 24
_UNSEEN = (
    "ingress of a Tofino cannot know which packets have left: a queue pair rises after the port's"
    " hold time"
)


class _QueuePairTest(EchelonTest):
    """A queue pair of host 2 that gets two packets of a flow in queue 2, then four of one in queue
    5.
    """

    gap_s = _FOREVER_S
    first_psn = 100
    marks = True
    """Whether the code points of packets tell their queues."""

    def setUp(self) -> None:
        super().setUp()
        number = self.new_connection()
        self.pair = 0x100000 + number
        self.flows = [self.ranked(Fixed(2)), self.ranked(Fixed(5))]
        if self.marks:
            self.install(*(entries.roce_mark(queue, queue << 3) for queue in range(8)))
        self.install(
            entries.segment(number, 0, 2 * _MTU, self.flows[0]),
            entries.segment(number, 2 * _MTU, 6 * _MTU, self.flows[1]),
            entries.queue_pair(
                2,
                self.pair,
                number=number,
                job=self.new_job(),
                mtu=_MTU,
                gap_us=round(self.gap_s * 1e6),
                head_bytes=5 * _MTU,
            ),
        )

    def queues(self, *places: int) -> list[int]:
        """Send packets, each a message, by their places, and return their queues."""
        return [
            self.queue_of(frames.roce(_ONLY, self.pair, self.first_psn + place)) for place in places
        ]

    @staticmethod
    def nobodys() -> int:
        """Return the queue of packets of no flow: they follow those before, but on a Tofino."""
        return BEST_EFFORT_QUEUE if architecture() == "tna" else 5


class ByPacketNumbers(_QueuePairTest):
    """The number of a packet tells its place in the iteration; what is past the last flow is
    nobody's.
    """

    def runTest(self) -> None:
        self.assertEqual(self.queues(*range(7)), [2, 2, 5, 5, 5, 5, self.nobodys()])


class NumbersWrap(ByPacketNumbers):
    """Numbers of 24 bits go on from 0."""

    first_psn = _WRAP - 3


class SentAgain(_QueuePairTest):
    """Packets sent again after a loss keep their position, as do lost ones that come later."""

    first_psn = _WRAP - 2

    def runTest(self) -> None:
        self.assertEqual(self.queues(0, 2, 3), [2, 5, 5])
        self.assertEqual(self.queues(1, 2, 3, 4), [2, 5, 5, 5])
        self.assertEqual(self.queues(1, 2), [2, 5])
        self.assertEqual(self.queues(4, 5, 6), [5, 5, self.nobodys()])


class NextQueuePairIteration(_QueuePairTest):
    """An iteration opens after a gap, with a number that was not seen before."""

    gap_s = _GAP_S

    def runTest(self) -> None:
        self.assertEqual(self.queues(*range(6)), [2, 2, 5, 5, 5, 5])
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(5), [5])
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(6, 7, 8), [2, 2, 5])
        self.assertEqual([self.next_event(flow).flow for flow in self.flows[:1]], self.flows[:1])


class AnswersOfRoce(_QueuePairTest):
    """Acknowledgements and congestion notifications go to the control queue, whosever they are, and
    count nothing.
    """

    def runTest(self) -> None:
        self.assertEqual(self.queues(0), [2])
        for opcode in (_ACKNOWLEDGE, _CONGESTION):
            for pair in (self.pair, self.pair + 1):
                self.assertEqual(self.queue_of(frames.roce(opcode, pair, 0, 4)), CONTROL_QUEUE)
        self.assertEqual(self.queues(1, 2), [2, 5])


class OtherQueuePairs(_QueuePairTest):
    """A packet to another queue pair, host or port belongs to no connection of a job; the sender
    does not matter.
    """

    def runTest(self) -> None:
        others = [
            frames.roce(_ONLY, self.pair + 1, 100),
            frames.roce(_ONLY, self.pair, 100, 0),
        ]
        for frame in others:
            self.assertEqual(self.queue_of(frame), BEST_EFFORT_QUEUE)
        self.assertEqual(
            self.queue_of(frames.roce(_ONLY, self.pair, 100, port=4790)), BEST_EFFORT_QUEUE
        )
        self.assertEqual(
            self.queue_of(frames.roce(_ONLY, self.pair, 100, dst=3), port=3), BEST_EFFORT_QUEUE
        )
        self.assertEqual(self.queue_of(frames.roce(_ONLY, self.pair, 100, src=3)), 2)


class KeepsItsCodePoint(_QueuePairTest):
    """A packet keeps its NIC's code point where nothing is configured, so that it stays in a
    lossless queue. Its invariant CRC is right when it leaves."""

    marks = False

    def runTest(self) -> None:
        for pair in (self.pair, self.pair + 1):
            frame = frames.roce(_ONLY, pair, 100, dscp=26)
            self.expect(frame, frames.as_forwarded(frame))
        left = self.carry(frames.roce(_ONLY, self.pair, 101, dscp=26))
        seen = Ether(left)
        del seen[BTH].icrc
        self.assertEqual(bytes(seen), left)


class TakesAConfiguredCodePoint(_QueuePairTest):
    """A fabric may give each queue a code point for RoCE; the invariant CRC does not cover it."""

    marks = False

    def runTest(self) -> None:
        self.install(entries.roce_mark(2, 34))
        left = self.carry(frames.roce(_ONLY, self.pair, 100, dscp=26))
        self.assertEqual(left[15] >> 2, 34)
        seen = Ether(left)
        del seen[BTH].icrc
        self.assertEqual(bytes(seen), left)


@skipped_on(tna=_UNSEEN)
class RisesBetweenMessages(_QueuePairTest):
    """A queue pair rises with the first packet of a message, and keeps order if packets wait."""

    def runTest(self) -> None:
        def frame(place: int, opcode: int) -> bytes:
            return bytes(frames.roce(opcode, self.pair, self.first_psn + place))

        self.assertEqual(self.queues(0, 1), [2, 2])
        self.assertEqual([self.queue_of(frame(place, _MIDDLE)) for place in (2, 3)], [2, 2])
        self.assertEqual(
            [self.queue_of(frame(4, _FIRST)), self.queue_of(frame(5, _MIDDLE))], [5, 5]
        )


@skipped_on(tna=_UNSEEN)
class OrderOfAQueuePair(_QueuePairTest):
    """While packets wait in the lower queue, later ones follow them there, a new message or not."""

    def runTest(self) -> None:
        sent = [bytes(frames.roce(_ONLY, self.pair, self.first_psn + place)) for place in range(6)]
        self.slow_queue(2, 5, len(sent[0]))
        for frame in sent[:5]:
            self.send(frame)
        left = list(receive_all(self, 5, RECEIVER))
        self.assertEqual(
            [Ether(frame)[BTH].psn for frame in left], [self.first_psn + n for n in range(5)]
        )
        self.assertEqual([frames.queue_of(frame) for frame in left], [2] * 5)
        self.assertEqual(self.queue_of(sent[5]), 5)
