"""The choice of a path for a connection: by default one among several equally short ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain, pairwise
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
from echelon.model.kept import Roster, altered, by_name, replaced, succeed, without

if TYPE_CHECKING:
    import networkx

__all__ = [
    "NoRouteError",
    "Path",
    "PathChooser",
    "Router",
    "Routes",
    "equal_cost_paths",
    "route",
    "stranded",
]


def equal_cost_paths(
    fabric: Fabric,
    src: str,
    dst: str,
) -> tuple[Path, ...]:
    """Return all shortest paths from `src` to `dst`, sorted. Raises `NoRouteError`."""
    import networkx

    graph = _graph(fabric, src, dst)
    try:
        paths = [tuple(path) for path in networkx.all_shortest_paths(graph, src, dst)]
        return tuple(sorted(paths))
    except networkx.NetworkXNoPath:
        raise NoRouteError(f"there is no path from '{src}' to '{dst}'") from None


def route(
    fabric: Fabric,
    src: str,
    dst: str,
    key: int,
) -> Path:
    """Return one of the shortest paths; consecutive keys take them in turn.

    Raises `NoRouteError`.
    """
    paths = equal_cost_paths(fabric, src, dst)
    return paths[key % len(paths)]


def stranded(fabric: Fabric, jobs: Iterable[Job]) -> dict[str, NoRouteError]:
    """Return the jobs with a connection that no path carries, and the first reason of each."""
    reasons: dict[str, NoRouteError] = {}
    carried: set[Ends] = set()
    for job in jobs:
        try:
            connected = {flow.ends for flow in job.flows}
            # Jobs have many connections in common, which are tried once.
            for ends in sorted(connected - carried):
                fabric.shortest_paths.switches(*ends)
                carried.add(ends)
        except NoRouteError as error:
            reasons[job.name] = NoRouteError(f"job {job.name}: {error}", job.name, code=error.code)
    return reasons


def rerouted(
    jobs: Iterable[Job],
    before: Fabric | None,
    after: Fabric,
) -> list[Job]:
    """Return the jobs that have other shortest paths after a change of links; with None, all."""
    if before is None or before.ports is not after.ports:
        return list(jobs)
    former = before.shortest_paths
    shortest = after.shortest_paths

    @cache
    def has_moved(ends: Ends) -> bool:
        try:
            return former.switches(*ends) != shortest.switches(*ends)
        except NoRouteError:
            return True

    return [job for job in jobs if any(map(has_moved, connections(job)))]


Routes = Mapping[Ends, Path]
"""The path of each connection of a job (`echelon.model.jobs.graph.Flow.ends`)."""


class PathChooser(Protocol):
    """A chooser of the path of every connection, plan after plan. `Router` is the default."""

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job: the same object as at the last call if nothing in it changed.

        Raises `NoRouteError`, naming the job; then everything is as if it had not been called.
        """


def chooser(name: str) -> PathChooser:
    """Return a new chooser of that name (`echelon.model.fabric.choices`).

    Raises `ValueError`, saying what there is, or why nothing can choose paths so.
    """
    choices = _choices()
    if name not in choices:
        hint = ""
        if not choices:
            hint = (
                "; the installed package is older than its source tree:"
                " run pip install --editable ."
            )
        suggested = suggestion(name, sorted(choices))
        raise ValueError(f"'{name}' is no choice of paths ({suggested}){hint}")
    entry = choices[name]
    try:
        make = entry.load()
    except Exception as error:  # whatever a foreign module raises when it is imported
        reason = f"'{name}' of {entry.value} cannot be used: {error} (repair or remove it)"
        raise ValueError(reason) from error
    path_chooser: PathChooser = make()
    return path_chooser


@cache
def _choices() -> Mapping[str, EntryPoint]:
    """Return what is installed, by name. A search for a plan makes a chooser for each candidate."""
    return {entry.name: entry for entry in entry_points(group="echelon.paths")}


class ChosenByFabric:
    """A chooser that does what the fabric says (`Fabric.paths`)."""

    def __init__(self, remembered: Mapping[str, Routes] | None = None) -> None:
        """Prefer these paths, by job, for jobs that are still to come, where paths are kept."""
        self._choosers: dict[str, PathChooser] = {}
        self._remembered = remembered

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths by job (`PathChooser`)."""
        if fabric.paths not in self._choosers:
            new = chooser(fabric.paths)
            if self._remembered and isinstance(new, Router):
                new.remember(self._remembered)
            self._choosers[fabric.paths] = new
            self._remembered = None
        return self._choosers[fabric.paths].route(fabric, jobs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a chooser that goes on from here."""
        return altered(self, _choosers=deepcopy(self._choosers, memo))


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
        self._jobs: Mapping[str, Job] = {}
        self._routes: Mapping[str, Routes] = {}
        self.users: Counter[Path] = Counter()
        """The number of connections by path between edge switches, and of trees by root.

        Hosts with several links have that of each link, too.
        """
        self._remembered: dict[str, Routes] = {}

    def remember(self, routes: Mapping[str, Routes]) -> None:
        """Prefer these paths, by job, for jobs that are still to come.

        A connection keeps its path if it is a shortest one.
        """
        self._remembered = dict(routes)

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, Routes]:
        """Return the paths of all jobs, by job. Names of jobs are unique.

        Paths of a job are the same object as in the last call if none of them changed. Jobs that
        are not among `jobs` are forgotten. Raises `NoRouteError`, which names the job, and then
        leaves the router as it was.
        """
        has_moved = fabric is not self._fabric
        if has_moved:
            ports = fabric.ports
            self._several = frozenset(host for host in fabric.hosts if len(ports[host]) > 1)
        shortest = fabric.shortest_paths
        if not isinstance(jobs, Roster):
            jobs = [*jobs]
        present = by_name(jobs)
        changed = replaced(present, self._jobs)
        if has_moved:
            moved = by_name(rerouted(jobs, self._fabric, fabric))
            concerned = {*moved, *changed}
            # In the order of the jobs, in which they choose.
            changed = [*filter(concerned.__contains__, present)]
        kept = {name: self._kept_paths(present[name], shortest) for name in changed}

        for name in without(self._jobs, present):
            routes = self._routes[name]
            self._leave(routes.values())
        self._fabric = fabric
        self._jobs = present
        # All that are kept are counted before the first is chosen, which goes by these counts.
        for name, paths in kept.items():
            routes = self._routes.get(name, {})
            self._leave(path for ends, path in routes.items() if not paths.get(ends))
            self._use(path for ends, path in paths.items() if path and ends not in routes)

        rerouted_jobs: dict[str, Routes] = {}
        for name, paths in kept.items():
            chosen = {}
            for ends, path in paths.items():
                chosen[ends] = path or self._choose(shortest, ends)
            if self._routes.get(name) != chosen:
                rerouted_jobs[name] = chosen
        self._routes = succeed(self._routes, rerouted_jobs, present)
        return self._routes

    def _kept_paths(self, job: Job, shortest: ShortestPaths) -> Routes:
        """Return the path that each connection of a job may keep, or an empty one."""
        routes = self._routes.get(job.name, {})
        is_same = self._jobs.get(job.name) is job
        pairs: Iterable[Ends] = routes if is_same else connections(job)
        routes = routes or self._remembered.get(job.name, {})
        try:
            return {ends: shortest.kept(routes.get(ends), *ends) for ends in pairs}
        except NoRouteError as error:
            raise NoRouteError(f"job {job.name}: {error}", job.name, code=error.code) from None

    def _use(self, paths: Iterable[Path]) -> None:
        counted = map(self._counted, paths)
        self.users.update(chain.from_iterable(counted))

    def _leave(self, paths: Iterable[Path]) -> None:
        counted = map(self._counted, paths)
        self.users.subtract(chain.from_iterable(counted))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a router that goes on from here, with the same jobs, fabric and routes."""
        return altered(
            self,
            users=self.users.copy(),
        )

    def _choose(self, shortest: ShortestPaths, ends: Ends) -> Path:
        def load(path: Path) -> list[int]:
            counted = reversed(self._counted(path))
            return [self.users[used] for used in counted]

        paths = ((ends[0], *inner, ends[-1]) for inner in shortest.switches(*ends))
        path = min(paths, key=load)
        self.users.update(self._counted(path))
        return path

    def _counted(self, path: Path) -> Sequence[Path]:
        """Return what counts as used: the switches of a path, or the root of a tree.

        Links of hosts with several count, too, and first where a path is chosen.
        """
        if BREAK in path:
            return ((root_of(path),),)
        switches = path[1:-1]
        if not self._several or self._several.isdisjoint(path):
            return (switches,)
        first_link = path[:2]
        last_link = path[-2:]
        return (switches, first_link, last_link)


def _graph(fabric: Fabric, *needed: str) -> networkx.Graph[str]:
    """Return the graph of the links that are not drained.

    Raises `NoRouteError` if it lacks a `needed` node.
    """
    # No path leads through another host.
    through = {*fabric.switches, *needed}
    links = filter(through.issuperset, fabric.usable_links)
    nodes = (*fabric.hosts, *fabric.switches)
    graph = graph_of(nodes, links)
    for node in needed:
        if node not in graph:
            raise NoRouteError(f"'{node}' is not a node of the fabric", code="unknown-node")
    return graph


def narrowest_bps(fabric: Fabric, pairs: Iterable[tuple[str, str]]) -> float | None:
    """Return the slowest rate on the paths between pairs of hosts; None if a path is missing."""
    rates_bps = []
    for src, dst in pairs:
        try:
            paths = equal_cost_paths(fabric, src, dst)
        except NoRouteError:
            return None
        for link in pairwise(paths[0]):
            rates_bps.append(fabric.rate_bps[link])
    return float(min(rates_bps, default=0)) or None
