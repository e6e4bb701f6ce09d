"""Shortest paths, and which of several equally short ones a connection takes.

Length is the number of hops. Hosts have one link, so that no path leads through one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from echelon.fabric.model import Fabric
from echelon.jobs.analysis import connections
from echelon.jobs.graph import Job

if TYPE_CHECKING:
    import networkx

Path = tuple[str, ...]
"""Nodes from source to destination, both included."""


class NoRouteError(ValueError):
    """A node is unknown, or there is no way between two of them."""


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
    """`next_hops` of every switch to every host, by (switch, host): one graph, one search a host.

    Raises `NoRouteError` if some host cannot be reached.
    """
    import networkx

    graph = _graph(fabric)
    out: dict[tuple[str, str], tuple[str, ...]] = {}
    for host in fabric.hosts:
        hops_left = networkx.single_source_shortest_path_length(graph, host)
        for switch in fabric.switches:
            if switch not in hops_left:
                raise NoRouteError(f"there is no path from '{switch}' to '{host}'")
            nearer = hops_left[switch] - 1
            out[switch, host] = tuple(sorted(other for other in graph[switch] if hops_left[other] == nearer))
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
    graph = _graph(fabric)
    routes: dict[tuple[str, str, str], Path] = {}
    turn: Counter[Path] = Counter()
    for job in jobs:
        for src, dst in connections(job):
            paths = _equal_cost_paths(graph, src, dst)
            edges = (paths[0][1], paths[0][-2])
            routes[job.name, src, dst] = paths[turn[edges] % len(paths)]
            turn[edges] += 1
    return routes


def _graph(fabric: Fabric) -> networkx.Graph[str]:
    import networkx  # on first use: it takes longer to import than most commands take to run

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from((*fabric.hosts, *fabric.switches))
    graph.add_edges_from((cable.a.node, cable.b.node) for cable in fabric.cables)
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
