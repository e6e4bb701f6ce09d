"""`hash`: each connection takes the shortest path that a hash says, as with ECMP (RFC 2992).

The hash is CRC-32 of the job's name and the hosts, which stand for addresses and ports: a job has
ports of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self
from zlib import crc32

from echelon.model.fabric.model import Fabric, NoRouteError, Path
from echelon.model.fabric.routing import Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.model.kept import altered


class Hashed:
    """A chooser of paths that depend on nothing but the connection.

    It is an `echelon.model.fabric.routing.PathChooser`.
    """

    def __init__(self) -> None:
        self._choices: dict[str, tuple[Job, Fabric, Routes]] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job; the same object as at the last call if nothing in it changed."""
        choices = {}
        for job in jobs:
            last_job, last_fabric, last_routes = self._choices.get(job.name, (None, None, None))
            if last_job is job and last_fabric is fabric and last_routes is not None:
                routes = last_routes
            else:
                routes = self._routes(job, fabric)
                if last_routes == routes:
                    routes = last_routes
            choices[job.name] = (job, fabric, routes)
        self._choices = choices
        return {name: routes for name, (_, _, routes) in choices.items()}

    def _routes(self, job: Job, fabric: Fabric) -> Routes:
        routes = {}
        try:
            for ends in connections(job):
                number = crc32(f"{job.name} {ends}".encode())
                routes[ends] = self.path(fabric, ends, number)
        except NoRouteError as error:
            raise NoRouteError(f"job {job.name}: {error}", job.name, code=error.code) from None
        return routes

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a chooser that goes on from here.

        It replaces what it knows, and changes nothing.
        """
        return altered(self)

    def path(
        self,
        fabric: Fabric,
        ends: Ends,
        number: int,
    ) -> Path:
        """Return the path for a hash."""
        paths = fabric.shortest_paths.switches(*ends)
        return (ends[0], *paths[number % len(paths)], ends[-1])
