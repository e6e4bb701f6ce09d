"""The demand of jobs on links: what part of each link an iteration uses in its time alone."""

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
    """The bytes of an iteration over a link, as a part of what it carries in `alone_s`."""


def demands(jobs: Sequence[Job], fabric: Fabric) -> dict[str, Demand]:
    """Return the demand of each job, over the paths that the jobs take together.

    Raise `PlanError`.
    """
    paths = FlowPaths().update(jobs, fabric)
    demands = {}
    for job in jobs:
        demands[job.name] = demand(job, fabric, paths[job.name])
    return demands


def demand(
    job: Job,
    fabric: Fabric,
    paths: Paths,
) -> Demand:
    """Return the demand of a job over `paths`. Raise `PlanError`."""
    alone_s = alone_iteration_s(job, fabric)
    sent_bytes: dict[Link, int] = {}
    for flow in job.flows:
        for link in links_of(paths[flow.name]):
            sent_bytes[link] = sent_bytes.get(link, 0) + flow.size_bytes
    use = {}
    for link, sent in sent_bytes.items():
        carried = fabric.capacity_Bps[link] * alone_s
        use[link] = Fraction(sent) / carried
    return Demand(alone_s, use)


def shared_load(demands: Sequence[Demand]) -> Fraction:
    """Return the load of the busiest link that several jobs use.

    It is the sum of their parts, and 0 if there is no such link.
    """
    parts: dict[Link, list[Fraction]] = {}
    for job_demand in demands:
        for link, part in job_demand.use.items():
            parts.setdefault(link, []).append(part)
    loads = []
    for link_parts in parts.values():
        if len(link_parts) > 1:
            loads.append(sum(link_parts, Fraction(0)))
    return max(loads, default=Fraction(0))
