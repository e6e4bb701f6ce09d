"""Each ranking: a fixed level, the deadline by thresholds or relative, the service attained, a
window of time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from echelon_ptf import entries, frames
from echelon_ptf.base import (
    BEST_EFFORT_QUEUE,
    PORTS,
    RECEIVER,
    STALE_QUEUE,
    EchelonTest,
    Flow,
    architecture,
    skipped_on,
)
from echelon_ptf.entries import Attained, Deadline, Fixed, Window
from echelon_ptf.frames import ALONE, LAST
from scapy.packet import Packet

from echelon.model.p4program import constants

_NUMBERS = constants()

_STEP_S = 0.3
_STEP_US = 300_000


class _PassingTimeTest(EchelonTest):
    def levels_over_time(self, flow: Flow, earliest: int, below: Mapping[int, int]) -> list[int]:
        """Return the queues of the flow's packets until its slack is below all thresholds of its
        profile.

        Every packet is marked as the flow's last one, so that a digest tells its slack: which queue
        it belongs to does not depend on how fast anybody is.
        """
        seen: list[int] = []
        slack_us = 0
        while slack_us >= min(below):
            queue = self.queue_of(flow.packet(flags=LAST))
            slack_us = self.next_event(flow).slack_us
            passed = [level for threshold, level in sorted(below.items()) if slack_us < threshold]
            self.assertEqual(queue, passed[0] if passed else earliest, f"at {slack_us} us of slack")
            seen.append(queue)
            time.sleep(_STEP_S / 5)
        self.assertEqual(seen[0], earliest)
        return seen


class FixedLevel(EchelonTest):
    """A fixed ranking keeps its level in every iteration, for each of the eight levels."""

    def runTest(self) -> None:
        flows = [self.shim_flow(Fixed(queue)) for queue in range(8)]
        for epoch in (1, 2):
            self.assertEqual([self.queue_of(flow.packet(epoch)) for flow in flows], list(range(8)))
        time.sleep(_STEP_S)
        self.assertEqual([self.queue_of(flow.packet(2)) for flow in flows], list(range(8)))


class DeadlinePasses(_PassingTimeTest):
    """The level of a flow rises as its slack shrinks, packet by packet, and falls when the next
    iteration starts.
    """

    def runTest(self) -> None:
        earliest, below = 1, {-_STEP_US: 3, -3 * _STEP_US: 6}
        flow = self.deadline_flow(self.profile(earliest, below))
        seen = self.levels_over_time(flow, earliest, below)
        self.assertEqual(seen, sorted(seen))
        self.assertEqual(self.queue_of(flow.packet(2)), earliest)


class EarlierDeadlineFirst(EchelonTest):
    """Flows of one EchelonFlow rank in the order of their offsets, at the same instant."""

    def runTest(self) -> None:
        second = 1_000_000
        profile = self.profile(1, below={60 * second: 2, 40 * second: 3, 20 * second: 4})
        echelonflow, job = self.new_echelonflow(), self.new_job()
        flows = [
            self.deadline_flow(profile, offset * second, echelonflow=echelonflow, job=job)
            for offset in (0, 30, 50, 70)
        ]
        self.assertEqual([self.queue_of(flow.packet()) for flow in flows], [4, 3, 2, 1])


class _AttainedTest(EchelonTest):
    """A group of two flows: queue 6, 4 from 1000 bytes on, 2 from 3000 bytes on."""

    def setUp(self) -> None:
        super().setUp()
        profile = self.new_profile()
        self.install(*entries.by_bytes(profile, [1000, 3000], [6, 4, 2]))
        self.rank = Attained(self.new_group(), profile)
        self.flows = [self.shim_flow(self.rank) for _ in range(2)]

    def queue(self, flow: int, epoch: int) -> int:
        return self.queue_of(
            self.flows[flow].packet(epoch, payload_bytes=500 - frames.HEADER_BYTES)
        )


class AttainedService(_AttainedTest):
    """The bytes of all flows of a group count, in whole frames, from each iteration anew."""

    def runTest(self) -> None:
        for epoch in (255, 0):
            self.assertEqual([self.queue(n % 2, epoch) for n in range(8)], [6, 6, 4, 4, 4, 4, 2, 2])


class AttainedServiceOfAStraggler(_AttainedTest):
    """A packet of an earlier iteration is not ranked, and does not count."""

    def runTest(self) -> None:
        self.assertEqual([self.queue(0, 9) for _ in range(3)], [6, 6, 4])
        self.assertEqual([self.queue(1, 8) for _ in range(3)], [STALE_QUEUE] * 3)
        self.assertEqual([self.queue(0, 9) for _ in range(4)], [4, 4, 4, 2])


class AttainedServiceByBytes(EchelonTest):
    """The same for flows that are known by their bytes."""

    def runTest(self) -> None:
        number, profile = self.new_connection(), self.new_profile()
        rank = Attained(self.new_group(), profile)
        self.install(
            *entries.by_bytes(profile, [1000, 3000], [6, 4, 2]),
            entries.segment(number, 0, 2000, self.ranked(rank)),
            entries.segment(number, 2000, 4000, self.ranked(rank)),
            entries.connection(
                "udp",
                8,
                8,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=1_000_000,
                head_bytes=3900,
            ),
        )
        frame = frames.udp(8, 8, 500 - 42)
        expected = [6] * 2 + [4] * 4 + [2] * 3 + [BEST_EFFORT_QUEUE]
        self.assertEqual([self.queue_of(frame) for _ in expected], expected)
        time.sleep(1.5)
        self.assertEqual([self.queue_of(frame) for _ in range(3)], [6, 6, 4])


class TimeWindow(EchelonTest):
    """The time in the period decides, counted from the group's first packet, whatever iteration a
    packet belongs to.
    """

    def runTest(self) -> None:
        period_us, inside, outside = 800_000, 5, 1
        profile, group = self.new_profile(), self.new_group()
        # The key is the time left: the window is the first half of the period.
        self.install(*entries.by_time_left(profile, [period_us // 2], [outside, inside]))
        rank = Window(group, profile, period_us)
        job = self.new_job()
        origin_us = self.start(self.shim_flow(rank, job=job)).time_us
        seen = set()
        for n in range(24):
            flow = self.shim_flow(rank, job=job)
            queue = self.queue_of(flow.packet(n))
            position_us = (self.next_event(flow).time_us - origin_us) % period_us
            self.assertEqual(
                queue, inside if position_us <= period_us // 2 else outside, f"at {position_us} us"
            )
            seen.add(queue)
            time.sleep(0.07)
        self.assertEqual(seen, {inside, outside})


class WindowsBeginAnewAfterASilence(EchelonTest):
    """A group that was silent for more than eight periods has a new origin."""

    def runTest(self) -> None:
        period_us = 50_000
        profile = self.new_profile()
        self.install(*entries.by_time_left(profile, [period_us], [1, 5]))
        flow = self.shim_flow(Window(self.new_group(), profile, period_us))
        # The key is the whole period at its very beginning alone.
        self.assertEqual(self.queue_of(flow.packet(1)), 5)
        time.sleep(0.5)
        self.assertEqual(self.queue_of(flow.packet(2)), 5)


_S = 1_000_000
OTHER = 3
"""Another port."""
_NO_RANK = -0x40000000
"""The value of the register while no flow is at the port (`NO_RANK` in p4src/tna)."""


class _RelativeTest(EchelonTest):
    """Ranks are parts of a period of 100 s.

    Offsets are tens of seconds apart, so that nothing depends on how fast the machine is. On a
    Tofino, levels are 10, 20 and 30 % behind the most urgent flow at the port. Elsewhere queues are
    in the order of ranks: there, queues of the tests are behind the switch, where a packet that has
    left counts for a period.
    """

    period_us = 100 * _S
    queues = (1, 2, 3, 4, 5, 6, 7)

    def setUp(self) -> None:
        super().setUp()
        if architecture() == "tna":
            return
        held = constants()["HOLD_FOREVER"]
        for port in (RECEIVER, OTHER):
            self.install(*(entries.promotion_hold(port, queue, held) for queue in range(8)))

    def relative(self, period_us: int, **facts: Any) -> int:
        """Install a new relative profile, and return its number."""
        profile = self.new_profile()
        parts = [Fraction(part, 100) for part in (10, 20, 30)]
        queues = [7, 6, 5, 4] if architecture() == "tna" else self.queues
        self.install(*entries.relative(profile, period_us, parts, queues, **facts))
        return profile

    def job(self, offsets_s: Sequence[int], profile: int) -> list[Flow]:
        """Return flows of a new job with these offsets. After the test they are forgotten."""
        echelonflow = self.new_echelonflow()
        return self.flows(*(Deadline(echelonflow, profile, offset * _S) for offset in offsets_s))

    def flows(self, *ranks: Deadline) -> list[Flow]:
        """Return flows of a new job with these ranks. After the test they are forgotten."""
        self.addCleanup(self.forget)
        job = self.new_job()
        return [self.shim_flow(rank, job=job) for rank in ranks]

    def forget(self, port: int = RECEIVER) -> None:
        """Leave no flow at the port.

        Where queues are behind the switch, a packet that counts for no time goes to each of them.
        On a Tofino, where only packets of others make a port forget, its register is set.
        """
        if architecture() == "tna":
            for each in PORTS:
                self.switch.set_register("EchelonIngress.top.top_rank", each, _NO_RANK)
            return
        for queue in self.queues:
            profile = self.new_profile()
            self.install(*entries.relative(profile, _S, [], [queue], idle_us=0))
            flow = self.shim_flow(Deadline(self.new_echelonflow(), profile, 0), port=port)
            self.assertEqual(self.queue_of(flow.packet(), port), queue)

    def packet(self, flow: Flow, epoch: int = 1, flags: int = 0, **fields: Any) -> Packet:
        """Return a packet of a flow that may change its queue."""
        return flow.packet(epoch, flags=flags | ALONE, **fields)

    def assert_queues(
        self, seen: Sequence[int], *, by_steps: Sequence[int], in_order: Sequence[int]
    ) -> None:
        """Check queues: those of a Tofino, and those of switches with queues in order."""
        self.assertEqual(list(seen), list(by_steps if architecture() == "tna" else in_order))

    def shim_after(self, flow: Flow, epoch: int = 1, **fields: Any) -> frames.Shim:
        return frames.shim_of(self.carry(self.packet(flow, epoch, **fields)))


class RelativeLevels(_RelativeTest):
    """The more urgent is above, whatever its deadline.

    On a Tofino, the most urgent is on top, and others below by how far they are behind it. In
    queues in order, each comes below or above those that are there, while there are queues.
    """

    def runTest(self) -> None:
        flows = self.job((0, 5, 15, 28, 95), self.relative(self.period_us))
        seen = [self.queue_of(flow.packet()) for flow in flows]
        self.assert_queues(seen, by_steps=[7, 7, 6, 5, 4], in_order=[4, 3, 2, 1, 1])
        # The one at the top counts for a while after its end.
        last = self.queue_of(self.packet(flows[0], flags=LAST))
        seen = [last, *(self.queue_of(self.packet(flow, remaining=1)) for flow in flows[3:])]
        # In order, the fourth flow is nearer to the third than to the last, which has its queue.
        self.assert_queues(seen, by_steps=[7, 5, 4], in_order=[4, 2, 1])


class RelativeLevelsOfAPort(_RelativeTest):
    """Every port has an order of its own."""

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        urgent, calm = self.job((0, 25), profile)
        seen = [self.queue_of(flow.packet()) for flow in (urgent, calm)]
        self.assert_queues(seen, by_steps=[7, 5], in_order=[4, 3])
        self.addCleanup(self.forget, OTHER)
        self.rerank(calm, Deadline(self.new_echelonflow(), profile, 25 * _S), port=OTHER)
        seen = [
            self.queue_of(self.packet(calm, 2), port=OTHER),
            self.queue_of(self.packet(calm, 2, flags=LAST), port=OTHER),
        ]
        self.assert_queues(seen, by_steps=[7, 7], in_order=[4, 4])
        self.rerank(calm, Deadline(self.new_echelonflow(), profile, 25 * _S))


class RelativeLevelsOfJobsOfOnePort(_RelativeTest):
    """Tardiness is compared in parts of each job's own period, and head starts count against it."""

    def runTest(self) -> None:
        # Two flows that are 60 s late: 60 % of 100 s, 30 % of 200 s.
        urgent = self.job((60, 0), self.relative(self.period_us))
        calm = self.job((60, 0), self.relative(2 * self.period_us))
        handicapped = self.job((60, 0), self.relative(self.period_us, head_start=Fraction(15, 100)))
        for flow in (urgent[0], calm[0], handicapped[0]):
            self.start(flow)
        self.forget()
        # 15 points behind, and 30 or a little more: on a Tofino, each packet lowers the top.
        jobs = (urgent, calm, handicapped)
        if architecture() != "tna":
            jobs = (urgent, handicapped, calm)
        queues = [self.queue_of(job[1].packet()) for job in jobs]
        self.assert_queues(queues, by_steps=[7, 4, 6], in_order=[4, 3, 2])


class ADueTimeOfItsOwn(_RelativeTest):
    """A flow is ranked by when it should have finished, and opens iterations and is late by its
    offset.
    """

    def runTest(self) -> None:
        profile, echelonflow = self.relative(self.period_us), self.new_echelonflow()
        dues_s = (10, 25, 45, 10)
        flows = self.flows(*(Deadline(echelonflow, profile, 10 * _S, due * _S) for due in dues_s))
        self.start(flows[0])
        seen = [self.queue_of(self.packet(flow)) for flow in flows]
        # The last is as urgent as the first, and a little later.
        self.assert_queues(seen, by_steps=[7, 6, 4, 7], in_order=[4, 3, 2, 5])
        self.carry(self.packet(flows[2], flags=LAST))
        for flow in flows[1:]:
            self.next_event(flow)
        ended = self.next_event(flows[2])
        # The packet that opened the iteration was as late as its offset, 0 s before.
        self.assertTrue(
            -5 * _S < ended.slack_us <= self.switch.time_error_us, f"{ended.slack_us} us"
        )
        age_us = self.shim_after(flows[1], epoch=2).age_us
        self.assertTrue(9.9 * _S < age_us < 15 * _S, f"{age_us} us")


class ADueTimeBeforeTheOffset(_RelativeTest):
    """A flow may be due earlier than its arrangement places it."""

    def runTest(self) -> None:
        profile, echelonflow = self.relative(self.period_us), self.new_echelonflow()
        late, early = self.flows(
            *(Deadline(echelonflow, profile, 50 * _S, due * _S) for due in (50, 35))
        )
        seen = [self.queue_of(flow.packet()) for flow in (early, late)]
        self.assert_queues(seen, by_steps=[7, 6], in_order=[4, 3])


class ADueTimeByThresholds(EchelonTest):
    """Thresholds count from when a flow should have finished, digests from its offset."""

    def runTest(self) -> None:
        profile = self.profile(1, below={-10 * _S: 2, -20 * _S: 3, -30 * _S: 4})
        job, echelonflow = self.new_job(), self.new_echelonflow()
        offsets_s, dues_s = (45, 10, 10, 10), (45, 10, 20, 60)
        flows = [
            self.shim_flow(Deadline(echelonflow, profile, offset * _S, due * _S), job=job)
            for offset, due in zip(offsets_s, dues_s, strict=True)
        ]
        # The first opens the iteration: 45 s have passed.
        opened = self.start(flows[0])
        self.assertEqual([self.queue_of(flow.packet()) for flow in flows], [1, 4, 3, 1])
        for flow in flows[1:]:
            event = self.next_event(flow)
            self.assert_us(event.slack_us, 10 * _S - 45 * _S - (event.time_us - opened.time_us))


class _BytesLeftTest(_RelativeTest):
    """Two jobs whose bytes left count: `bytes_of_s` of them as one second."""

    def two(self, left_shift: int) -> tuple[Flow, Flow]:
        profile = self.relative(self.period_us)
        ranks = (Deadline(self.new_echelonflow(), profile, left_shift=left_shift) for _ in range(2))
        one, other = (self.flows(rank)[0] for rank in ranks)
        return one, other

    def queues_of(self, bytes_of_s: int, *packets: tuple[Flow, int]) -> list[int]:
        """Return the queues of packets of flows of which so many seconds are left."""
        return [
            self.queue_of(self.packet(flow, remaining=left_s * bytes_of_s))
            for flow, left_s in packets
        ]

    def overtakes(self, left_shift: int, bytes_of_s: int) -> None:
        long, short = self.two(left_shift)
        seen = self.queues_of(bytes_of_s, (short, 5), (long, 20))
        self.assert_queues(seen, by_steps=[7, 6], in_order=[4, 3])
        # What is left of the longer one has become less: it overtakes, and its rank goes on rising.
        seen = self.queues_of(bytes_of_s, (long, 1), (short, 16), (long, 0), (short, 25))
        # Behind the switch, the packet of which 20 s were left counts still.
        self.assert_queues(seen, by_steps=[7, 6, 7, 5], in_order=[5, 4, 5, 2])


class BytesLeft(_BytesLeftTest):
    """The one with fewer bytes left goes first among flows that are equally late.

    Its rank rises as it sends.
    """

    def runTest(self) -> None:
        self.overtakes(0, _S)


class BytesLeftOfFastLinks(_BytesLeftTest):
    """A byte counts 1/128 of a microsecond."""

    def runTest(self) -> None:
        self.overtakes(7, 128 * _S)


class BytesLeftOfSlowLinks(_BytesLeftTest):
    """A byte counts eight microseconds."""

    def runTest(self) -> None:
        self.overtakes(-3, _S // 8)


class BytesLeftDoNotCount(_BytesLeftTest):
    """Unless the flow's entry says so, any number of bytes left is as good as none."""

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        dues_us = (5 * _S, 0)
        ranks = (Deadline(self.new_echelonflow(), profile, due_us=due_us) for due_us in dues_us)
        flow, other = (self.flows(rank)[0] for rank in ranks)
        seen = self.queues_of(_S, (other, 0), (flow, 4000), (other, 4000), (flow, 0))
        self.assert_queues(seen, by_steps=[7, 7, 7, 7], in_order=[4, 3, 4, 3])


class BytesLeftBesideADueTime(_BytesLeftTest):
    """Bytes left and due time add up."""

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        first = self.flows(Deadline(self.new_echelonflow(), profile))[0]
        second = self.flows(
            Deadline(self.new_echelonflow(), profile, due_us=15 * _S, left_shift=2)
        )[0]
        seen = self.queues_of(4 * _S, (first, 0), (second, 0), (second, 8))
        self.assert_queues(seen, by_steps=[7, 6, 5], in_order=[4, 3, 3])


@skipped_on(tna="all bytes of a flow count where it is known by its bytes")
class BytesLeftByPosition(_RelativeTest):
    """The bytes left of a flow known by bytes are those that its connection has not carried."""

    def runTest(self) -> None:
        self.addCleanup(self.forget)
        profile, number = self.relative(self.period_us), self.new_connection()
        # 1000 bytes are 10 s.
        rank = Deadline(self.new_echelonflow(), profile, left_shift=-13)
        per_s = 1_000_000 >> 13
        self.install(
            entries.segment(number, 0, 40 * per_s, self.ranked(rank)),
            entries.connection(
                "udp",
                8,
                8,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=_S,
                head_bytes=39 * per_s,
            ),
        )
        urgent = self.flows(Deadline(self.new_echelonflow(), profile))[0]
        self.start(urgent)
        seen = [self.queue_of(frames.udp(8, 8, 12 * per_s)) for _ in range(3)]
        # 40 s are left, then 28 s, then 16 s. A connection does not change its queue while its
        # packets may wait: who comes next tells its rank.
        self.assertEqual(seen, [3, 3, 3])
        ranks = (Deadline(self.new_echelonflow(), profile, due_us=due * _S) for due in (35, 10))
        late, early = (self.flows(rank)[0] for rank in ranks)
        self.assertEqual([self.queue_of(flow.packet()) for flow in (late, early)], [2, 3])


class MoreBytesLeftThanTime(_BytesLeftTest):
    """Bytes left count for no more than a rank can say: such a flow goes last, not first."""

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        first = self.flows(Deadline(self.new_echelonflow(), profile))[0]
        endless = self.flows(Deadline(self.new_echelonflow(), profile, left_shift=-6))[0]
        self.start(first)
        for left in (1 << 24, (1 << 27) - 1):
            seen = [self.queue_of(self.packet(endless, remaining=left))]
            self.assert_queues(seen, by_steps=[4], in_order=[3])


@skipped_on(tna="the most urgent rank decays with packets of others, not with time")
class WhoWaitsBehindTheSwitchIsForgotten(_RelativeTest):
    """A packet in a queue behind the switch counts for a while, as nobody knows when it leaves."""

    def runTest(self) -> None:
        first, second = self.job((0, 60), self.relative(self.period_us, idle_us=_S // 2))
        self.assertEqual([self.queue_of(flow.packet()) for flow in (first, second)], [4, 3])
        time.sleep(1)
        self.assertEqual(self.queue_of(self.packet(second)), 4)


class TheReferenceIsTold(_RelativeTest):
    """The age in the shim sets the reference of an iteration, or puts it back, never forward; and
    is written back.
    """

    def assert_age(self, age_us: int, least_us: int) -> None:
        """Check an age to 5 s of a slow machine."""
        least = least_us * (1 - self.switch.age_error)
        self.assertTrue(least <= age_us < least_us + 5 * _S, f"{age_us} us")

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        head, member = self.job((0, 5), profile)
        told = self.shim_after(head, age_us=30 * _S, flags=LAST)
        opened = self.next_event(head)
        self.assert_us(opened.slack_us, -30 * _S)
        self.assert_age(told.age_us, 30 * _S)
        self.shim_after(member, age_us=1, flags=LAST)
        later = self.next_event(member)
        self.assert_us(later.slack_us, 5 * _S - 30 * _S - (later.time_us - opened.time_us))
        self.shim_after(member, age_us=50 * _S, flags=LAST)
        self.assert_us(self.next_event(member).slack_us, 5 * _S - 50 * _S)
        # Without a word of it, by its own offset.
        told = self.shim_after(member, epoch=2, flags=LAST)
        self.assertEqual(self.next_event(member).slack_us, 0)
        self.assert_age(told.age_us, 5 * _S)


@skipped_on(tna="a flow ranked by thresholds hears the age of an iteration, too")
class ThresholdsHearNothing(_RelativeTest):
    """A flow ranked by thresholds neither hears nor tells: its shim leaves as it came."""

    def runTest(self) -> None:
        flow = self.deadline_flow(self.profile(1, below={}))
        shim = self.shim_after(flow, age_us=30 * _S, memory=9)
        self.assertEqual((shim.age_us, shim.memory), (30 * _S, 9))
        self.assertEqual(self.next_event(flow).slack_us, 0)


@skipped_on(tna="memories are in a unit that is a power of two of ticks")
class Memory(_RelativeTest):
    """Three quarters of what was lost before and of the last iteration's delay count in the next
    one.
    """

    def runTest(self) -> None:
        # 40 s late at its end, of which 10 s are its own: 30 % of the period.
        flow = self.job((0,), self.relative(self.period_us, alone_us=10 * _S))[0]
        told = self.shim_after(flow, 1, age_us=40 * _S, flags=LAST)
        self.assertEqual(told.memory, 0)
        expected = Fraction(0)
        late = Fraction(30, 100)
        for epoch in (2, 3, 4):
            expected = (expected + late) * 3 / 4
            self.assert_about(self.shim_after(flow, epoch, flags=LAST).memory, expected)
            late = Fraction(0)

    def assert_about(self, memory: int, expected: Fraction) -> None:
        """Check a memory to 5 % of the period, which is 5 s of a slow machine."""
        found = Fraction(memory, _NUMBERS["MEMORY_UNIT"])
        self.assertTrue(
            expected - Fraction(1, 100) <= found < expected + Fraction(5, 100), f"{float(found):g}"
        )


@skipped_on(tna="memories are in a unit that is a power of two of ticks")
class MemoryIsTold(_RelativeTest):
    """The largest memory that was told in an iteration counts, and moves the job before one that
    lost nothing.
    """

    def runTest(self) -> None:
        profile = self.relative(self.period_us)
        ranks = (Deadline(self.new_echelonflow(), profile, due_us=due * _S) for due in (0, 5))
        unhurt, hurt = (self.flows(rank)[0] for rank in ranks)
        quarter = _NUMBERS["MEMORY_UNIT"] // 4
        self.assertEqual([self.queue_of(flow.packet()) for flow in (unhurt, hurt)], [4, 3])
        for told, expected in ((quarter, quarter), (1, quarter)):
            frame = self.carry(self.packet(hurt, memory=told))
            self.assertEqual(frames.shim_of(frame).memory, expected)
            self.assertEqual(frames.queue_of(frame), 5)
