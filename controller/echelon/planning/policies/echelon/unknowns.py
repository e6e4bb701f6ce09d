"""What a search does not know of jobs: their phases, and how far their files are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from echelon.model.jobs.graph import Job
from echelon.planning.fluid.slowdown import phase_s


@dataclass(frozen=True, slots=True)
class Doubt:
    """The uncertainty of a search.

    One draw has sizes and computing as in the job files. If phases are known, too, it counts as
    much as all others together, so that a plan is good if the files are right and does not depend
    on it.
    """

    draws: int = 4
    """The number of other draws."""
    error: float = 0.2
    """The part by which sizes and computing of a job may differ from its file."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Unknowns:
    """One draw of what is not known, by job."""

    weight: float
    starts_s: tuple[float, ...]
    compute_scale: tuple[float, ...]
    size_scale: tuple[float, ...]


def draws_of(
    jobs: Sequence[Job],
    alone_s: Sequence[float],
    doubt: Doubt,
    starts_s: Mapping[str, float],
) -> list[Unknowns]:
    """Return the draws for these jobs: the same for the same `doubt`.

    `starts_s` has the starts that are known, of which `phase_s` makes phases.
    """
    count = len(jobs)
    slowest_s = max(alone_s)
    exact = (1.0,) * count
    draws = []
    for number in range(doubt.draws + 1):
        random = Random(f"{doubt.seed} {number}")
        compute_scale = _scales(random, doubt.error, count)
        size_scale = _scales(random, doubt.error, count)
        phases_s = [random.random() * period_s for period_s in alone_s]
        weight = 1
        if number == 0:
            for place, job in enumerate(jobs):
                start_s = starts_s.get(job.name, phases_s[place])
                phases_s[place] = float(phase_s(start_s, alone_s[place], slowest_s))
            if starts_s:
                weight = max(1, doubt.draws)
            compute_scale = size_scale = exact
        draws.append(Unknowns(weight, tuple(phases_s), compute_scale, size_scale))
    return draws


def _scales(
    random: Random,
    error: float,
    count: int,
) -> tuple[float, ...]:
    return tuple(1 + error * (2 * random.random() - 1) for _ in range(count))
