"""The rule by which every kind of run ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.execution import Completion, Until

UNTILS: tuple[Until, ...] = ("all-done", "exactly")


@pytest.mark.parametrize("until", UNTILS)
def test_a_run_is_over_when_the_slowest_job_is_done(until: Until) -> None:
    completion = Completion(["fast", "slow"], 2, until)
    for job, iteration in (("fast", 1), ("fast", 2), ("slow", 1)):
        completion.finish(job, iteration)
        assert not completion.reached
    completion.finish("slow", 2)
    assert completion.reached


def test_a_job_that_is_ahead_keeps_up_the_load_or_stops() -> None:
    load, exact = (
        Completion(["fast", "slow"], 1, "all-done"),
        Completion(["fast", "slow"], 1, "exactly"),
    )
    for completion in (load, exact):
        completion.finish("fast", 1)
    assert load.begins("fast", 2)
    assert not exact.begins("fast", 2)


@pytest.mark.parametrize("until", UNTILS)
def test_without_a_number_of_iterations_a_run_never_ends(until: Until) -> None:
    completion = Completion(["j"], None, until)
    completion.finish("j", 10**9)
    assert completion.begins("j", 10**9 + 1)
    assert not completion.reached


@pytest.mark.parametrize("iterations", [1, None])
def test_a_run_without_jobs_has_nothing_in_common(iterations: int | None) -> None:
    assert Completion([], iterations).common_iterations == 0


@given(
    speeds=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    iterations=st.integers(1, 6),
    until=st.sampled_from(UNTILS),
    told_first=st.booleans(),
)
def test_jobs_of_constant_speed_end_as_arithmetic_says(
    speeds: list[int], iterations: int, until: Until, told_first: bool
) -> None:
    """Job i takes `speeds[i]` time units for an iteration, so the run takes `iterations` of the
    slowest.
    """
    completion = Completion(map(str, range(len(speeds))), iterations, until)
    assert completion.begins("0", 1)
    running = dict(enumerate(speeds))
    finished = dict.fromkeys(running, 0)
    now = 0
    while not completion.reached:
        now = min(running.values())
        for job in [job for job, at in running.items() if at == now]:
            if completion.reached:
                break
            finished[job] += 1
            # An iteration's end is noted before or after the question of the next one: the answer
            # is the same.
            if told_first:
                completion.finish(str(job), finished[job])
            begins = completion.begins(str(job), finished[job] + 1)
            completion.finish(str(job), finished[job])
            if begins:
                running[job] = now + speeds[job]
            else:
                del running[job]
    assert now == iterations * max(speeds)
    assert completion.common_iterations == iterations
    for job, speed in enumerate(speeds):
        if until == "exactly":
            assert finished[job] == iterations
        else:
            # Where jobs end at the same time, those that are looked at after the last one do not
            # count.
            assert now // speed - 1 <= finished[job] <= now // speed
