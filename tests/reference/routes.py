"""Next hops one by one, and the paths of all jobs in one mapping: for tests of routes."""

from __future__ import annotations

from collections.abc import Iterable

import networkx

from echelon.model.fabric.model import Fabric, Path, graph_of
from echelon.model.fabric.routing import Router
from echelon.model.jobs.graph import Job


def next_hops(fabric: Fabric, node: str, dst: str) -> tuple[str, ...]:
    """Return the neighbours of `node` on its shortest paths to `dst`, sorted.

    There are none if `node` is `dst`.
    """
    # No path leads through another host.
    through = {*fabric.switches, node, dst}
    links = (link for link in fabric.usable_links if through.issuperset(link))
    graph = graph_of(through, links)
    # Distances suffice. The number of paths grows exponentially with the stages of the fabric.
    hops_left = networkx.single_source_shortest_path_length(graph, dst)
    nearer = hops_left[node] - 1
    return tuple(sorted(neighbour for neighbour in graph[node] if hops_left[neighbour] == nearer))


def route_jobs(fabric: Fabric, jobs: Iterable[Job]) -> dict[tuple[str, ...], Path]:
    """Return the path of each connection by (job, source, destination), in the order of jobs."""
    paths: dict[tuple[str, ...], Path] = {}
    for job, routes in Router().route(fabric, jobs).items():
        for ends, path in routes.items():
            paths[job, *ends] = path
    return paths
