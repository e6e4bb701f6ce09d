"""The neighbours of an order in a local search: plans in which one job has another unit.

Under an order of ours, the tardiness of a job is measured in a unit of its own (`JobFacts.unit_s`).
No formula for this unit is best for all mixes of jobs: where a job meets others at an unlucky time,
it gains if its seconds count for more, and elsewhere less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from echelon.planning.policies.echelon.candidates import PlanCandidate

STEP = Fraction(2)
"""The factor by which a unit becomes larger or smaller in a step."""
MOST = Fraction(8)
"""The largest factor of a unit, and the inverse of the smallest: ranks stay within the numbers of a
switch."""
MOST_JOBS = 12
"""The jobs whose units are changed: those with the largest slowdowns and the smallest, in turns.
With more of them, simulations would take longer than all rounds."""


def neighbours(candidate: PlanCandidate, jobs: Iterable[str]) -> Sequence[PlanCandidate]:
    """Return the plans in which one of these jobs has the next larger or smaller unit."""
    units = dict(candidate.units)
    plans = []
    for job in jobs:
        for step in (1 / STEP, STEP):
            factor = units.get(job, Fraction(1)) * step
            if 1 / MOST <= factor <= MOST:
                changed = {**units, job: factor}
                plans.append(replace(candidate, units=_sorted(changed)))
    return plans


def extremes(slowdowns: Mapping[str, float]) -> list[str]:
    """Return the jobs with the largest and the smallest slowdowns, in turns."""
    order = sorted(slowdowns, key=slowdowns.__getitem__)
    jobs: list[str] = []
    while order and len(jobs) < MOST_JOBS:
        jobs.append(order.pop())
        order.reverse()
    return jobs


def _sorted(units: dict[str, Fraction]) -> tuple[tuple[str, Fraction], ...]:
    return tuple(sorted(item for item in units.items() if item[1] != 1))
