"""How much longer the iterations of jobs take than alone, in a simulation of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Number
from echelon.planning.execution import JobRecord
from echelon.planning.fluid.simulator import FluidPlanner, simulate

WARM_UP = 1 / 3
"""The part of a run whose iterations do not count."""
ROUNDS = 6
"""Iterations of the slowest job alone for which a prediction runs."""
MOST_FLOWS = 20_000
"""The number of flows, over all iterations, up to which a prediction takes seconds."""
MOST_SHARED = 250_000
"""The same for flows times jobs: the more jobs share links, the more flows each event concerns."""


def slowdown(record: JobRecord[Number], end_s: float, alone_s: float) -> float:
    """Return the mean time of the iterations of a run until `end_s`, divided by `alone_s`; see
    `mean_time_s`.
    """
    spans = [
        (float(of.start), None if of.finish is None else float(of.finish))
        for of in record.iterations
    ]
    return mean_time_s(spans, end_s) / alone_s


def mean_time_s(spans: Sequence[tuple[float, float | None]], end_s: float) -> float:
    """Return the mean time of iterations, given by start and finish (None: unfinished), in a run
    until `end_s`.

    Iterations that start in the first third do not count. The last, unfinished one counts with the
    time that it has taken if that is more than the mean of the others: a job that starves is slow.
    If no iteration counts, the longer of the last two does.
    """
    times_s = [(end_s if finish_s is None else finish_s) - start_s for start_s, finish_s in spans]
    counted_s = [
        time_s
        for (start_s, finish_s), time_s in zip(spans, times_s, strict=True)
        if finish_s is not None and start_s >= WARM_UP * end_s
    ]
    if not counted_s:
        counted_s = [max(times_s[-2:])]
    elif spans[-1][1] is None and times_s[-1] > fmean(counted_s):
        counted_s.append(times_s[-1])
    return fmean(counted_s)


def flows_of_prediction(
    jobs: Sequence[Job], alone_s: Mapping[str, Fraction], rounds: int = ROUNDS
) -> int:
    """Return how many flows the prediction for these jobs runs at most, over all iterations."""
    end_s = _end_s(alone_s, rounds)
    return sum(len(job.flows) * -(-end_s // alone_s[job.name]) for job in jobs)


def predicted_slowdowns(
    jobs: Sequence[Job],
    fabric: Fabric,
    planner: FluidPlanner,
    alone_s: Mapping[str, Fraction],
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """Return the slowdown of each job if all begin together, by name. `alone_s` has the seconds of
    an iteration alone; so many `rounds` of the longest are simulated.

    Raises as `simulate` does.
    """
    end_s = _end_s(alone_s, rounds)
    run = simulate(
        [replace(job, start_s=Fraction(0)) for job in jobs], fabric, planner, None, until=end_s
    )
    return {
        name: slowdown(record, float(end_s), float(alone_s[name]))
        for name, record in run.jobs.items()
    }


def _end_s(alone_s: Mapping[str, Fraction], rounds: int) -> Fraction:
    return rounds * max(alone_s.values(), default=Fraction(0))
