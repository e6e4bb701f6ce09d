"""The tests of levels by slack: thresholds of each job's own, edges, saturation.

A flow that is to finish long before or after another one of its EchelonFlow has any slack that a
test wants at once, tardy or not, and the thresholds are tens of seconds apart: nothing depends on
how fast the machine is.
"""

from __future__ import annotations

from collections.abc import Mapping

from echelon_ptf import entries
from echelon_ptf.base import EchelonTest, skipped_on
from echelon_ptf.entries import BIAS

_S = 1_000_000
_LONGEST_OFFSET_US = (1 << 32) - 1
"""71.6 minutes, twice the largest slack of 32 bits."""


class _SlackTest(EchelonTest):
    def queue_at(self, profile: int, slack_us: int) -> int:
        """Return the queue of a packet whose flow had this slack a moment ago."""
        anchor_us = 100 * _S
        echelonflow, job = self.new_echelonflow(), self.new_job()
        # This packet opens the iteration as if the head had started 100 s ago.
        anchor = self.deadline_flow(profile, anchor_us, echelonflow=echelonflow, job=job)
        self.start(anchor)
        flow = self.deadline_flow(profile, anchor_us + slack_us, echelonflow=echelonflow, job=job)
        queue = self.queue_of(flow.packet())
        event = self.next_event(flow)
        self.assertTrue(
            slack_us - 5 * _S < event.slack_us <= slack_us,
            f"{event.slack_us} us of slack, not {slack_us}",
        )
        return queue


class SevenThresholds(_SlackTest):
    """Eight levels, from early to tardy."""

    def runTest(self) -> None:
        thresholds = {
            at * _S: queue for queue, at in enumerate((60, 40, 20, 0, -20, -40, -60), start=1)
        }
        profile = self.profile(0, below=thresholds)
        seen = [self.queue_at(profile, at * _S) for at in (70, 50, 30, 10, -10, -30, -50, -70)]
        self.assertEqual(seen, list(range(8)))


class ThresholdsPerJob(_SlackTest):
    """The same slack is urgent for a job of short iterations and early for one of long ones."""

    def runTest(self) -> None:
        short = self.profile(1, below={40 * _S: 5})
        long = self.profile(1, below={-40 * _S: 5})
        for slack_us, expected in (
            (60 * _S, (1, 1)),
            (20 * _S, (5, 1)),
            (-20 * _S, (5, 1)),
            (-60 * _S, (5, 5)),
        ):
            self.assertEqual(
                (self.queue_at(short, slack_us), self.queue_at(long, slack_us)), expected
            )


class ThresholdsChange(_SlackTest):
    """New thresholds apply from the next packet on."""

    def runTest(self) -> None:
        profile = self.profile(1, below={})
        self.assertEqual(self.queue_at(profile, -20 * _S), 1)
        self.switch.modify(*entries.profile(profile, 6, below={}))
        self.assertEqual(self.queue_at(profile, -20 * _S), 6)


class ThresholdsAreExact(EchelonTest):
    """The first packet of an iteration has slack 0: from 0 to less than 1 microsecond."""

    def runTest(self) -> None:
        self.assertEqual(
            self.queue_of(self.deadline_flow(self.profile(1, below={0: 5})).packet()), 1
        )
        self.assertEqual(
            self.queue_of(self.deadline_flow(self.profile(1, below={1: 5})).packet()), 5
        )


class NoProfile(EchelonTest):
    """A flow whose profile nobody wrote is not harmed: level 0."""

    def runTest(self) -> None:
        self.assertEqual(self.queue_of(self.deadline_flow(self.new_profile()).packet()), 0)


class _SaturationTest(EchelonTest):
    """Two flows of one EchelonFlow, with a profile that has a queue of its own for either end."""

    below: Mapping[int, int] = {-BIAS + 1: 6, BIAS - 1: 3}
    earliest = 1

    def slack_key_and_queue(self, first_us: int, second_us: int) -> tuple[int, int]:
        profile = self.profile(self.earliest, self.below)
        echelonflow, job = self.new_echelonflow(), self.new_job()
        first = self.deadline_flow(profile, first_us, echelonflow=echelonflow, job=job)
        second = self.deadline_flow(profile, second_us, echelonflow=echelonflow, job=job)
        self.assertEqual(self.start(first).slack_us, 0)
        queue = self.queue_of(second.packet())
        return self.next_event(second).slack_key, queue


@skipped_on(tna="times are compared by the sign of their difference, and saturate nowhere")
class SaturatesEarly(_SaturationTest):
    """More than 35 minutes of slack is the largest slack."""

    def runTest(self) -> None:
        self.assertEqual(self.slack_key_and_queue(0, _LONGEST_OFFSET_US), (2 * BIAS - 1, 1))


@skipped_on(tna="times are compared by the sign of their difference, and saturate nowhere")
class SaturatesTardy(_SaturationTest):
    """More than 35 minutes late is the smallest slack; the reference lies before the switch's own
    clock began.
    """

    def runTest(self) -> None:
        self.assertEqual(self.slack_key_and_queue(_LONGEST_OFFSET_US, 0), (0, 6))


class DoesNotSaturateBefore(_SaturationTest):
    """34 minutes either way are counted."""

    def runTest(self) -> None:
        long_us = 34 * 60 * _S
        key, queue = self.slack_key_and_queue(0, long_us)
        self.assertTrue(BIAS + long_us - 60 * _S < key < BIAS + long_us, f"{key - BIAS} us")
        self.assertEqual(queue, 3)
        key, queue = self.slack_key_and_queue(long_us, 0)
        self.assertTrue(BIAS - long_us - 60 * _S < key < BIAS - long_us, f"{key - BIAS} us")
        self.assertEqual(queue, 3)
