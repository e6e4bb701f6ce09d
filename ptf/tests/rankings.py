"""Each ranking: a fixed level, the deadline, the service attained, a window of time."""

from __future__ import annotations

import time
from collections.abc import Mapping

from echelon_ptf import entries, frames
from echelon_ptf.base import BEST_EFFORT_QUEUE, EchelonTest, Flow
from echelon_ptf.entries import Fixed
from echelon_ptf.frames import LAST

_STEP_S = 0.3
_STEP_US = 300_000


class _PassingTimeTest(EchelonTest):
    def levels_over_time(self, flow: Flow, earliest: int, below: Mapping[int, int]) -> list[int]:
        """Queues of the flow's packets until its slack is below all thresholds of its profile.

        Every packet is marked as the flow's last one, so that a digest tells its slack: which queue it belongs to does
        not depend on how fast anybody is.
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
    """The level of a flow rises as its slack shrinks, packet by packet, and falls when the next iteration starts."""

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
            self.deadline_flow(profile, offset * second, echelonflow=echelonflow, job=job) for offset in (0, 30, 50, 70)
        ]
        self.assertEqual([self.queue_of(flow.packet()) for flow in flows], [4, 3, 2, 1])


class AttainedService(EchelonTest):
    """Attained service is made of segments of one flow with falling levels."""

    def runTest(self) -> None:
        number, flow = self.new_connection(), self.new_flow()
        thresholds = [(0, 1000, 6), (1000, 3000, 4), (3000, 6000, 2)]
        self.install(
            *(
                entries.segment(number, start, end, flow, Fixed(queue), ends_at=6000)
                for start, end, queue in thresholds
            ),
            entries.connection(
                "udp", 8, 8, number=number, job=self.new_job(), is_head=True, gap_us=1_000_000, head_bytes=5700
            ),
        )
        frame = frames.udp(8, 8, 500)
        expected = [6] * 2 + [4] * 4 + [2] * 6 + [BEST_EFFORT_QUEUE]
        self.assertEqual([self.queue_of(frame) for _ in expected], expected)
        time.sleep(1.5)
        self.assertEqual([self.queue_of(frame) for _ in range(3)], [6, 6, 4])


class TimeWindow(_PassingTimeTest):
    """A window of time is made of a profile that is not monotone in the time since the iteration began."""

    def runTest(self) -> None:
        earliest, below = 1, {-_STEP_US: 5, -3 * _STEP_US: 0}
        self.levels_over_time(self.deadline_flow(self.profile(earliest, below)), earliest, below)
