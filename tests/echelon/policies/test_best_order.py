"""The reference for the best of all schedules, beside brute force and beside what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import inf, sqrt
from operator import mul
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.policies import make_policy
from tests.drawing import examples
from tests.echelon.policies.test_choice import pairs
from tests.reference.best_order import (
    Bound,
    TooManyStatesError,
    best_mean_slowdown,
)

UNIT_S = Fraction(1, 100)
UNIT_BYTES = 10_000
"""What links of `pairs` carry in a unit of time."""


def chain(number: int, *parts: tuple[int, int]) -> Job:
    """Return a job that computes and sends in turns, in units of time."""
    computes = []
    flows: list[Flow] = []
    for part, (compute, sent) in enumerate(parts):
        after = (flows[-1].name,) if flows else ()
        unit = ComputeUnit(f"c{part}", f"a{number}", compute * UNIT_S, after)
        ends = f"a{number}", f"b{number}"
        flows.append(Flow(f"f{part}", *ends, sent * UNIT_BYTES, (unit.name,)))
        computes.append(unit)
    return Job(f"job{number}", tuple(computes), tuple(flows), ())


def bound(jobs: Sequence[Job], **options: float) -> Bound:
    return best_mean_slowdown(jobs, UNIT_S, UNIT_BYTES, lambda flow: flow.src[0], **options)  # type: ignore[arg-type]


def test_jobs_that_fit_beside_each_other_lose_nothing() -> None:
    found = bound([chain(0, (5, 5)), chain(1, (5, 5))])
    assert (found.least, found.reached) == (pytest.approx(1), pytest.approx(1))


@pytest.mark.parametrize(("compute", "sent"), [(4, 6), (1, 9), (7, 13)])
def test_equal_jobs_that_ask_for_too_much_share_the_link(compute: int, sent: int) -> None:
    """It is never idle, so that each gets half of it."""
    found = bound([chain(0, (compute, sent)), chain(1, (compute, sent))])
    expected = 2 * sent / (compute + sent)
    assert found.least == pytest.approx(expected, rel=2e-3)
    assert found.least <= found.reached * (1 + 1e-9)


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6))
def test_the_bound_is_what_brute_force_reaches(seed: int) -> None:
    """Unit after unit, the link serves either job or none, over a horizon of 1000 units.

    For weights, that gives the most progress which any of these schedules makes.
    """
    random = Random(seed)
    parts = [(random.randint(1, 4), random.randint(1, 4)) for _ in range(2)]
    jobs = [chain(number, part) for number, part in enumerate(parts)]
    reached = bound(jobs, gap=1e-4)
    horizon = 1000
    for weights in ((1.0, 1.0), [speed**-2 for speed in reached.speeds]):
        gain = most_progress(parts, weights, horizon) / horizon
        # The horizon may cut off an iteration of each job.
        slack = sum(weights) * max(map(sum, parts)) / horizon
        progress = sum(map(mul, weights, reached.speeds))
        assert progress <= gain + slack
        # By Cauchy's inequality, the mean slowdown is no less than this; for the second weights,
        # which are the slope where it is least, it is just this.
        least = sum(map(sqrt, weights)) ** 2 / (2 * gain)
        assert reached.reached >= least * (1 - slack)
    assert reached.least == pytest.approx(least, rel=slack)


def most_progress(
    parts: Sequence[tuple[int, int]], weights: Sequence[float], horizon: int
) -> float:
    """Return the most weighted progress of two jobs, in their iterations' units."""
    lengths = [sum(part) for part in parts]
    values = {(a, b): 0.0 for a in range(lengths[0]) for b in range(lengths[1])}
    for _ in range(horizon):
        better = {}
        for places in values:
            best = -inf
            for serves in (None, 0, 1):
                after = []
                gain = 0.0
                for job, place in enumerate(places):
                    goes = place < parts[job][0] or serves == job
                    gain += weights[job] * goes
                    after.append((place + goes) % lengths[job])
                best = max(best, gain + values[after[0], after[1]])
            better[places] = best
        values = better
    return values[0, 0]


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 10**6))
def test_no_policy_is_better_than_the_bound(seed: int) -> None:
    """Also not by sharing the link, which orders of whole flows never do."""
    random = Random(seed)
    jobs = []
    for number in range(2):
        workers = [f"a{number}", f"b{number}"]
        compute_s = random.randint(2, 8) * UNIT_S
        kind = random.randrange(3)
        if kind == 0:
            graph = all_reduce(workers, compute_s, 2 * random.randint(2, 6) * UNIT_BYTES)
        elif kind == 1:
            sizes = [random.randint(1, 4) * UNIT_BYTES]
            graph = gpipe(workers, 2, [UNIT_S] * 2, sizes, [2 * UNIT_S] * 2)
        else:
            parts = [(random.randint(1, 6), random.randint(1, 6)) for _ in range(2)]
            jobs.append(chain(number, *parts))
            continue
        jobs.append(Job(f"job{number}", *graph))
    jobs = [replace(job, start_s=random.randrange(9) * UNIT_S) for job in jobs]
    found = bound(jobs)
    fabric = pairs(2)
    for job, units in zip(jobs, found.alone, strict=True):
        assert float(alone_iteration_s(job, fabric)) == pytest.approx(float(units * UNIT_S))

    iterations = 100
    end_s = iterations * max(found.alone) * UNIT_S
    for policy in ("fair", "srpt", "fifo"):
        run = simulate(jobs, fabric, make_policy(policy), None, until=end_s)
        total = 0.0
        for job, units in zip(jobs, found.alone, strict=True):
            total += slowdown(run.jobs[job.name], float(end_s), float(units * UNIT_S))
        # A run may end in the middle of what repeats.
        assert total / 2 >= found.least * (1 - 2 / iterations)


def test_jobs_with_steps_of_no_whole_units_are_refused() -> None:
    with pytest.raises(ValueError, match="no whole number"):
        best_mean_slowdown([chain(0, (1, 1))], UNIT_S, 3000, lambda flow: flow.src)


def test_too_many_states_are_refused() -> None:
    with pytest.raises(TooManyStatesError):
        bound([chain(number, (7, 11), (3, 5)) for number in range(3)], most_states=10)
