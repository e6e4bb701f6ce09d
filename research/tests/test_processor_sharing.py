"""Processor sharing against small time steps, and against what can be said in closed form."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.processor_sharing import Arrival, Step, Use, finish_times_s, left_over
from tests.drawing import examples

times = st.integers(0, 40).map(lambda tenths: tenths / 10)
arrivals_of = st.lists(
    st.builds(Arrival, times, st.integers(1, 30).map(float)), min_size=1, max_size=8
)
uses_of = st.lists(
    st.builds(
        lambda at, length, size: Use(at, at + length, size),
        times,
        st.integers(1, 20).map(float),
        st.floats(0, 40),
    ),
    max_size=5,
)


def stepwise(
    arrivals: list[Arrival], capacity: list[Step], until_s: float
) -> list[Fraction | None]:
    """Return the same by brute force: in exact fractions, reduce every flow's rest from one event
    to the next.
    """
    rest = {i: Fraction(flow.size_bytes) for i, flow in enumerate(arrivals)}
    ends: list[Fraction | None] = [None] * len(arrivals)
    now = Fraction(capacity[0].at_s)
    while now <= until_s and any(end is None for end in ends):
        rate = Fraction([step.capacity_Bps for step in capacity if step.at_s <= now][-1])
        present = [i for i in rest if Fraction(arrivals[i].at_s) <= now]
        changes = [Fraction(a.at_s) for a in arrivals] + [Fraction(step.at_s) for step in capacity]
        ahead = [at for at in changes if at > now]
        if present and rate:
            ahead.append(now + min(rest[i] for i in present) * len(present) / rate)
        if not ahead:
            break
        following = min(ahead)
        for i in present:
            rest[i] -= (following - now) * rate / len(present)
            if rest[i] <= 0:
                del rest[i]
                ends[i] = following
        now = following
    return [None if end is None or end > until_s else end for end in ends]


@given(arrivals_of, uses_of)
@settings(max_examples=examples(150), deadline=None)
def test_equals_brute_force(arrivals: list[Arrival], uses: list[Use]) -> None:
    arrivals.sort(key=lambda arrival: arrival.at_s)
    capacity = left_over(10.0, uses)
    fast = finish_times_s(arrivals, capacity, 1000.0)
    slow = stepwise(arrivals, capacity, 1000.0)
    assert [end is None for end in fast] == [end is None for end in slow]
    for ours, exact in zip(fast, slow, strict=True):
        assert (
            ours is None or exact is None or ours == pytest.approx(float(exact), rel=1e-6, abs=1e-6)
        )


@given(uses_of, times, st.integers(1, 20))
@settings(max_examples=examples(100), deadline=None)
def test_what_is_left_is_the_capacity_less_what_is_used(
    uses: list[Use], at_s: float, capacity: int
) -> None:
    steps = left_over(float(capacity), uses)
    assert [step.at_s for step in steps] == sorted({step.at_s for step in steps})
    now = at_s + 0.05  # between two steps: all times are whole tenths

    def used(when_s: float) -> float:
        return sum(
            use.size_bytes / (use.to_s - use.from_s)
            for use in uses
            if use.from_s <= when_s < use.to_s
        )

    current = [step for step in steps if step.at_s <= now][-1]
    assert -1e-9 <= current.capacity_Bps <= max(0.0, capacity - used(now)) + 1e-9
    if all(used(use.from_s) <= capacity for use in uses):
        assert current.capacity_Bps == pytest.approx(capacity - used(now), abs=1e-9)


@given(uses_of, st.integers(1, 20))
@settings(max_examples=examples(100), deadline=None)
def test_every_byte_that_is_used_is_missing_from_what_is_left(
    uses: list[Use], capacity: int
) -> None:
    steps = left_over(float(capacity), uses)
    total = sum(use.size_bytes for use in uses)
    end_s = 100.0 + total / capacity  # by then all is sent, whatever waited
    ends = [*(step.at_s for step in steps[1:]), end_s]
    left = sum(
        step.capacity_Bps * (to_s - step.at_s) for step, to_s in zip(steps, ends, strict=True)
    )
    assert left == pytest.approx(capacity * end_s - total, rel=1e-9, abs=1e-6)


def test_flows_that_wait_for_each_other_take_the_link_one_after_the_other() -> None:
    # Three of 10 bytes at 10 bytes a second, that start at once and end at 1, 2 and 3 s.
    steps = left_over(10.0, [Use(0.0, end_s, 10.0) for end_s in (1.0, 2.0, 3.0)])
    assert finish_times_s([Arrival(0.0, 20.0)], steps, 100.0) == [pytest.approx(5.0)]


def test_two_equal_flows_that_start_together_take_twice_as_long() -> None:
    pair = [Arrival(1.0, 50.0), Arrival(1.0, 50.0)]
    assert finish_times_s(pair, [Step(0.0, 10.0)], 100.0) == [11.0, 11.0]


def test_nothing_ends_while_there_is_nothing_left() -> None:
    capacity = left_over(10.0, [Use(0.0, 4.0, 40.0)])
    assert finish_times_s([Arrival(1.0, 20.0)], capacity, 100.0) == [6.0]
    assert finish_times_s([Arrival(1.0, 20.0)], capacity, 5.9) == [None]
