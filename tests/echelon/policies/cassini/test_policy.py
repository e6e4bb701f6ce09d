"""CASSINI on a fabric: jobs that are shifted do not collide, however that is enforced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths
from echelon.planning.policies import make_policy
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.rankings.window import Window
from tests.echelon.policies.two_jobs import two_jobs


def bulk(name: str, src: str, dst: str, period_ms: int, communication_ms: int) -> Job:
    """Return a job that communicates first, then computes: one byte a millisecond."""
    flows = (Flow("f", src, dst, communication_ms),)
    computes = (ComputeUnit("c", src, Fraction(period_ms - communication_ms, 1000), ("f",)),)
    return Job(name, computes, flows, (EchelonFlow("H", ("f",), (Fraction(0),)),))


@pytest.mark.parametrize("communication", [Fraction(2, 5), Fraction(1, 2)])
def test_hosts_separate_two_jobs_at_once(
    star: Callable[..., Fabric], communication: Fraction
) -> None:
    """Fair sharing leaves the jobs at 1.38 and 1.48 for ever (MLTCP's example)."""
    jobs = two_jobs(communication)
    result = simulate(jobs, star(2), make_policy("cassini"), 5)
    for job in jobs:
        assert [float(time_s) for time_s in result.iteration_times_s(job.name)] == pytest.approx(
            [1.0] * 5, abs=0.03
        )
    assert result.plan.shifts_s["first"] == 0
    assert result.plan.shifts_s["second"] >= communication - Fraction(1, 50)


def test_shifts_of_different_periods(star: Callable[..., Fabric]) -> None:
    jobs = [bulk("a", "h1", "h3", 40, 10), bulk("b", "h2", "h3", 60, 10)]
    fabric = star(3)
    plan = make_policy("cassini").plan(jobs, fabric)
    assert plan.shifts_s == {"a": 0, "b": Fraction(1, 100)}
    result = simulate(jobs, fabric, make_policy("cassini"), 6)
    for name, period_s in (("a", 0.04), ("b", 0.06)):
        times_s = result.iteration_times_s(name)
        assert times_s == pytest.approx([period_s] * len(times_s))
    shifts = time_shifts(
        jobs,
        FlowPaths().update(jobs, fabric),
        fabric.capacity_Bps,
        AloneRuns().update(jobs, fabric),
    )
    assert shifts.scores == {("s1", "h3"): pytest.approx(1)}
    assert shifts.ignored == ()


def test_declared_starts_count(star: Callable[..., Fabric]) -> None:
    """A job that starts at a good time anyway is not delayed."""
    first, second = (bulk(name, src, "h3", 100, 50) for name, src in (("a", "h1"), ("b", "h2")))
    jobs = [first, replace(second, start_s=Fraction(50, 1000))]
    assert make_policy("cassini").plan(jobs, star(3)).shifts_s == {"a": 0, "b": 0}
    jobs = [first, replace(second, start_s=Fraction(70, 1000))]
    assert make_policy("cassini").plan(jobs, star(3)).shifts_s["b"] == Fraction(80, 1000)


def test_jobs_that_do_not_meet_stay(star: Callable[..., Fabric]) -> None:
    jobs = [bulk("a", "h1", "h2", 100, 90), bulk("b", "h3", "h4", 100, 90)]
    assert make_policy("cassini").plan(jobs, star(4)).shifts_s == {"a": 0, "b": 0}


def test_windows_are_slots_of_the_period(star: Callable[..., Fabric]) -> None:
    """A job is delayed and has its own slot with both; with windows alone, the slot is later
    instead.
    """
    jobs = [bulk("a", "h1", "h3", 40, 10), bulk("b", "h2", "h3", 60, 10)]
    both = make_policy("cassini", enforce="both", margin=0).plan(jobs, star(3))
    ten_ms = Fraction(1, 100)
    assert [flow.ranking for flow in both.flows] == [
        Window(4 * ten_ms, Fraction(0), ten_ms, 6, 1),
        Window(6 * ten_ms, Fraction(0), ten_ms, 6, 1),
    ]
    assert both.shifts_s == {"a": 0, "b": ten_ms}
    windows = make_policy("cassini", enforce="windows", margin=0).plan(jobs, star(3))
    assert windows.shifts_s == {}
    assert windows.flows[1].ranking == Window(6 * ten_ms, ten_ms, 2 * ten_ms, 6, 1)
    stretched = make_policy("cassini", enforce="windows", margin=0.5).plan(jobs, star(3))
    assert stretched.flows[1].ranking == Window(9 * ten_ms, 3 * ten_ms / 2, 3 * ten_ms, 6, 1)


@pytest.mark.parametrize("enforce", ["windows", "both"])
def test_jobs_keep_step_with_slots_that_are_a_little_too_long(
    star: Callable[..., Fabric], enforce: str
) -> None:
    """Fair sharing leaves the two at 1.48 for ever; slots of 1.02 s hold them at 1.02 s."""
    jobs = two_jobs(Fraction(1, 2))
    apart = [
        replace(
            job,
            computes=(replace(job.computes[0], worker=src),),
            flows=(replace(job.flows[0], src=src),),
        )
        for job, src in zip(jobs, ("h1", "h3"), strict=True)
    ]
    result = simulate(apart, star(3), make_policy("cassini", enforce=enforce), 12)
    for job in apart:
        assert float(result.iteration_times_s(job.name)[-1]) == pytest.approx(1.02, abs=0.03)
