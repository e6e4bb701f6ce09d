"""`hash`: each connection takes the shortest path that a hash says, whatever others have, as ECMP
does (RFC 2992).

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
    """A chooser of paths that depend on nothing but the connection (an
    `echelon.model.fabric.routing.PathChooser`).
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Job, Fabric, Routes]] = {}

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job; the same object as at the last call if nothing in it changed."""
        known = {}
        for job in jobs:
            before = self._known.get(job.name)
            if before is not None and before[0] is job and before[1] is fabric:
                known[job.name] = before
                continue
            try:
                routes = {
                    ends: self.path(fabric, ends, crc32(f"{job.name} {ends}".encode()))
                    for ends in connections(job)
                }
            except NoRouteError as error:
                raise NoRouteError(f"job {job.name}: {error}", job.name, code=error.code) from None
            known[job.name] = (
                job,
                fabric,
                before[2] if before is not None and before[2] == routes else routes,
            )
        self._known = known
        return {name: routes for name, (_, _, routes) in known.items()}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a chooser that goes on from here; it replaces what it knows, and changes
        nothing.
        """
        return altered(self)

    def path(self, fabric: Fabric, ends: Ends, number: int) -> Path:
        """Return the path for a hash."""
        found = fabric.shortest_paths.switches(*ends)
        return (ends[0], *found[number % len(found)], ends[-1])
