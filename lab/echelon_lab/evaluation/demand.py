"""The demand of jobs on links: the time of an iteration alone, and the part of each link that it
uses in that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Link
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.paths import FlowPaths, Paths, links_of


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of one job."""

    alone_s: Fraction
    """Seconds of an iteration on the empty fabric."""
    use: Mapping[Link, Fraction]
    """The bytes that an iteration sends over a link, as a part of what the link carries in
    `alone_s`.
    """


def demands(jobs: Sequence[Job], fabric: Fabric) -> dict[str, Demand]:
    """Return the demand of each job, over the paths that the jobs take together.

    Raise `PlanError`.
    """
    paths = FlowPaths().update(jobs, fabric)
    return {job.name: demand(job, fabric, paths[job.name]) for job in jobs}


def demand(job: Job, fabric: Fabric, paths: Paths) -> Demand:
    """Return the demand of a job over `paths`. Raise `PlanError`."""
    alone_s = alone_iteration_s(job, fabric)
    sent_bytes: dict[Link, int] = {}
    for flow in job.flows:
        for link in links_of(paths[flow.name]):
            sent_bytes[link] = sent_bytes.get(link, 0) + flow.size_bytes
    capacity = fabric.capacity_Bps
    return Demand(
        alone_s,
        {link: Fraction(sent) / (capacity[link] * alone_s) for link, sent in sent_bytes.items()},
    )


def shared_load(of_jobs: Sequence[Demand]) -> Fraction:
    """Return the load of the busiest link that several jobs use: the sum of their parts; 0 if there
    is no such link.
    """
    parts: dict[Link, list[Fraction]] = {}
    for of_job in of_jobs:
        for link, part in of_job.use.items():
            parts.setdefault(link, []).append(part)
    return max(
        (sum(of_link, Fraction(0)) for of_link in parts.values() if len(of_link) > 1),
        default=Fraction(0),
    )
