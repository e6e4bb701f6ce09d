"""Trees chosen by load.

Source: Gebara, Ghobadi and Costa, In-network Aggregation for Shared Machine Learning Clusters
(PANAMA), MLSys '21, section 4: a job has several aggregation trees, and traffic is balanced over
them. A job file says over how many trees (`collective: in-network-4`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from echelon.model.fabric.model import Fabric, Path
from echelon.model.fabric.routing import NoRouteError, PathChooser, Router, Routes
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Link
from echelon.planning.paths import links_of


class TreesByLoad:
    """A chooser of trees (an `echelon.model.fabric.routing.PathChooser`): the one whose busiest
    link is busy for the shortest time with an iteration of each job before. Trees stay where they
    are; others choose the paths of connections.

    With `one`, all jobs have the first tree: what load balancing is compared with.
    """

    def __init__(self, *, one: bool = False) -> None:
        self.connections: PathChooser = Router()
        """What chooses the paths of connections."""
        self._one = one
        self._last: tuple[Fabric | None, tuple[Job, ...], dict[str, Routes]] = (None, (), {})
        self._last_by: PathChooser = self.connections

    @property
    def trees(self) -> dict[str, Routes]:
        """Return the trees of the last jobs."""
        found = {
            name: {ends: path for ends, path in of.items() if len(ends) > 2}
            for name, of in self._last[2].items()
        }
        return {name: of for name, of in found.items() if of}

    def remember(self, trees: Mapping[str, Routes]) -> None:
        """Keep these trees for jobs that are still to come."""
        self._last = (None, (), dict(trees))

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job. Raises `NoRouteError`."""
        present = tuple(jobs)
        if (
            self._last[0] is fabric
            and self._last[1] == present
            and self._last_by is self.connections
        ):
            return self._last[2]
        routed = {
            name: dict(routes) for name, routes in self.connections.route(fabric, present).items()
        }
        busy_s: defaultdict[Link, float] = defaultdict(float)

        def place(path: Path, size_bytes: int) -> None:
            for link in links_of(path):
                busy_s[link] += size_bytes / float(fabric.capacity_Bps[link])

        of_job = {
            job.name: {
                ends: sum(f.size_bytes for f in flows) for ends, flows in connections(job).items()
            }
            for job in present
        }
        trees = [
            (name, ends, size)
            for name, sizes in of_job.items()
            for ends, size in sizes.items()
            if len(ends) > 2
        ]
        for name, sizes in of_job.items():
            for ends, size in sizes.items():
                if len(ends) == 2:
                    place(routed[name][ends], size)
        for name, ends, size in trees:
            try:
                paths = [
                    (ends[0], *inner, ends[-1]) for inner in fabric.shortest_paths.switches(*ends)
                ]
            except NoRouteError as error:
                raise NoRouteError(f"job {name}: {error}", name, code=error.code) from None
            # The hosts' own links are in every tree.
            before = self._last[2].get(name, {}).get(ends)
            if before in paths:
                chosen = before
            elif self._one:
                chosen = paths[0]
            else:
                chosen = min(
                    paths,
                    key=lambda path: max(
                        (
                            busy_s[link]
                            for link in links_of(path)
                            if not set(link) & fabric.hosts.keys()
                        ),
                        default=0.0,
                    ),
                )
            routed[name][ends] = chosen
            place(chosen, size)
        self._last, self._last_by = (fabric, present, dict(routed)), self.connections
        return self._last[2]
