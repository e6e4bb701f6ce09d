"""Deliberate unfairness (HotNets '22): jobs that fit beside each other stop colliding."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.plan import QueuePlan
from echelon.planning.policies import make_policy
from echelon.planning.policies.levels import JOB_QUEUES
from echelon.planning.rankings.fixed import Fixed
from tests.echelon.policies.two_jobs import iteration_times_s, two_jobs

LINKS = (("h1", "s1"), ("s1", "h2"))


@pytest.mark.parametrize(
    ("communication", "fair"), [(Fraction(1, 2), 1.48), (Fraction(2, 5), 1.38)]
)
def test_strict_priority_separates_jobs_in_one_iteration(
    star: Callable[..., Fabric], communication: Fraction, fair: float
) -> None:
    times = iteration_times_s(make_policy("unfair"), two_jobs(communication), star(2), 5)
    assert times["first"] == pytest.approx([1.0] * 5)
    assert times["second"] == pytest.approx([fair, 1.0, 1.0, 1.0, 1.0])


def test_weights_separate_them_in_more(star: Callable[..., Fabric]) -> None:
    """Twice the share moves the first job ahead by half of what it sends in each iteration."""
    times = iteration_times_s(
        make_policy("unfair", by="weights", ratio=2), two_jobs(Fraction(1, 2)), star(2), 12
    )
    apart = 0.02
    for first, second in zip(times["first"], times["second"], strict=True):
        ahead = min(apart, 0.5)
        assert second - first == pytest.approx((0.5 - ahead) / 2, abs=1e-6)
        apart += second - first
    assert (times["first"][-1], times["second"][-1]) == (
        pytest.approx(1.0, abs=1e-3),
        pytest.approx(1.0, abs=1e-3),
    )


def test_jobs_that_do_not_fit_only_move_the_pain(star: Callable[..., Fabric]) -> None:
    """Each job takes three fifths: the demand is 1.2, so a job has to wait; the favoured one never
    does.
    """
    times = iteration_times_s(make_policy("unfair"), two_jobs(Fraction(3, 5)), star(2), 8)
    assert times["first"] == pytest.approx([1.0] * 8)
    assert min(times["second"][1:]) > 1.2


def test_only_jobs_that_meet_need_different_queues(star: Callable[..., Fabric]) -> None:
    def job(name: str, src: str, dst: str) -> Job:
        return Job(name, (), (Flow("f", src, dst, 1),), (EchelonFlow("H", ("f",), (Fraction(0),)),))

    jobs = [job("a", "h1", "h2"), job("b", "h3", "h4"), job("c", "h1", "h4"), job("d", "h3", "h2")]
    plan = make_policy("unfair").plan(jobs, star(4))
    assert [flow.ranking for flow in plan.flows] == [Fixed(6), Fixed(6), Fixed(5), Fixed(5)]
    many = [job(f"j{k}", "h1", "h2") for k in range(8)]
    queues = [flow.ranking.queue for flow in make_policy("unfair").plan(many, star(2)).flows]  # type: ignore[union-attr]
    assert queues == [6, 5, 4, 3, 2, 1, 1, 1]


def test_weights_of_queues(star: Callable[..., Fabric]) -> None:
    schedule = make_policy("unfair", by="weights", ratio=4).plan([], star(2)).default_schedule
    assert [schedule[queue] for queue in JOB_QUEUES] == [
        QueuePlan(1, min(1023, 4**k)) for k in range(6)
    ]


def test_best_effort_gets_what_is_left(
    star: Callable[..., Fabric], active: Callable[..., ActiveFlow]
) -> None:
    for by in ("priority", "weights"):
        policy = make_policy("unfair", by=by)
        policy.plan(two_jobs(Fraction(1, 2)), star(2))
        flows = [
            active(0, LINKS, job="", echelonflow=None),
            active(1, LINKS, job="first", max_rate_Bps=Fraction(600)),
        ]
        assert policy.allocate(Fraction(0), flows).rates_Bps == (400, 600)  # type: ignore[attr-defined]
