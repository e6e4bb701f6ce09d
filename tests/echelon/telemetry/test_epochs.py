"""Epochs modulo 256 against whole numbers; iteration times against the times that a made-up job
really took.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.switches.telemetry.epochs import BEHIND, EPOCHS, Counting, IterationClock, ahead
from tests.echelon.telemetry.training import Passage, reports

durations = st.fractions(Fraction(1, 1000), 3, max_denominator=1000)


@given(st.integers(0, 10**6), st.integers(-BEHIND, EPOCHS - BEHIND - 1))
def test_ahead_undoes_the_modulus(of: int, distance: int) -> None:
    assert ahead((of + distance) % EPOCHS, of % EPOCHS) == distance


@given(st.integers(0, EPOCHS - 1), st.lists(st.integers(-BEHIND, EPOCHS - BEHIND - 1), max_size=50))
def test_counting_like_whole_numbers(first: int, jumps: list[int]) -> None:
    """Each next iteration is that far from the newest."""
    counting = Counting()
    newest = first
    assert counting.number(first) == first
    for jump in jumps:
        iteration = newest + jump
        if iteration < 0:
            continue
        assert counting.number(iteration % EPOCHS) == iteration
        newest = max(newest, iteration)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, EPOCHS - 1)), max_size=40))
def test_a_new_run_has_numbers_of_its_own(steps: list[tuple[bool, int]]) -> None:
    counting = Counting()
    runs: list[set[int]] = [set()]
    for anew, epoch in steps:
        if anew:
            counting.restart()
            runs.append(set())
        runs[-1].add(counting.number(epoch))
    numbers = [number for run in runs for number in run]
    assert len(numbers) == len(set(numbers))


def heard(clock: IterationClock, events: list[tuple[str, int, Fraction]]) -> list[Fraction]:
    out = []
    for kind, epoch, time_s in events:
        if kind == "start":
            duration_s, _ = clock.start(epoch, time_s)
            if duration_s is not None:
                out.append(duration_s)
        elif kind == "finish":
            clock.finish(epoch, time_s)
        else:
            clock.other(epoch)
    return out


@given(
    st.integers(0, 255),
    st.lists(st.tuples(durations, st.booleans()), min_size=1, max_size=600),
    st.fractions(0, 1000, max_denominator=7),
)
def test_iteration_times_with_losses(
    first: int, iterations: list[tuple[Fraction, bool]], clock_s: Fraction
) -> None:
    """A duration is known where both starts arrived; not after the very first, which may be from a
    flow's middle.
    """
    clock = IterationClock()
    now_s, out, expected = clock_s, [], []
    arrived: list[bool] = []
    for index, (duration_s, lost) in enumerate(iterations):
        epoch = (first + index) % EPOCHS
        if not lost:
            known, anew = clock.start(epoch, now_s)
            assert not anew
            if known is not None:
                out.append(known)
            if index and arrived[-1] and sum(arrived) > 1:
                expected.append(iterations[index - 1][0])
        arrived.append(not lost)
        clock.other(epoch)
        clock.finish(epoch, now_s + duration_s / 2)
        now_s += duration_s
    assert out == expected


@given(st.lists(durations, min_size=3, max_size=20), st.data())
def test_digests_that_come_twice_change_nothing(steps: list[Fraction], data: st.DataObject) -> None:
    now_s, events = Fraction(5), []
    for index, duration_s in enumerate(steps, start=250):
        events += [("start", index % 256, now_s), ("finish", index % 256, now_s + duration_s / 2)]
        now_s += duration_s
    once = heard(IterationClock(), events)
    assert once == steps[1:-1]
    repeated = []
    for index, event in enumerate(events):
        repeated.append(event)
        repeated += [
            events[data.draw(st.integers(max(0, index - 20), index))]
            for _ in range(data.draw(st.integers(0, 2)))
        ]
    assert heard(IterationClock(), repeated) == once


@given(st.lists(st.lists(durations, min_size=1, max_size=40), min_size=1, max_size=4), durations)
def test_no_iteration_spans_a_restart_of_the_job(
    runs: list[list[Fraction]], dead_s: Fraction
) -> None:
    """The switch is silent on the first iterations of a job that was started anew in its first 16;
    none of them may show as a long iteration."""
    iterations, true_s, now_s = [], set(), Fraction(0)
    for run in runs:
        for epoch, duration_s in enumerate(run, start=1):
            iterations.append((epoch % 256, [Passage("s1", "head", now_s, now_s + duration_s / 2)]))
            true_s.add((now_s, now_s + duration_s))
            now_s += duration_s
        now_s += dead_s
    clock, last_s = IterationClock(), Fraction(0)
    for event in reports(iterations, {"s1": Fraction(0)})["s1"]:
        if event.started:
            duration_s, _ = clock.start(event.epoch, event.time_s)
            if duration_s is not None:
                assert (last_s, last_s + duration_s) in true_s
                assert duration_s == event.time_s - last_s
            last_s = event.time_s
        else:
            clock.finish(event.epoch, event.time_s)


def test_a_restart_is_told_where_the_epochs_go_back() -> None:
    clock = IterationClock()
    for epoch in range(1, 6):
        assert clock.start(epoch, Fraction(epoch))[1] is False
    assert clock.start(1, Fraction(9)) == (None, True)
    assert clock.start(2, Fraction(10)) == (Fraction(1), False)


def test_all_starts_of_256_iterations_lost() -> None:
    clock = IterationClock()
    for epoch in (1, 2):
        clock.start(epoch, Fraction(epoch))
    for iteration in range(3, 3 + 256):
        clock.other(iteration % 256)
    assert clock.start(3, Fraction(3 + 256)) == (None, False)
    assert clock.start(4, Fraction(4 + 256)) == (1, False)


@pytest.mark.parametrize("later_s", [Fraction(1, 2), Fraction(7)])
def test_a_switch_that_was_started_anew(later_s: Fraction) -> None:
    """The switch's clock began anew: with or without word of it, no time spans the restart or
    begins in a flow's middle.
    """
    clock = IterationClock()
    for epoch in (1, 2, 3):
        clock.start(epoch, Fraction(5 + epoch))
    if later_s > 1:
        clock.lose()
    assert clock.start(4, later_s) == (None, False)
    assert clock.start(5, later_s + 1) == (None, False)
    assert clock.start(6, later_s + 3) == (Fraction(2), False)


def test_a_start_from_the_middle_is_none() -> None:
    """The number by which the switch reports the flow changed in iteration 3."""
    clock = IterationClock()
    for epoch in (1, 2, 3):
        clock.start(epoch, Fraction(epoch))
    assert clock.start(3, Fraction(7, 2)) == (None, False)
    assert clock.start(4, Fraction(4)) == (None, False)
    assert clock.start(5, Fraction(5)) == (1, False)
