"""Iterations told apart by silence and bytes, against the schedule of the bytes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_torch.agent.connections import Totals
from echelon_torch.agent.iterations import IterationDetector, IterationMeter
from tests.drawing import examples

GAP_MS = 50
STEP_MS = 10
"""Time between two observations."""

# Milliseconds that are no multiple of a step: bytes go between two observations.
BURSTS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 1000)), min_size=1, max_size=4)
"""The sends of an iteration: pauses in steps before each, and bytes.

No pause comes near the gap.
"""


def observations(sends: list[tuple[int, int]], end_ms: int) -> list[tuple[float, int, float]]:
    """Return what is observed of (time in ms, bytes) at each step: time, total, and time since the
    last send.
    """
    out = []
    for now_ms in range(0, end_ms, STEP_MS):
        past = [(at, size) for at, size in sends if at <= now_ms]
        since_ms = now_ms - past[-1][0] if past else 0
        out.append((now_ms / 1000, sum(size for _, size in past), since_ms / 1000))
    return out


def schedule(
    iterations: list[list[tuple[int, int]]], pause_ms: int
) -> tuple[list[tuple[int, int]], list[int], int]:
    """Return the sends, when each iteration begins, and the end; milliseconds."""
    now_ms, sends, starts = 100, [], []
    for iteration in iterations:
        for number, (steps, size) in enumerate(iteration):
            now_ms += min(steps * STEP_MS, GAP_MS - 2 * STEP_MS) if number else 0
            if not number:
                starts.append(now_ms)
            sends.append((now_ms + 3, size))
        now_ms += pause_ms
    return sends, starts, now_ms + pause_ms


@given(BURSTS, st.integers(1, 8), st.integers(0, 10))
@settings(max_examples=examples(200), deadline=None)
def test_every_iteration_of_a_regular_job_is_found(
    one: list[tuple[int, int]], count: int, longer: int
) -> None:
    sends, starts, end_ms = schedule([one] * count, GAP_MS + (2 + longer) * STEP_MS)
    detector = IterationDetector(GAP_MS / 1000)
    found = [detector.observe(*seen) for seen in observations(sends, end_ms)]
    ended = [one for one in found if one is not None]
    assert detector.begun == count
    assert [one.sent_bytes for one in ended] == [
        sum(size for _, size in one) for one in [one] * (count - 1)
    ]
    for iteration, start_ms, next_ms in zip(ended, starts, starts[1:], strict=False):
        assert abs(iteration.start_s * 1000 - start_ms) <= STEP_MS
        assert abs(iteration.duration_s * 1000 - (next_ms - start_ms)) <= STEP_MS


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 1000)), max_size=60))
@settings(max_examples=examples(200), deadline=None)
def test_whatever_comes_iterations_follow_one_another_and_lose_no_bytes(
    steps: list[tuple[int, int]],
) -> None:
    detector = IterationDetector(GAP_MS / 1000)
    now_s, total, ended = 0.0, 0, []
    for wait_ms, size in steps:
        now_s += wait_ms / 1000
        total += size
        seen = detector.observe(now_s, total)
        ended += [] if seen is None else [seen]
    assert len(ended) == max(0, detector.begun - 1)
    for one, following in pairwise(ended):
        assert abs(one.start_s + one.duration_s - following.start_s) < 1e-9
        assert following.sent_bytes >= 0.95 * one.sent_bytes
    assert sum(one.sent_bytes for one in ended) <= total


def test_a_pause_for_computing_is_not_the_end() -> None:
    detector = IterationDetector(0.05)
    halves = [(at, 500) for start in (0, 1000, 2000) for at in (start + 103, start + 303)]
    # The first iteration is not known to go on after its first pause; from then on 95 % of its
    # bytes must have passed.
    for seen in observations(halves, 3000):
        detector.observe(*seen)
    assert detector.begun == 6
    detector = IterationDetector(0.05)
    whole = [(103, 1000), (1103, 500), (1303, 500), (2103, 500), (2303, 500), (3103, 1)]
    ended = [
        one.sent_bytes
        for seen in observations(whole, 3200)
        if (one := detector.observe(*seen)) is not None
    ]
    assert ended == [1000, 1000, 1000]


def test_bytes_before_the_first_observation_are_of_no_iteration() -> None:
    detector = IterationDetector(0.05)
    detector.observe(0.0, 10_000)
    detector.observe(0.2, 10_100)
    detector.observe(0.4, 10_100, 0.2)
    ended = detector.observe(0.5, 10_200)
    assert ended is not None
    assert ended.sent_bytes == 100


@given(
    BURSTS,
    st.integers(2, 8),
    st.lists(st.sampled_from(["10.0.0.2", "10.0.0.3"]), min_size=4, max_size=4),
)
@settings(max_examples=examples(200), deadline=None)
def test_what_is_measured_of_an_iteration_is_what_was_sent_in_it(
    one: list[tuple[int, int]], count: int, receivers: list[str]
) -> None:
    sends, _, end_ms = schedule([one] * count, GAP_MS + 3 * STEP_MS)
    receivers = (receivers[: len(one)] * count)[: len(sends)]
    meter = IterationMeter(GAP_MS / 1000)
    found = []
    for now_ms in range(0, end_ms, STEP_MS):
        past = [
            (at, size, to) for (at, size), to in zip(sends, receivers, strict=True) if at <= now_ms
        ]
        sent_to = {
            to: sum(size for _, size, other in past if other == to)
            for to in {to for *_, to in past}
        }
        total = sum(sent_to.values())
        # As much again is sent again, and send buffers are too small for 1 ms a byte.
        totals = Totals(
            sent_bytes=total, retransmitted_bytes=total, stalled_s=total / 1000, sent_to=sent_to
        )
        since_s = (now_ms - past[-1][0]) / 1000 if past else 0.0
        found.append(meter.observe(now_ms / 1000, totals, since_s))
    measured = [iteration for iteration in found if iteration is not None]
    size = sum(size for _, size in one)
    wanted = {
        to: sum(size for (_, size), other in zip(one, receivers, strict=False) if other == to)
        for to in receivers
    }
    assert len(measured) == count - 1
    for iteration in measured:
        assert {to: sent for to, sent in iteration.carried.sent_to.items() if sent} == wanted
        assert iteration.seen.sent_bytes == iteration.carried.retransmitted_bytes == size
        assert abs(iteration.carried.stalled_s - size / 1000) < 1e-9
