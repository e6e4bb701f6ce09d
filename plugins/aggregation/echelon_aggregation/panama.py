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
from echelon.model.jobs.graph import Ends, Job
from echelon.planning.allocation import Link
from echelon.planning.paths import links_of

_Routed = tuple[Fabric | None, tuple[Job, ...], dict[str, Routes]]
"""A fabric, its jobs, and their routes by name."""


class TreesByLoad:
    """A chooser of trees (an `echelon.model.fabric.routing.PathChooser`): the one whose busiest
    link is busy for the shortest time with an iteration of each job before. Trees stay where they
    are; others choose the paths of connections.

    With `always_first`, all jobs have the first tree: what load balancing is compared with.
    """

    def __init__(self, *, always_first: bool = False) -> None:
        self.connections: PathChooser = Router()
        """The chooser of the paths of connections."""
        self._always_first = always_first
        self._last: _Routed = (None, (), {})
        self._last_by: PathChooser = self.connections

    @property
    def trees(self) -> dict[str, Routes]:
        """Return the trees of the last jobs."""
        _, _, last_routes = self._last
        by_job: dict[str, Routes] = {}
        for name, routes in last_routes.items():
            trees = {ends: path for ends, path in routes.items() if len(ends) > 2}
            if trees:
                by_job[name] = trees
        return by_job

    def remember(self, trees: Mapping[str, Routes]) -> None:
        """Keep these trees for jobs that are still to come."""
        self._last = (None, (), dict(trees))

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths by job. Raises `NoRouteError`."""
        present = tuple(jobs)
        last_fabric, last_jobs, last_routes = self._last
        has_changed = last_fabric is not fabric or last_jobs != present
        if not has_changed and self._last_by is self.connections:
            return last_routes

        routes = self.connections.route(fabric, present)
        routed = {name: dict(paths) for name, paths in routes.items()}
        load = _Load(fabric)
        trees: list[tuple[str, Ends, int]] = []
        for job in present:
            paths_of_job = routed[job.name]
            for ends, flows in connections(job).items():
                size_bytes = sum(flow.size_bytes for flow in flows)
                if len(ends) == 2:
                    load.add(paths_of_job[ends], size_bytes)
                else:
                    trees.append((job.name, ends, size_bytes))

        for name, ends, size_bytes in trees:
            paths = _paths(fabric, name, ends)
            last_paths = last_routes.get(name, {})
            before = last_paths.get(ends)
            if before in paths:
                # A job that trains keeps its tree.
                chosen = before
            elif self._always_first:
                chosen = paths[0]
            else:
                chosen = min(paths, key=load.busiest_s)
            routed[name][ends] = chosen
            load.add(chosen, size_bytes)
        by_job: dict[str, Routes] = dict(routed)
        self._last = (fabric, present, by_job)
        self._last_by = self.connections
        return by_job


def _paths(
    fabric: Fabric,
    job: str,
    ends: Ends,
) -> list[Path]:
    """Return the shortest trees among some hosts of a job. Raise `NoRouteError`."""
    try:
        between = fabric.shortest_paths.switches(*ends)
    except NoRouteError as error:
        raise NoRouteError(f"job {job}: {error}", job, code=error.code) from None
    return [(ends[0], *switches, ends[-1]) for switches in between]


class _Load:
    """The time for which each link is busy with an iteration of each job."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._busy_s: defaultdict[Link, float] = defaultdict(float)

    def add(self, path: Path, size_bytes: int) -> None:
        capacity_Bps = self._fabric.capacity_Bps  # noqa: N806
        for link in links_of(path):
            self._busy_s[link] += size_bytes / float(capacity_Bps[link])

    def busiest_s(self, path: Path) -> float:
        """Return how long the busiest link is, without those of hosts, which all trees have."""
        hosts = self._fabric.hosts.keys()
        busiest_s = 0.0
        for link in links_of(path):
            if hosts.isdisjoint(link):
                busiest_s = max(busiest_s, self._busy_s[link])
        return busiest_s
