"""Echelon with parts of other policies: Crux's paths, CASSINI's time shifts."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon.planning.policies.crux.policy import Crux
from tests.echelon.policies.test_stability import FABRIC, pipeline, ring
from tests.echelon.policies.two_jobs import two_jobs


def test_paths_are_those_of_crux() -> None:
    jobs = [ring("a", ["h1", "h5"], 5000), ring("b", ["h2", "h6"]), pipeline("c", ["h3", "h7"])]
    theirs = {(flow.job, flow.flow): flow.path for flow in Crux().plan(jobs, FABRIC).flows}
    ours = make_policy("echelon", paths="crux").plan(jobs, FABRIC)
    assert {(flow.job, flow.flow): flow.path for flow in ours.flows} == theirs
    alone = make_policy("echelon").plan(jobs, FABRIC)
    assert [flow.ranking for flow in ours.flows] == [flow.ranking for flow in alone.flows]


def test_shifts_are_those_of_cassini(star: Callable[..., Fabric]) -> None:
    """The second job would need one long iteration to find its place (1.48); shifted, it begins
    there.
    """
    jobs = two_jobs(Fraction(1, 2))
    result = simulate(jobs, star(2), make_policy("echelon", shifts="cassini"), 4, ideal=True)
    assert result.plan.shifts_s == make_policy("cassini").plan(jobs, star(2)).shifts_s
    for job in jobs:
        assert [float(time_s) for time_s in result.iteration_times_s(job.name)] == pytest.approx(
            [1.0] * 4, abs=0.02
        )
