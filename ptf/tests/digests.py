"""The digests that the control plane gets: when a flow starts, and when its last packet passes."""

from __future__ import annotations

import time

from echelon_ptf import entries, frames
from echelon_ptf.base import FINISH, START, EchelonTest, skipped_on
from echelon_ptf.entries import Fixed
from echelon_ptf.frames import LAST


class StartAndFinish(EchelonTest):
    """A flow sends one digest for its start and one for its end in every iteration, and none in
    between.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        for epoch in (1, 2, 200):
            for flags in (0, 0, 0, LAST):
                self.carry(flow.packet(epoch, flags=flags))
            seen = [self.next_event(flow) for _ in range(2)]
            self.assertEqual(
                [(event.event, event.epoch) for event in seen], [(START, epoch), (FINISH, epoch)]
            )
            self.assertLess(seen[0].time_us, seen[1].time_us)
        self.expect_no_event()


class OnePacket(EchelonTest):
    """A flow of one packet starts and finishes at once."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        self.carry(flow.packet(flags=LAST))
        self.assertEqual(self.next_event(flow).event, START | FINISH)
        self.expect_no_event()


class SlackAtTheEnd(EchelonTest):
    """The digest of a flow's end tells how tardy it finished; a fixed level has slack 0."""

    def runTest(self) -> None:
        late = self.deadline_flow(self.profile(1, below={}), offset_us=250_000)
        fixed = self.shim_flow(Fixed(1))
        start = self.start(late)
        self.start(fixed)
        time.sleep(0.1)
        self.carry(late.packet(flags=LAST))
        end = self.next_event(late)
        self.assertEqual(start.slack_us, 0)
        self.assert_us(end.slack_us, start.time_us - end.time_us)
        self.carry(fixed.packet(flags=LAST))
        self.assertEqual(self.next_event(fixed).slack_us, 0)


class Clock(EchelonTest):
    """Times are in microseconds, and advance as the test's clock does."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(1))
        before = time.monotonic()
        first = self.start(flow, 1)
        between = time.monotonic()
        time.sleep(0.5)
        after_pause = time.monotonic()
        second = self.start(flow, 2)
        after = time.monotonic()
        elapsed_s = (second.time_us - first.time_us) / 1e6
        # A clock may be off by a thousandth.
        self.assertGreater(elapsed_s, 0.999 * (after_pause - between))
        self.assertLess(elapsed_s, 1.001 * (after - before))


class FlowsByBytes(EchelonTest):
    """Flows known by their bytes start with the first packet in their segment and finish with the
    one that fills it.
    """

    def runTest(self) -> None:
        number, first, second = self.new_connection(), self.ranked(Fixed(2)), self.ranked(Fixed(3))
        self.install(
            entries.segment(number, 0, 1000, first),
            entries.segment(number, 1000, 2000, second),
            entries.connection(
                "udp",
                6,
                6,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=100_000,
                head_bytes=1900,
            ),
        )
        for epoch in (1, 2):
            for _ in range(4):
                self.carry(frames.udp(6, 6, 500))
            seen = [
                (event.flow, event.event, event.epoch)
                for event in (self.switch.next_event() for _ in range(4))
            ]
            self.assertEqual(
                seen,
                [
                    (first, START, epoch),
                    (first, FINISH, epoch),
                    (second, START, epoch),
                    (second, FINISH, epoch),
                ],
            )
            time.sleep(0.3)


class NoneForStrangers(EchelonTest):
    """Traffic of no job sends no digests, even where a packet is marked as the last one."""

    def runTest(self) -> None:
        self.carry(frames.udp(9, 9, 100))
        self.carry(frames.shim(self.new_job(), self.new_flow(), flags=LAST))
        self.expect_no_event()


@skipped_on(tna="a straggler of a fixed ranking counts as a first packet")
class LastOfAStraggler(EchelonTest):
    """The end of a flow in an earlier iteration is not reported as its end in the running one."""

    def runTest(self) -> None:
        for flow in (self.shim_flow(Fixed(1)), self.deadline_flow(self.profile(1, below={}))):
            self.start(flow, 9)
            self.carry(flow.packet(8, flags=LAST))
            self.expect_no_event()
