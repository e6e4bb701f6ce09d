"""Defer and promote by laxity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.policies import make_policy
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed


def staggered() -> Job:
    """Return flows of 1 s each, ready after 1, 2 and 2 s; the third waits for the second.

    Alone they take 4 s.
    """
    computes = (ComputeUnit("c1", "h1", Fraction(1)), ComputeUnit("c2", "h1", Fraction(1), ("c1",)))
    flows = (
        Flow("f1", "h1", "h2", 1000, ("c1",)),
        Flow("f2", "h1", "h2", 1000, ("c2",)),
        Flow("f3", "h1", "h2", 1000, ("c2",)),
    )
    return Job(
        "a",
        computes,
        flows,
        (EchelonFlow("H", ("f1", "f2", "f3"), (Fraction(0), Fraction(1), Fraction(1))),),
    )


def test_a_flow_is_promoted_as_its_laxity_halves(star: Callable[..., Fabric]) -> None:
    """The allowance is half of 4 s. Without any laxity left, a flow is in the highest queue."""
    plan = make_policy("mfs").plan([staggered()], star(2))
    thresholds = (*(2 - Fraction(2, 2**k) for k in range(1, 5)), Fraction(2))
    # The third flow can start 1 s later than the second and still finish when it does alone.
    assert [flow.ranking for flow in plan.flows] == [
        Deadline("H", Fraction(offset), thresholds, 1, 6) for offset in (0, 1, 2)
    ]


def test_flows_without_deadline_are_best_effort(star: Callable[..., Fabric]) -> None:
    plan = make_policy("mfs").plan([replace(staggered(), echelonflows=())], star(2))
    assert {flow.ranking for flow in plan.flows} == {Fixed(0)}


def test_the_job_with_the_least_laxity_goes_first(star: Callable[..., Fabric]) -> None:
    """A short job that arrives while a long one sends has less to spare, and passes it."""

    def job(name: str, host: str, size_bytes: int, start_s: int) -> Job:
        computes = (ComputeUnit("c", host, Fraction(1)),)
        flows = (Flow("f", host, "h2", size_bytes, ("c",)),)
        return Job(
            name, computes, flows, (EchelonFlow("H", ("f",), (Fraction(0),)),), Fraction(start_s)
        )

    jobs = [job("long", "h1", 40_000, 0), job("short", "h3", 1_000, 3)]
    slowdowns = {}
    for policy in ("mfs", "fair"):
        result = simulate(jobs, star(3), make_policy(policy), 1, until="exactly")
        slowdowns[policy] = [
            float(result.iteration_times_s(name)[0]) / alone
            for name, alone in (("long", 41.0), ("short", 2.0))
        ]
    assert slowdowns["fair"][1] == pytest.approx(1.5)
    # They share the lowest queue until half of the short job's laxity has gone, half a second; then
    # it goes first, and the long one keeps the 1 % that every queue is guaranteed.
    assert slowdowns["mfs"][1] == pytest.approx((1 + 0.5 + 0.75 / 0.99) / 2)
    assert slowdowns["mfs"][0] == pytest.approx(42 / 41)
