"""What policies ask of the fabric: the path of every flow and the capacity of every link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from echelon.fabric.model import Fabric
from echelon.fabric.routing import NoRouteError, route_jobs
from echelon.jobs.graph import Job
from echelon.policies import PlanError
from echelon.policies.base import Link

FlowKey = tuple[str, str]
"""(job, flow): names the flow of whichever iteration is running, since an iteration ends before the next begins."""


def links_of(path: Sequence[str]) -> tuple[Link, ...]:
    """The directed links of a path of nodes."""
    return tuple(pairwise(path))


def capacities_Bps(fabric: Fabric) -> dict[Link, Fraction]:  # noqa: N802
    """Bytes per second of each directed link."""
    return {link: Fraction(rate, 8) for link, rate in fabric.rate_bps.items()}


def shortest_paths(jobs: Sequence[Job], fabric: Fabric) -> Mapping[FlowKey, tuple[str, ...]]:
    """The path of every flow of every job, both hosts included; the flows of one connection take the same path.

    Raises `PlanError` where two jobs have one name or a worker cannot be reached.
    """
    names = [job.name for job in jobs]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"job {name}: two jobs have this name; give each its own")
    try:
        paths = route_jobs(fabric, jobs)
    except NoRouteError as error:
        raise PlanError(str(error)) from None
    return {(job.name, flow.name): paths[job.name, flow.src, flow.dst] for job in jobs for flow in job.flows}
