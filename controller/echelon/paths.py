"""The path of every flow of every job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from echelon.allocation import Link
from echelon.fabric.model import Fabric
from echelon.fabric.routing import NoRouteError, Path, Router, Routes
from echelon.jobs.graph import Job
from echelon.kept import Kept
from echelon.plan import PlanError

Paths = Mapping[str, Path]
"""By flow of one job: its path, both hosts included. The flows of one connection take the same."""


def links_of(path: Sequence[str]) -> tuple[Link, ...]:
    """The directed links of a path of nodes."""
    return tuple(pairwise(path))


class FlowPaths:
    """The paths of all flows of all jobs, from plan to plan: a flow moves only if it must."""

    def __init__(self) -> None:
        self._router = Router()
        self._paths = Kept(_paths)

    def remember(self, routes: Mapping[str, Routes]) -> None:
        """The paths that connections had before, by job; see `Router.remember`."""
        self._router.remember(routes)

    def update(self, jobs: Sequence[Job], fabric: Fabric) -> dict[str, Paths]:
        """By job, in their order; the same object as at the last call where nothing changed.

        Raises `PlanError` where two jobs have one name or a worker cannot be reached; then nothing has changed.
        """
        seen = set()
        for job in jobs:
            if job.name in seen:
                raise PlanError(f"job {job.name}: two jobs have this name; give each its own", job.name)
            seen.add(job.name)
        try:
            routes = self._router.route(fabric, jobs)
        except NoRouteError as error:
            raise PlanError(str(error), error.job, code=error.code) from None
        return self._paths.update({job.name: (job, routes[job.name]) for job in jobs})


def _paths(job: Job, routes: Routes) -> Paths:
    return {flow.name: routes[flow.src, flow.dst] for flow in job.flows}
