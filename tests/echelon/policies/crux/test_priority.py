"""Crux's intensity and priority factor (SIGCOMM '24, section 4.2), on the paper's two examples."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.fluid import simulate
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths
from echelon.planning.policies import make_policy
from echelon.planning.policies.crux.intensity import load_of
from echelon.planning.policies.crux.priority import Loop, factor, transmitting

# Example 1: equal intensity (10 / 2 and 5 / 1), communication after computing.
LARGE, SMALL = Loop(2.0, 2.0, 2.0), Loop(1.0, 1.0, 1.0)


def utilisation(first: Loop, second: Loop) -> float:
    """Return the mean utilisation of the GPUs of two jobs with as many GPUs each."""
    shares = transmitting(first, second)
    computing = [
        share / loop.communicate_s * loop.compute_s
        for share, loop in zip(shares, (first, second), strict=True)
    ]
    return sum(computing) / 2


def test_example_1() -> None:
    """37.5 % of the GPUs compute with the long job first, 41.7 % with the short one first: k =
    1.5.
    """
    assert utilisation(LARGE, SMALL) == pytest.approx(0.375)
    assert utilisation(SMALL, LARGE) == pytest.approx(5 / 12)
    assert factor(SMALL, LARGE) == pytest.approx(1.5)


def closed_loop(name: str, host: str, loop: Loop) -> Job:
    """Return a job whose communication overlaps with the second part of computing: the iteration
    ends when both are done.
    """
    before, after = (
        Fraction(loop.communicate_after_s),
        Fraction(loop.compute_s - loop.communicate_after_s),
    )
    computes = (ComputeUnit("c1", host, before), ComputeUnit("c2", host, after, ("c1",)))
    flows = (Flow("f", host, "h3", round(loop.communicate_s * 1000), ("c1",)),)
    return Job(name, computes, flows, (EchelonFlow("H", ("f",), (Fraction(0),)),))


def idle_s(jobs: list[Job], fabric: Fabric, of: str, until_s: int) -> float:
    """Return how long a job's GPUs are idle until then, with jobs in strict order of priority."""
    result = simulate(
        jobs, fabric, make_policy("unfair"), None, until=Fraction(until_s), ideal=True
    )
    busy = 0.0
    for iteration in result.jobs[of].iterations:
        for span in iteration.computes.values():
            busy += float(until_s if span.finish is None else span.finish) - float(span.start)
    return until_s - busy


def test_example_2(star: Callable[..., Fabric]) -> None:
    """Communication begins half way through computing.

    In 13 s the second job's GPUs are idle for 7 s, or for 6 s if it goes first.
    """
    seldom, often = Loop(4.0, 1.0, 2.0), Loop(2.0, 3.0, 1.0)
    one, two = closed_loop("one", "h1", seldom), closed_loop("two", "h2", often)
    assert idle_s([one, two], star(3), "two", 13) == pytest.approx(7)
    assert idle_s([two, one], star(3), "two", 13) == pytest.approx(6)


loops = st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(0, 8)).map(
    lambda drawn: Loop(drawn[0], drawn[1], min(drawn[0], drawn[2]))
)


@settings(max_examples=15)
@given(loops, loops)
def test_transmitting_is_what_the_jobs_do_on_a_link(
    star: Callable[..., Fabric], first: Loop, second: Loop
) -> None:
    """The measurement is made in the fluid engine over a window that is long compared with the
    periods.
    """
    window_s = 600
    jobs = [closed_loop("first", "h1", first), closed_loop("second", "h2", second)]
    result = simulate(
        jobs, star(3), make_policy("unfair"), None, until=Fraction(window_s), ideal=True
    )
    expected = transmitting(first, second)
    for job, loop, share in zip(("first", "second"), (first, second), expected, strict=True):
        measured = len(result.jobs[job].finished) * loop.communicate_s / window_s
        assert float(measured) == pytest.approx(float(share), abs=0.03)


def test_the_load_of_a_job(star: Callable[..., Fabric]) -> None:
    """A transfer of 3 s and one of 1 s leave h1; two GPUs compute for 5 s in total."""
    computes = (ComputeUnit("c1", "h1", Fraction(2)), ComputeUnit("c2", "h2", Fraction(3), ("f1",)))
    flows = (Flow("f1", "h1", "h2", 3000, ("c1",)), Flow("f2", "h1", "h3", 1000, ("c1",)))
    job = Job("a", computes, flows, ())
    fabric = star(3)
    paths, alone = FlowPaths().update([job], fabric)["a"], AloneRuns().update([job], fabric)["a"]
    load = load_of(job, paths, fabric.capacity_Bps, alone)
    assert (load.work, load.communicate_s, load.intensity) == (5, 4, Fraction(5, 4))
    assert load.communicate_after_s == 2
    assert load.busy_s == {("h1", "s1"): 4, ("s1", "h2"): 3, ("s1", "h3"): 1}


def test_a_job_that_cannot_transmit_beside_another() -> None:
    always = Loop(0.0, 1.0, 0.0)
    assert transmitting(always, SMALL) == (1, 0)
    assert transmitting(SMALL, Loop(1.0, 0.0, 1.0)) == (0.5, 0)
