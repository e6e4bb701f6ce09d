"""The slowdown of jobs, in a simulation of a plan: their iteration times over those alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil
from statistics import fmean

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Number
from echelon.planning.execution import JobRecord
from echelon.planning.fluid.simulator import PlanSource, simulate

WARM_UP = 1 / 3
"""The part of a run whose iterations do not count."""
ROUNDS = 6
"""Iterations of the slowest job alone for which a prediction runs."""
MOST_FLOWS = 20_000
"""The number of flows, over all iterations, up to which a prediction takes seconds."""
MOST_SHARED = 250_000
"""The same for flows times jobs: the more jobs share links, the more flows each event concerns."""


def phase_s(
    start_s: Number,
    alone_s: Number,
    slowest_s: Number,
) -> Number:
    """Return when a job begins in a run that is as long as some iterations of the slowest job.

    A job that starts after the first of these is there from the beginning, in its phase: a short
    run would hardly see it, or not at all. `alone_s` are the seconds of its iteration.
    """
    if start_s < slowest_s:
        return start_s
    return start_s % alone_s


def slowdown(
    record: JobRecord[Number],
    end_s: float,
    alone_s: float,
) -> float:
    """Return the mean time of a run's iterations over `alone_s`; see `mean_time_s`."""
    return mean_time_s(spans_s(record), end_s) / alone_s


def spans_s(record: JobRecord[Number]) -> list[tuple[float, float | None]]:
    """Return start and finish of each iteration of a record; None: it has not finished."""
    spans = []
    for iteration in record.iterations:
        finish_s = None
        if iteration.finish is not None:
            finish_s = float(iteration.finish)
        spans.append((float(iteration.start), finish_s))
    return spans


def mean_time_s(spans: Sequence[tuple[float, float | None]], end_s: float) -> float:
    """Return the mean time of iterations (start, finish or None) in a run until `end_s`.

    Iterations that start in the first third do not count. The last, unfinished one counts with the
    time that it has taken if that is more than the mean of the others: a job that starves is slow.
    If no iteration counts, the longer of the last two does.
    """
    times_s = []
    counted_s = []
    for start_s, finish_s in spans:
        if finish_s is None:
            times_s.append(end_s - start_s)
            continue
        times_s.append(finish_s - start_s)
        if start_s >= WARM_UP * end_s:
            counted_s.append(finish_s - start_s)

    if not counted_s:
        return max(times_s[-2:])
    last_is_unfinished = spans[-1][1] is None
    if last_is_unfinished and times_s[-1] > fmean(counted_s):
        counted_s.append(times_s[-1])
    return fmean(counted_s)


def flows_of_prediction(
    jobs: Sequence[Job],
    alone_s: Mapping[str, Fraction],
    rounds: int = ROUNDS,
) -> int:
    """Return how many flows the prediction for these jobs runs at most, over all iterations."""
    end_s = _end_s(alone_s, rounds)
    count = 0
    for job in jobs:
        iterations = ceil(end_s / alone_s[job.name])
        count += len(job.flows) * iterations
    return count


def predicted_slowdowns(
    jobs: Sequence[Job],
    fabric: Fabric,
    policy: PlanSource,
    alone_s: Mapping[str, Fraction],
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """Return the slowdown of each job if all begin together, by name.

    `alone_s` has the seconds of an iteration alone; so many `rounds` of the longest are simulated.

    Raises as `simulate` does.
    """
    end_s = _end_s(alone_s, rounds)
    together = [replace(job, start_s=Fraction(0)) for job in jobs]
    run = simulate(together, fabric, policy, None, until=end_s)
    slowdowns = {}
    for name, record in run.jobs.items():
        slowdowns[name] = slowdown(record, float(end_s), float(alone_s[name]))
    return slowdowns


def _end_s(alone_s: Mapping[str, Fraction], rounds: int) -> Fraction:
    return rounds * max(alone_s.values(), default=Fraction(0))
