"""Shortest paths, and which of several equally short ones a connection takes.

Length is the number of hops. Hosts have one link, so that no path leads through one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from echelon.errors import Code, CodedError
from echelon.fabric.model import Fabric
from echelon.jobs.analysis import connections
from echelon.jobs.graph import Job

if TYPE_CHECKING:
    import networkx

Path = tuple[str, ...]
"""Nodes from source to destination, both included."""


class NoRouteError(CodedError, ValueError):
    """A node is unknown, or there is no way between two of them."""

    code: Code = "no-route"

    def __init__(self, reason: str, job: str | None = None, *, code: Code | None = None) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """Whose connection it is, where it is a job's."""


def equal_cost_paths(fabric: Fabric, src: str, dst: str) -> tuple[Path, ...]:
    """All shortest paths from `src` to `dst`, sorted. Raises `NoRouteError`."""
    return _equal_cost_paths(_graph(fabric), src, dst)


def next_hops(fabric: Fabric, node: str, dst: str) -> tuple[str, ...]:
    """The neighbours of `node` that lie on a shortest path to `dst`, sorted; none if it is `dst`.

    Raises `NoRouteError`.
    """
    import networkx

    graph = _graph(fabric)
    _check_nodes(graph, node, dst)
    # By distance, not from the paths themselves, whose number grows exponentially with the fabric's stages.
    hops_left = networkx.single_source_shortest_path_length(graph, dst)
    if node not in hops_left:
        raise NoRouteError(f"there is no path from '{node}' to '{dst}'")
    return tuple(sorted(other for other in graph[node] if hops_left[other] == hops_left[node] - 1))


def next_hops_of_switches(fabric: Fabric) -> dict[tuple[str, str], tuple[str, ...]]:
    """`next_hops` of every switch to every host, by (switch, host); none where there is no path. One search for all
    hosts of a switch."""
    import networkx

    graph = _graph(fabric)
    towards: dict[str, dict[str, tuple[str, ...]]] = {}
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for host in fabric.hosts:
        for edge in graph[host]:  # one at most
            if edge not in towards:
                hops_left = networkx.single_source_shortest_path_length(graph, edge)
                towards[edge] = {
                    switch: tuple(sorted(o for o in graph[switch] if hops_left[o] == hops_left[switch] - 1))
                    for switch in fabric.switches
                    if switch in hops_left
                }
            out.update(((switch, host), hops or (host,)) for switch, hops in towards[edge].items())
        for switch in fabric.switches:
            out.setdefault((switch, host), ())
    return out


def route(fabric: Fabric, src: str, dst: str, key: int) -> Path:
    """One of the shortest paths; consecutive keys (one per connection) take them in turn. Raises `NoRouteError`."""
    paths = equal_cost_paths(fabric, src, dst)
    return paths[key % len(paths)]


def route_jobs(fabric: Fabric, jobs: Iterable[Job]) -> dict[tuple[str, str, str], Path]:
    """The path of each connection, by (job, source, destination), in the order of jobs and their flows.

    All flows of a connection share its path, or they could overtake each other. Connections between the same two edge
    switches take the paths between these in turn. Raises `NoRouteError`.
    """
    routes = Router().route(fabric, jobs)
    return {(job, src, dst): path for job, of_job in routes.items() for (src, dst), path in of_job.items()}


Routes = Mapping[tuple[str, str], Path]
"""By (source, destination): the path of each connection of a job."""


class Router:
    """Chooses a path for every connection, and stays with it for as long as it is a shortest one.

    A new connection takes the path that the fewest connections between the same two edge switches have. So jobs come
    and go, and links are drained, without any effect on connections that need not move.
    """

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._jobs: dict[str, tuple[Job, Routes]] = {}
        self._users: Counter[Path] = Counter()
        """By path from edge switch to edge switch: how many connections have it."""
        self._remembered: dict[str, Routes] = {}

    def remember(self, routes: Mapping[str, Routes]) -> None:
        """The paths that connections had, by job, before this router was made: one of a job that is still to come is
        kept if it is a shortest one."""
        self._remembered = dict(routes)

    def route(self, fabric: Fabric, jobs: Iterable[Job]) -> dict[str, Routes]:
        """By job; the same object as at the last call if nothing in it changed. Jobs that are not among `jobs` are
        forgotten. No two have one name.

        Raises `NoRouteError`, naming the job; then everything is as if it had not been called.
        """
        moved = fabric is not self._fabric
        shortest = fabric.shortest_paths
        present = {job.name: job for job in jobs}
        wanted: dict[str, Routes] = {}
        """Of the jobs that are looked at: for each connection the path that it may keep, or an empty one."""
        for name, job in present.items():
            known, routes = self._jobs.get(name, (None, {}))
            if known is not job or moved:
                routes = routes or self._remembered.get(name, {})
                try:
                    wanted[name] = {ends: shortest.kept(routes.get(ends), *ends) for ends in connections(job)}
                except NoRouteError as error:
                    raise NoRouteError(f"job {name}: {error}", name) from None
        self._fabric = fabric
        for name in [name for name in self._jobs if name not in present]:
            self._users.subtract(path[1:-1] for path in self._jobs.pop(name)[1].values())
        for name, keeping in wanted.items():
            _, routes = self._jobs.get(name, (None, {}))
            self._users.subtract(path[1:-1] for ends, path in routes.items() if not keeping.get(ends))
            self._users.update(path[1:-1] for ends, path in keeping.items() if path and ends not in routes)
        for name, keeping in wanted.items():
            _, routes = self._jobs.get(name, (None, {}))
            chosen = {ends: path or self._choose(shortest, *ends) for ends, path in keeping.items()}
            self._jobs[name] = (present[name], routes if routes == chosen else chosen)
        return {name: self._jobs[name][1] for name in present}

    def _choose(self, shortest: ShortestPaths, src: str, dst: str) -> Path:
        inner = min(shortest.switches(src, dst), key=lambda path: self._users[path])
        self._users[inner] += 1
        return (src, *inner, dst)


class ShortestPaths:
    """Of one fabric, from edge switch to edge switch; see `Fabric.shortest_paths`."""

    def __init__(self, fabric: Fabric) -> None:
        self.nodes = fabric.hosts.keys() | fabric.switches.keys()
        self._edge = {
            host: switch
            for cable in fabric.usable
            for host, switch in ((cable.a.node, cable.b.node), (cable.b.node, cable.a.node))
            if host in fabric.hosts
        }
        self._graph = _graph(fabric)
        self._graph.remove_nodes_from(fabric.hosts)
        self._hops_left: dict[str, dict[str, int]] = {}
        """By edge switch: from every switch that has a path to it."""
        self._paths: dict[tuple[str, str], tuple[Path, ...]] = {}

    def switches(self, src: str, dst: str) -> tuple[Path, ...]:
        """The switches on each of the shortest paths between two hosts, sorted. Raises `NoRouteError`."""
        for one, other in ((src, dst), (dst, src)):
            if one not in self.nodes:
                raise NoRouteError(f"'{one}' is no node of the fabric")
            if one not in self._edge:
                raise NoRouteError(f"there is no path from '{one}' to '{other}': its link is drained or missing")
        edges = (self._edge[src], self._edge[dst])
        if edges not in self._paths:
            self._paths[edges] = tuple(self._find(*edges))
        if not self._paths[edges]:
            raise NoRouteError(f"there is no path from '{src}' to '{dst}'")
        return self._paths[edges]

    def _find(self, first: str, last: str) -> Iterator[Path]:
        """In lexicographic order."""
        import networkx

        if last not in self._hops_left:
            self._hops_left[last] = dict(networkx.single_source_shortest_path_length(self._graph, last))
        hops_left = self._hops_left[last]
        if first not in hops_left:
            return
        paths: list[Path] = [(first,)]
        while paths:
            path = paths.pop()
            here = path[-1]
            if here == last:
                yield path
            nearer = [other for other in self._graph[here] if hops_left[other] == hops_left[here] - 1]
            paths += [(*path, other) for other in sorted(nearer, reverse=True)]

    def kept(self, path: Path | None, src: str, dst: str) -> Path:
        """`path` if it is one of the shortest, else an empty one. Raises `NoRouteError`."""
        paths = self.switches(src, dst)
        return path if path is not None and path[1:-1] in paths else ()


def _graph(fabric: Fabric) -> networkx.Graph[str]:
    import networkx  # on first use: it takes longer to import than most commands take to run

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from((*fabric.hosts, *fabric.switches))
    graph.add_edges_from((cable.a.node, cable.b.node) for cable in fabric.usable)
    return graph


def _equal_cost_paths(graph: networkx.Graph[str], src: str, dst: str) -> tuple[Path, ...]:
    import networkx

    _check_nodes(graph, src, dst)
    try:
        return tuple(sorted(tuple(path) for path in networkx.all_shortest_paths(graph, src, dst)))
    except networkx.NetworkXNoPath:
        raise NoRouteError(f"there is no path from '{src}' to '{dst}'") from None


def _check_nodes(graph: networkx.Graph[str], *nodes: str) -> None:
    for node in nodes:
        if node not in graph:
            raise NoRouteError(f"'{node}' is no node of the fabric")
