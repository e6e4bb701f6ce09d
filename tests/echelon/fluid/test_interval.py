"""The intervals of mean slowdowns, against processes whose long-run mean is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import exp
from random import Random
from statistics import stdev

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.fluid.interval import (
    LEAST_ITERATIONS,
    RESOLUTION,
    MeanInterval,
    Precision,
    interval_of_draws,
    mean_slowdown_interval,
)
from echelon.planning.fluid.slowdown import mean_time_s
from echelon.planning.policies import make_policy

RUNS = 400
Spans = list[tuple[float, float | None]]


def times_s(random: Random, correlation: float) -> Iterator[float]:
    """Yield positive times around 1, whose logarithms are an AR(1) process."""
    noise = 0.1 * (1 - correlation**2) ** 0.5
    deviation = random.gauss(0, 0.1)
    while True:
        # The mean of the exponential is exp(sigma^2 / 2).
        yield exp(deviation - 0.005)
        deviation = correlation * deviation + random.gauss(0, noise)


def run_until(times: Iterator[float], end_s: float) -> Spans:
    spans: Spans = []
    start_s = 0.0
    while start_s < end_s:
        finish_s = start_s + next(times)
        spans.append((start_s, finish_s if finish_s <= end_s else None))
        start_s = finish_s
    return spans


@pytest.mark.parametrize(
    ("correlation", "iterations"),
    [(0.0, 20), (0.0, 30), (0.3, 20), (0.3, 30), (0.5, 20), (0.5, 30), (0.5, 100)],
)
def test_the_known_mean_is_within_in_90_to_99_of_100_runs(
    correlation: float,
    iterations: int,
) -> None:
    covered = 0
    for seed in range(RUNS):
        random = Random(f"{seed} {correlation}")
        spans = {job: run_until(times_s(random, correlation), iterations) for job in "ab"}
        interval = mean_slowdown_interval(spans, float(iterations), {"a": 1.0, "b": 1.0})
        assert interval.half_width is not None
        covered += abs(interval.mean - 1) <= interval.half_width
    assert 0.9 <= covered / RUNS <= 0.99


def test_jobs_that_slow_each_other_down_count_together() -> None:
    """Two jobs with the same times have the interval of one, two that alternate a narrow one."""
    times = [1.0, 1.2, 0.9, 1.1, 1.4, 0.8] * 10
    spans = run_until(iter(times), 50.0)
    single = mean_slowdown_interval({"a": spans}, 50.0, {"a": 1.0})
    double = mean_slowdown_interval({"a": spans, "b": spans}, 50.0, {"a": 1.0, "b": 1.0})
    assert double.mean == pytest.approx(single.mean)
    assert double.half_width == pytest.approx(single.half_width)

    long = [1.0] * 25 + [1.5] * 100
    short = [1.5] * 17 + [1.0] * 100
    opposed = {"a": run_until(iter(long), 50.0), "b": run_until(iter(short), 50.0)}
    ones = {"a": 1.0, "b": 1.0}
    together = mean_slowdown_interval(opposed, 50.0, ones).half_width
    apart = mean_slowdown_interval({"a": opposed["a"]}, 50.0, ones).half_width
    assert together is not None
    assert apart is not None
    assert together < apart / 2


def test_the_mean_is_that_of_the_slowdown() -> None:
    spans = run_until(times_s(Random(1), 0.3), 30.0)
    interval = mean_slowdown_interval({"a": spans}, 30.0, {"a": 0.5})
    assert interval.mean == mean_time_s(spans, 30.0) / 0.5


def test_a_run_with_too_few_iterations_has_no_interval() -> None:
    few = LEAST_ITERATIONS * 1.5 - 0.1
    spans = {"a": run_until(iter([1.0] * 30), few), "fast": run_until(iter([0.1] * 300), few)}
    alone_s = {"a": 1.0, "fast": 0.1}
    assert mean_slowdown_interval(spans, few, alone_s).half_width is None
    assert mean_slowdown_interval({"fast": spans["fast"]}, few, alone_s).half_width is not None


def test_a_loop_that_repeats_itself_has_the_least_half_width() -> None:
    interval = mean_slowdown_interval({"a": run_until(iter([1.0] * 99), 30.0)}, 30.0, {"a": 0.8})
    assert interval == MeanInterval(1.25, pytest.approx(1.25 * RESOLUTION))
    assert interval.is_precise


def test_a_job_that_starves_makes_the_interval_wide() -> None:
    spans: Spans = [(float(second), float(second + 1)) for second in range(25)]
    spans.append((25.0, None))
    interval = mean_slowdown_interval({"a": spans}, 40.0, {"a": 1.0})
    assert interval.half_width is not None
    assert interval.half_width > 0.3 * interval.mean


def test_draws_add_as_squares_or_by_their_own_spread() -> None:
    equal = interval_of_draws([MeanInterval(2.0, 0.3), MeanInterval(2.0, 0.4)])
    assert equal == MeanInterval(2.0, pytest.approx(0.25))
    means = [1.0, 2.0, 3.0]
    apart = interval_of_draws([MeanInterval(mean, 0.01) for mean in means])
    assert apart.half_width == pytest.approx(4.303 * stdev(means) / 3**0.5)
    assert interval_of_draws([MeanInterval(1.0, None)]) == MeanInterval(1.0, None)
    assert interval_of_draws([MeanInterval(1.0, None), MeanInterval(2.0, 0.1)]).half_width is None


def test_a_run_is_precise_when_two_looks_agree() -> None:
    precision = Precision({"a": Fraction(1)}, 20)
    steady = iter([1.0] * 100)
    assert not precision.is_due(19)
    assert precision.is_due(20)
    assert not precision.reached({"a": run_until(steady, 20.0)})
    assert not precision.is_due(29)
    assert precision.is_due(30)
    assert precision.reached({"a": run_until(iter([1.0] * 100), 30.0)})

    moving = Precision({"a": Fraction(1)}, 20)
    moving.reached({"a": run_until(iter([1.0] * 100), 20.0)})
    assert not moving.reached({"a": run_until(iter([1.02] * 100), 30.0)})


@pytest.mark.parametrize("ideal", [False, True])
def test_a_simulation_ends_when_it_is_precise(
    star: Callable[..., Fabric], bulk: Callable[..., Job], ideal: bool
) -> None:
    """Plans may run in C, ideal rates run in Python."""
    fabric = star(2)
    jobs = [bulk("short", Fraction(1, 2), 500_000), bulk("long", Fraction(2), 1_000_000)]
    alone_s = {job.name: alone_iteration_s(job, fabric) for job in jobs}
    policy = make_policy("fair")

    def run(least: int) -> int:
        precision = Precision(alone_s, least)
        result = simulate(jobs, fabric, policy, 3000, ideal=ideal, stopping=precision)
        return len(result.jobs["long"].finished)

    assert 30 <= run(20) < 3000
    # Of two looks in a row, the second would be too late.
    assert run(2500) == 3000
