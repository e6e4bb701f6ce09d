"""The behaviour of jobs when the controller is gone, the profile is wrong, or a worker is late."""

from __future__ import annotations

from fractions import Fraction

import pytest
from acceptance.runs import Run, grouped, softswitch

from echelon.planning.execution import tardiness_s
from echelon_lab.scenarios.scenario import Delay


def tardiness(run: Run, job: str) -> list[float]:
    (echelonflow,) = next(j for j in run.scenario.jobs if j.name == job).echelonflows
    return [
        float(tardiness_s(echelonflow, i))
        for i in run.record(job).iterations
        if i.finish is not None
    ]


@pytest.mark.xdist_group("fig2")
def test_a_dead_controller_changes_nothing_under_echelon() -> None:
    alive = softswitch("fig2", "echelon", iterations=2)
    dead = softswitch("fig2", "echelon", iterations=2, stop_controller_after_iteration=1)
    assert tardiness(dead, "pipeline") == tardiness(alive, "pipeline")
    assert len(tardiness(dead, "pipeline")) == 2


@pytest.mark.xdist_group("fig2")
def test_a_dead_controller_does_under_varys() -> None:
    alive = softswitch("fig2", "varys", iterations=2)
    dead = softswitch("fig2", "varys", iterations=2, stop_controller_after_iteration=1)
    assert tardiness(alive, "pipeline") == pytest.approx([6.0] * 2, rel=0.01)
    # What is left in the switches is equal sharing, which here happens to be better.
    assert tardiness(dead, "pipeline") == pytest.approx([6.0, 4.5], rel=0.01)


@pytest.mark.parametrize("name", [grouped("fig2"), grouped("pipeline_4_4")])
@pytest.mark.parametrize("error", [Fraction(1, 5), Fraction(-1, 5)])
def test_profiled_distances_may_be_wrong_by_a_fifth(name: str, error: Fraction) -> None:
    exact = softswitch(name, "echelon")
    (job,) = exact.scenario.jobs
    wrong = softswitch(name, "echelon", profile_error=error)
    assert wrong.compute_finish_s(job.name) == pytest.approx(
        exact.compute_finish_s(job.name), rel=0.05
    )


# Two jobs of which, without memory, the same one waits in every iteration.
UNEVEN = "worst_1580"


def uneven(**changes: object) -> Run:
    return softswitch(UNEVEN, "echelon", "memory", iterations=9, **changes)


@pytest.mark.xdist_group(UNEVEN)
def test_switches_remember_who_waited_without_a_controller() -> None:
    alive, dead = uneven(), uneven(stop_controller_after_iteration=1)
    for job in ("dp1", "dp2"):
        assert len(dead.iteration_times_s(job)) >= 9
        assert dead.iteration_times_s(job) == alive.iteration_times_s(job)
    waits = dead.slowdowns().values()
    assert max(waits) / min(waits) < 1.06


@pytest.mark.long
@pytest.mark.xdist_group(UNEVEN)
@pytest.mark.parametrize("error", [Fraction(1, 5), Fraction(-1, 5)])
def test_memory_does_not_need_right_profiles(error: Fraction) -> None:
    right, wrong = uneven().slowdowns(), uneven(profile_error=error).slowdowns()
    assert sum(wrong.values()) <= 1.02 * sum(right.values())
    assert max(wrong.values()) <= 1.05 * max(right.values())


@pytest.mark.long
@pytest.mark.xdist_group("dp_pair")
def test_after_a_late_worker_both_jobs_are_back_within_two_iterations() -> None:
    """One worker is half an iteration late in the sixth iteration: the two jobs collide again, and
    are in step again in the eighth.
    """
    late = (Delay("first", "a1", 6, Fraction(2)),)
    run = softswitch("dp_pair", "echelon", delays=late, iterations=10)
    undisturbed = softswitch("dp_pair", "echelon")
    for job in ("first", "second"):
        times, before = run.iteration_times_s(job), undisturbed.iteration_times_s(job)
        assert times[:4] == before[:4]
        assert max(times[7:]) <= 1.01 * before[-1]
    assert run.iteration_times_s("first")[5] > 1.4 * undisturbed.iteration_times_s("first")[5]
