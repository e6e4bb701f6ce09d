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
With more of them, the work for a search would rarely do for one step."""


def neighbours(candidate: PlanCandidate, jobs: Iterable[str]) -> Sequence[PlanCandidate]:
    """Return the plans in which one of these jobs has the next larger or smaller unit."""
    units = dict(candidate.units)
    plans = []
    for job in jobs:
        unit = units.get(job, Fraction(1))
        for factor in (unit / STEP, unit * STEP):
            if 1 / MOST <= factor <= MOST:
                changed = _sorted({**units, job: factor})
                plan = replace(candidate, units=changed)
                plans.append(plan)
    return plans


def extremes(slowdowns: Mapping[str, float]) -> list[str]:
    """Return the jobs with the largest and the smallest slowdowns, in turns."""
    order = sorted(slowdowns, key=slowdowns.__getitem__)
    jobs: list[str] = []
    while order and len(jobs) < MOST_JOBS:
        job = order.pop()
        jobs.append(job)
        # The next one is from the other end.
        order.reverse()
    return jobs


def _sorted(units: dict[str, Fraction]) -> tuple[tuple[str, Fraction], ...]:
    """Return the units that are not 1, by name: equal candidates are simulated once."""
    changed = []
    for job, factor in sorted(units.items()):
        if factor != 1:
            changed.append((job, factor))
    return tuple(changed)
