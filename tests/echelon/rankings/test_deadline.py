"""Levels relative to the most urgent flow at a port, and the memory of jobs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.rankings.base import Rank
from echelon.planning.rankings.deadline import (
    Deadline,
    DeadlineExecution,
    GrowingRank,
    Memory,
    Relative,
    relative_levels,
)
from tests.drawing import examples

PORT: Link = ("s1", "h2")
STEPS = (
    Fraction(1, 1000),
    Fraction(3, 100),
    Fraction(8, 100),
    Fraction(3, 20),
    Fraction(3, 10),
    Fraction(3, 5),
)
values = st.fractions(-2, 2, max_denominator=50)
slopes = st.sampled_from(
    [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(7, 5), Fraction(3)]
)
lines = st.lists(st.builds(GrowingRank, values, slopes), min_size=1, max_size=5)
steps = st.sampled_from([STEPS, STEPS[:1], (), (Fraction(1, 2), Fraction(1))])


def levels_at(made: list[GrowingRank], steps: tuple[Fraction, ...], after: Fraction) -> list[int]:
    """Return the number of steps by which each is behind the most urgent, so many seconds from now,
    by definition.
    """
    ranks = [line.value + line.slope * after for line in made]
    return [sum(max(ranks) - rank > step for step in steps) for rank in ranks]


def change_times(made: list[GrowingRank], steps: tuple[Fraction, ...]) -> list[Fraction]:
    """Return all times at which any two lines are any step, or nothing, apart."""
    out = []
    for a in made:
        for b in made:
            if a.slope != b.slope:
                out += [
                    (step - a.value + b.value) / (a.slope - b.slope)
                    for step in (Fraction(0), *steps)
                ]
    return [Fraction(time) for time in out if time > 0]


@settings(max_examples=examples(100), deadline=None)
@given(made=lines, steps=steps)
def test_levels_hold_until_they_change(
    made: list[GrowingRank], steps: tuple[Fraction, ...]
) -> None:
    """The levels are those of the definition just after now, halfway, and just before a hold ends,
    by brute force.
    """
    levels, holds = relative_levels(made, [steps] * len(made))
    times = change_times(made, steps)
    soon = min(times, default=Fraction(1)) / 2
    assert levels == levels_at(made, steps, soon)
    for index, hold in enumerate(holds):
        if hold is None:
            assert (
                levels_at(made, steps, max(times, default=Fraction(0)) + 1)[index] == levels[index]
            )
        else:
            assert hold > 0
            for part in (Fraction(1, 2), Fraction(999, 1000)):
                assert levels_at(made, steps, hold * part)[index] == levels[index]
    first = min((hold for hold in holds if hold is not None), default=None)
    changes = [
        time
        for time in sorted(set(times))
        if levels_at(
            made,
            steps,
            time + min([later - time for later in times if later > time], default=1) / 2,
        )
        != levels_at(made, steps, soon)
    ]
    if changes:
        assert first is not None
        assert first <= changes[0]


@settings(max_examples=examples(100), deadline=None)
@given(made=lines, steps=steps)
def test_floats_go_from_change_to_change(
    made: list[GrowingRank], steps: tuple[Fraction, ...]
) -> None:
    """Rounding never makes time stand still, and levels agree with exact ones between changes."""
    start, now, asked = 1000.0, 1000.0, 0
    times = change_times(made, steps)
    while now < start + 20 and asked < 200:
        at = [
            GrowingRank(float(line.value) + float(line.slope) * (now - start), float(line.slope))
            for line in made
        ]
        levels, holds = relative_levels(at, [[float(step) for step in steps]] * len(at))
        hold = min((hold for hold in holds if hold is not None), default=None)
        following = now + (20 if hold is None else hold)
        assert following > now
        middle = Fraction((now + following) / 2) - 1000
        if all(abs(time - middle) > Fraction(1, 10**6) for time in times):
            assert levels == levels_at(made, steps, middle)
        now, asked = following, asked + 1
    assert asked < 200


def test_the_most_urgent_is_never_below_another() -> None:
    levels, holds = relative_levels(
        [GrowingRank(Fraction(0), Fraction(1)), GrowingRank(Fraction(0), Fraction(2))], [STEPS] * 2
    )
    assert levels == [0, 0]
    assert holds == [Fraction(1, 1000), None]


def test_memory_is_three_quarters_of_itself_and_of_the_delay() -> None:
    memory = Memory()
    for iteration, (lates, expected) in enumerate(
        [([5, 7], 0), ([4], 3), ([3], 3), ([], "9/4"), ([3], "9/4")], start=1
    ):
        memory.begin(iteration, 3)
        assert memory.delay_s == Fraction(expected)
        for late in lates:
            memory.finish(Fraction(late))
        memory.begin(iteration, 3)
    memory.begin(6, 3)
    assert memory.delay_s == Fraction("27/16")


def flow(job: str, iteration: int, start_s: Number) -> ActiveFlow:
    return ActiveFlow(job, "f", iteration, "H", (("h1", "s1"), PORT), 10, 10, start_s, start_s, 0)


def ranked(unit_s: int, head_start: Fraction = Fraction(0)) -> Deadline:
    return Deadline(
        "H",
        Fraction(0),
        (),
        1,
        7,
        Relative(Fraction(unit_s), head_start, Fraction(2), Fraction(1), STEPS),
    )


def test_who_was_late_goes_first_in_the_next_iteration() -> None:
    """Two jobs are equal, and one finishes 4 s later than alone: E = 3 s of 10 s puts the other
    five levels below.
    """
    execution = DeadlineExecution(lambda number: number)
    for job, late_s in (("a", 2), ("b", 6)):
        present = flow(job, 1, Fraction(0))
        execution.started(Fraction(0), present, ranked(10))
        execution.finished(Fraction(late_s), present, ranked(10))
    again = [(flow(job, 2, Fraction(20)), ranked(10)) for job in "ab"]
    for present, ranking in again:
        execution.started(Fraction(20), present, ranking)
    assert execution.ranks(Fraction(20), PORT, again) == [Rank(3), Rank(7)]


def test_a_head_start_is_a_handicap() -> None:
    execution = DeadlineExecution(float)
    here = [(flow("a", 1, 0.0), ranked(10)), (flow("b", 1, 0.0), ranked(5, Fraction(1, 4)))]
    for present, ranking in here:
        execution.started(0.0, present, ranking)
    # b is a quarter behind, four steps, and catches up by a tenth each second.
    first, second = execution.ranks(0.0, PORT, here)
    assert (first.queue, second.queue) == (7, 3)
    assert second.until_s == pytest.approx(1)
    assert first.until_s == pytest.approx(2.5)


def test_what_is_alone_at_a_port_has_the_highest_queue() -> None:
    execution = DeadlineExecution(float)
    present = flow("a", 1, 0.0)
    execution.started(0.0, present, ranked(10, Fraction(9, 10)))
    assert execution.ranks(50.0, PORT, [(present, ranked(10, Fraction(9, 10)))]) == [Rank(7)]
