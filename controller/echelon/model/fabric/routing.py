"""The choice of a path for a connection: by default one among several equally short ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain, compress, filterfalse, pairwise
from operator import is_not
from typing import TYPE_CHECKING, Any, Protocol, Self

from echelon.model.documents import suggestion
from echelon.model.fabric.model import (
    BREAK,
    Fabric,
    NoRouteError,
    Path,
    ShortestPaths,
    graph_of,
    root_of,
)
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Ends, Job
from echelon.model.kept import altered

if TYPE_CHECKING:
    import networkx

__all__ = [
    "NoRouteError",
    "Path",
    "PathChooser",
    "Router",
    "Routes",
    "equal_cost_paths",
    "next_hops",
    "route",
    "route_jobs",
    "stranded",
]


def equal_cost_paths(fabric: Fabric, src: str, dst: str) -> tuple[Path, ...]:
    """Return all shortest paths from `src` to `dst`, sorted. Raises `NoRouteError`."""
    import networkx

    graph = _graph(fabric, src, dst)
    try:
        return tuple(sorted(tuple(path) for path in networkx.all_shortest_paths(graph, src, dst)))
    except networkx.NetworkXNoPath:
        raise NoRouteError(f"there is no path from '{src}' to '{dst}'") from None


def next_hops(fabric: Fabric, node: str, dst: str) -> tuple[str, ...]:
    """Return the neighbours of `node` on its shortest paths to `dst`, sorted; none if `node` is
    `dst`.

    Raises `NoRouteError`.
    """
    import networkx

    graph = _graph(fabric, node, dst)
    # Distances suffice. The number of paths grows exponentially with the stages of the fabric.
    hops_left = networkx.single_source_shortest_path_length(graph, dst)
    if node not in hops_left:
        raise NoRouteError(f"there is no path from '{node}' to '{dst}'")
    return tuple(sorted(other for other in graph[node] if hops_left[other] == hops_left[node] - 1))


def route(fabric: Fabric, src: str, dst: str, key: int) -> Path:
    """Return one of the shortest paths; consecutive keys take them in turn.

    Raises `NoRouteError`.
    """
    paths = equal_cost_paths(fabric, src, dst)
    return paths[key % len(paths)]


def route_jobs(fabric: Fabric, jobs: Iterable[Job]) -> dict[tuple[str, str, str], Path]:
    """Return the path of each connection, by (job, source, destination), in the order of jobs and
    their flows.

    All flows of a connection share its path; otherwise they could overtake each other. Connections
    between the same two edge switches take the paths between them in turn. Raises `NoRouteError`.
    """
    routes = Router().route(fabric, jobs)
    return {
        (job, src, dst): path
        for job, of_job in routes.items()
        for (src, dst), path in of_job.items()
    }


def stranded(fabric: Fabric, jobs: Iterable[Job]) -> dict[str, NoRouteError]:
    """Return the jobs with a connection that no path carries, and the first reason of each."""
    found: dict[str, NoRouteError] = {}
    carried: set[Ends] = set()
    for job in jobs:
        try:
            for ends in sorted({flow.ends for flow in job.flows} - carried):
                fabric.shortest_paths.switches(*ends)
                carried.add(ends)
        except NoRouteError as error:
            found[job.name] = NoRouteError(f"job {job.name}: {error}", job.name, code=error.code)
    return found


Routes = Mapping[Ends, Path]
"""The path of each connection of a job (`echelon.model.jobs.graph.Flow.ends`)."""


class PathChooser(Protocol):
    """A chooser of the path of every connection, plan after plan. `Router` is the default."""

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job: the same object as at the last call if nothing in it changed.

        Raises `NoRouteError`, naming the job; then everything is as if it had not been called.
        """


def chooser(name: str) -> PathChooser:
    """Return a new chooser of that name (`echelon.model.fabric.choices`). Raises `ValueError`,
    saying what there is, or why nothing can choose paths so."""
    found = _choices()
    if name not in found:
        if found:
            old = ""
        else:
            old = (
                "; the installed package is older than its source tree: run pip install"
                " --editable ."
            )
        raise ValueError(f"'{name}' is no choice of paths ({suggestion(name, sorted(found))}){old}")
    made: PathChooser = found[name].load()()
    return made


@cache
def _choices() -> Mapping[str, EntryPoint]:
    """Return what is installed, by name. A search for a plan makes a chooser for each candidate."""
    return {entry.name: entry for entry in entry_points(group="echelon.paths")}


class ChosenByFabric:
    """A chooser that does what the fabric says (`Fabric.paths`)."""

    def __init__(self, remembered: Mapping[str, Routes] | None = None) -> None:
        """Prefer the remembered paths, by job, for jobs that are still to come, where paths are
        kept.
        """
        self._by: dict[str, PathChooser] = {}
        self._remembered = remembered

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job (`PathChooser`)."""
        if fabric.paths not in self._by:
            made = self._by[fabric.paths] = chooser(fabric.paths)
            if self._remembered and isinstance(made, Router):
                made.remember(self._remembered)
            self._remembered = None
        return self._by[fabric.paths].route(fabric, jobs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a chooser that goes on from here."""
        return altered(self, _by=deepcopy(self._by, memo))


class Router:
    """A chooser that keeps a connection's path for as long as it is a shortest one.

    A new connection takes the path that the fewest connections between the same two edge switches
    have, and a new tree has the root that the fewest trees have. Where its hosts have several
    links, it takes those that the fewest connections have in the same direction. So jobs that come
    and go, and links that are drained, have no effect on connections that need not move.
    """

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._several: frozenset[str] = frozenset()
        self._jobs: dict[str, Job] = {}
        self._routes: dict[str, Routes] = {}
        self.users: Counter[Path] = Counter()
        """Number of connections by path between edge switches, and by link of hosts with several;
        of trees by root.
        """
        self._remembered: dict[str, Routes] = {}

    def remember(self, routes: Mapping[str, Routes]) -> None:
        """Prefer these paths, by job, for jobs that are still to come: a connection keeps its path
        if it is a shortest one."""
        self._remembered = dict(routes)

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """Return the paths of all jobs, by job. Names of jobs are unique.

        Paths of a job are the same object as in the last call if none of them changed. Jobs that
        are not among `jobs` are forgotten. Raises `NoRouteError`, which names the job, and then
        leaves the router as it was.
        """
        moved = fabric is not self._fabric
        if moved:
            self._several = frozenset(host for host in fabric.hosts if len(fabric.ports[host]) > 1)
        shortest = fabric.shortest_paths
        present = {job.name: job for job in jobs}
        wanted: dict[str, Routes] = {}
        """Return the path that each connection may keep, or an empty one, for jobs that are new or
        may have to move.
        """
        others = compress(present, map(is_not, present.values(), map(self._jobs.get, present)))
        for name in present if moved else others:
            job, routes = present[name], self._routes.get(name, {})
            pairs = routes if self._jobs.get(name) is job else connections(job)
            routes = routes or self._remembered.get(name, {})
            try:
                wanted[name] = {ends: shortest.kept(routes.get(ends), *ends) for ends in pairs}
            except NoRouteError as error:
                raise NoRouteError(f"job {name}: {error}", name, code=error.code) from None
        for name in [*filterfalse(present.__contains__, self._jobs)]:
            self.users.subtract(
                chain.from_iterable(map(self._counted, self._routes.pop(name).values()))
            )
        self._fabric, self._jobs = fabric, present
        for name, keeping in wanted.items():
            routes = self._routes.get(name, {})
            gone = (path for ends, path in routes.items() if not keeping.get(ends))
            self.users.subtract(chain.from_iterable(map(self._counted, gone)))
            new = (path for ends, path in keeping.items() if path and ends not in routes)
            self.users.update(chain.from_iterable(map(self._counted, new)))
        for name, keeping in wanted.items():
            chosen = {ends: path or self._choose(shortest, ends) for ends, path in keeping.items()}
            if name not in self._routes or self._routes[name] != chosen:
                self._routes[name] = chosen
        return dict(zip(present, map(self._routes.__getitem__, present), strict=True))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a router that goes on from here, with the same jobs, fabric and routes."""
        return altered(self, _routes=dict(self._routes), users=self.users.copy())

    def _choose(self, shortest: ShortestPaths, ends: Ends) -> Path:
        paths = ((ends[0], *inner, ends[-1]) for inner in shortest.switches(*ends))
        path = min(
            paths, key=lambda path: [self.users[used] for used in reversed(self._counted(path))]
        )
        self.users.update(self._counted(path))
        return path

    def _counted(self, path: Path) -> Sequence[Path]:
        """Return what counts as used: the switches of a path, or the root of a tree; and links of
        hosts with several, which count first where a path is chosen."""
        if BREAK in path:
            return ((root_of(path),),)
        several = self._several
        ends = (
            ((path[0], path[1]), (path[-2], path[-1]))
            if several and not several.isdisjoint(path)
            else ()
        )
        return (path[1:-1], *ends)


def _graph(fabric: Fabric, *needed: str) -> networkx.Graph[str]:
    """Return the graph of the links that are not drained.

    Raises `NoRouteError` if it lacks a `needed` node.
    """
    through = {*fabric.switches, *needed}  # no path leads through another host
    links = (link for link in fabric.usable_links if through.issuperset(link))
    graph = graph_of((*fabric.hosts, *fabric.switches), links)
    for node in needed:
        if node not in graph:
            raise NoRouteError(f"'{node}' is not a node of the fabric", code="unknown-node")
    return graph


def narrowest_bps(fabric: Fabric, pairs: Iterable[tuple[str, str]]) -> float | None:
    """Return the rate of the slowest link on a shortest path of each pair of hosts; None if there
    is none.
    """
    try:
        ways = [equal_cost_paths(fabric, src, dst)[0] for src, dst in pairs]
    except NoRouteError:
        return None
    links = (link for way in ways for link in pairwise(way))
    return float(min((fabric.rate_bps[link] for link in links), default=0)) or None
