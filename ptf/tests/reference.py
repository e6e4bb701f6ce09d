"""The reference time of an EchelonFlow: when its iteration began, and which iteration that is.

Digests tell the slack that the switch computed and the instant it did so, in microseconds of its
own clock: what the slack of one packet must be follows exactly from the digests of two.
"""

from __future__ import annotations

import time

from echelon_ptf.base import STALE_QUEUE, START, EchelonTest, Flow, skipped_on
from echelon_ptf.control import FlowEvent
from echelon_ptf.entries import Fixed

_ON_TIME, _TARDY = 1, 4
_OFFSET_US = 500_000


class _ReferenceTest(EchelonTest):
    """One job with a head flow and a member that is to finish half a second later; any tardiness
    shows in the queue.
    """

    def setUp(self) -> None:
        super().setUp()
        self.at_once_tardy = self.profile(_ON_TIME, below={0: _TARDY})
        self.echelonflow, self.job = self.new_echelonflow(), self.new_job()
        self.head, self.member = self.flow(0), self.flow(_OFFSET_US)

    def flow(self, offset_us: int) -> Flow:
        return self.deadline_flow(
            self.at_once_tardy, offset_us, echelonflow=self.echelonflow, job=self.job
        )

    def assert_counts_from(
        self, reference_us: int, member: FlowEvent, offset_us: int = _OFFSET_US
    ) -> None:
        self.assert_us(member.slack_us, reference_us + offset_us - member.time_us)


class HeadSetsIt(_ReferenceTest):
    """The head's own slack is 0, and deadlines of the others count from then."""

    def runTest(self) -> None:
        head = self.start(self.head)
        self.assertEqual(head.slack_us, 0)
        time.sleep(0.1)
        self.assert_counts_from(head.time_us, self.start(self.member))


class LateProducersFlowIsTardyFromBirth(_ReferenceTest):
    """EchelonFlow's self-correction: what comes after its ideal finish time ranks as tardy with its
    first packet.
    """

    def runTest(self) -> None:
        self.assertEqual(self.queue_of(self.head.packet()), _ON_TIME)
        time.sleep(_OFFSET_US / 1e6)
        self.assertEqual(self.queue_of(self.member.packet()), _TARDY)
        self.assertEqual(self.queue_of(self.flow(_OFFSET_US + 60_000_000).packet()), _ON_TIME)


class LostHead(_ReferenceTest):
    """The first member that arrives leaves now - its offset; the head, when it comes after all,
    changes nothing.
    """

    def runTest(self) -> None:
        member = self.start(self.member)
        self.assertEqual(member.slack_us, 0)
        reference_us = member.time_us - _OFFSET_US
        self.assert_counts_from(reference_us, self.start(self.head), offset_us=0)
        self.assert_counts_from(reference_us, self.start(self.flow(_OFFSET_US)))


class EpochZeroIsAnEpoch(_ReferenceTest):
    """A register that was never written is no iteration 0."""

    def runTest(self) -> None:
        head = self.start(self.head, 0)
        self.assertEqual(head.slack_us, 0)
        self.assert_counts_from(head.time_us, self.start(self.member, 0))


class NextIterationAnew(_ReferenceTest):
    """Every iteration has a reference of its own."""

    def runTest(self) -> None:
        for epoch in (1, 2, 3):
            head = self.start(self.head, epoch)
            self.assertEqual(head.slack_us, 0)
            self.assert_counts_from(head.time_us, self.start(self.member, epoch))


class _EpochTest(_ReferenceTest):
    """A test of the order of two epochs, the second of which is `ahead` of the first modulo 256.

    Only a new iteration restarts the flow.
    """

    def second(self, first: int, ahead: int) -> str:
        flow = self.deadline_flow(self.at_once_tardy)
        self.start(flow, first)
        second = (first + ahead) % 256
        queue = self.queue_of(flow.packet(second))
        if queue == _ON_TIME:
            event = self.next_event(flow)
            self.assertEqual((event.event, event.epoch, event.slack_us), (START, second, 0))
        else:
            self.expect_no_event()
        return {_ON_TIME: "new", _TARDY: "same", STALE_QUEUE: "straggler"}[queue]


class EpochDelta0(_EpochTest):
    """The same iteration: it is tardy by now, and starts nothing."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 0), "same")


class EpochDelta1(_EpochTest):
    """The next iteration."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 1), "new")


class EpochDelta127(_EpochTest):
    """Far ahead: a switch that the job did not pass for a while."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 127), "new")


class EpochDelta128(_EpochTest):
    """An epoch as far ahead as behind is a new iteration."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 128), "new")


class EpochDelta239(_EpochTest):
    """17 behind is not a straggler but a job that was started anew."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 239), "new")


class EpochDelta240(_EpochTest):
    """16 behind: the oldest straggler."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 240), "straggler")


class EpochDelta255(_EpochTest):
    """One behind: a straggler, which starts nothing."""

    def runTest(self) -> None:
        self.assertEqual(self.second(50, 255), "straggler")


class EpochsWrapAround(_EpochTest):
    """0 follows 255; 255 after 0 is one behind."""

    def runTest(self) -> None:
        self.assertEqual(self.second(255, 1), "new")
        self.assertEqual(self.second(0, 255), "straggler")


class StragglersMoveNothing(_ReferenceTest):
    """A straggler changes neither the reference of the running iteration nor its epoch."""

    def runTest(self) -> None:
        head = self.start(self.head, 20)
        for behind in (1, 5, 16):
            self.assertEqual(self.queue_of(self.head.packet(20 - behind)), STALE_QUEUE)
            self.assertEqual(self.queue_of(self.member.packet(20 - behind)), STALE_QUEUE)
        self.assert_counts_from(head.time_us, self.start(self.member, 20))


@skipped_on(tna="a straggler of a fixed ranking counts as a first packet")
class StragglersOfFixedFlows(EchelonTest):
    """Stragglers of flows with a fixed level keep that level, and start nothing."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        self.start(flow, 20)
        self.assertEqual(self.queue_of(flow.packet(19)), 3)
        self.assertEqual(self.queue_of(flow.packet(20)), 3)
        self.expect_no_event()


class RestartedJob(_ReferenceTest):
    """A restarted job counts its iterations from one again, and is ranked in all of them."""

    def runTest(self) -> None:
        for epoch in (*range(1, 41, 8), 40):
            self.start(self.head, epoch)
        for epoch in (1, 2, 3):
            head = self.start(self.head, epoch)
            self.assertEqual(head.slack_us, 0)
            self.assert_counts_from(head.time_us, self.start(self.member, epoch))


class EchelonFlowsAreApart(_ReferenceTest):
    """A new iteration of one EchelonFlow leaves the reference of another where it is."""

    def runTest(self) -> None:
        head = self.start(self.head)
        other = self.deadline_flow(self.at_once_tardy)
        self.start(other, 7)
        self.start(other, 8)
        self.assert_counts_from(head.time_us, self.start(self.member))
