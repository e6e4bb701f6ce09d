"""The last hour: the same as a list of all values says, and never more memory than is stated."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.controller.machine.facts import IterationTimed, JobSeen, TardinessSeen
from echelon.controller.service.history import (
    JOBS,
    LARGEST_BYTES,
    PORTS,
    STEP_S,
    STEPS,
    History,
    Hour,
)
from echelon.planning.plan import LEVELS

VALUES = st.sampled_from((nan, -2.0, 0.0, 0.5, 3.0, 1024.0))
"""Values that single precision holds exactly."""


NUMBERS = st.sampled_from((0, 1, 2, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS - 1))
TIMES = st.tuples(NUMBERS, st.integers(0, STEP_S - 1)).map(lambda one: one[0] * STEP_S + one[1])


@given(
    st.lists(st.tuples(TIMES, st.sampled_from("ab"), VALUES, VALUES), min_size=4, max_size=40),
    st.sampled_from((0, STEP_S, (STEPS - 2) * STEP_S)),
)
def test_each_step_has_the_largest_of_its_values(
    seen: list[tuple[int, str, float, float]], later_s: int
) -> None:
    """Beside a list of all values, of which each step of the hour takes what fell into it."""
    hour: Hour[str] = Hour(2, 10)
    seen.sort(key=lambda one: one[0])
    for at_s, key, *values in seen:
        hour.put(key, at_s, values)
    now_s = later_s + (seen[-1][0] if seen else 0)
    first = now_s // STEP_S - STEPS + 1

    def expected(key: str, step: int, place: int) -> float | None:
        fell = [one[2 + place] for one in seen if one[1] == key and one[0] // STEP_S == step]
        return max((one for one in fell if one == one), default=None)

    shown = {
        key: [
            (expected(key, step, 0), expected(key, step, 1)) for step in range(first, first + STEPS)
        ]
        for key in "ab"
        if any(one[1] == key and one[0] // STEP_S >= first for one in seen)
    }
    assert dict(hour.read(now_s)) == shown


def test_whoever_was_silent_gives_way_and_nobody_else() -> None:
    hour: Hour[str] = Hour(1, 2)
    for at_s, key in (
        (0, "a"),
        (1, "b"),
        (2, "c"),
        (STEP_S, "b"),
        (2 * STEP_S, "d"),
        (2 * STEP_S, "e"),
    ):
        hour.put(key, at_s, [1.0])
    assert [key for key, _ in hour.read(2 * STEP_S)] == ["b", "d"]


def test_facts_of_iterations_are_kept() -> None:
    history = History()
    for fact in (
        IterationTimed("a", 0.5),
        TardinessSeen("a", -0.25),
        IterationTimed("a", 2.0),
        JobSeen("b"),
    ):
        history.take(fact, 5.0)
    ((name, steps),) = history.jobs.read(5.0)
    assert (name, steps[-1], set(steps[:-1])) == ("a", (2.0, -0.25), {(None, None)})


@pytest.mark.wide
def test_it_stays_within_its_bound() -> None:
    """Twice as many jobs and ports as are kept, all of them seen in each step of an hour and a
    half.
    """
    tracemalloc.start()
    try:
        history = History()
        for one, other in pairwise(range(0, STEPS * STEP_S * 3 // 2, STEPS * STEP_S // 4)):
            for at_s in (one, other):
                for number in range(2 * JOBS):
                    history.jobs.put(f"a-job-with-a-long-name-{number}", at_s, (1.0, 2.0))
                for number in range(2 * PORTS):
                    history.ports.put(
                        (f"switch-{number // 64}", number % 64), at_s, [0.125] * LEVELS
                    )
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 4 * STEPS * (2 * JOBS + LEVELS * PORTS) < held <= peak <= LARGEST_BYTES
    assert len(list(history.jobs.read(at_s))) == JOBS
    assert len(list(history.ports.read(at_s))) == PORTS
