"""Shortest paths between hosts, found once for each pair of edge switches.

Length is the number of hops. A host has one link, to its edge switch, so no path leads through a host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from echelon.errors import Code, CodedError

if TYPE_CHECKING:
    import networkx

Path = tuple[str, ...]
"""Nodes from source to destination, both included."""


class NoRouteError(CodedError, ValueError):
    """A node is unknown, or no path connects two nodes."""

    code: Code = "no-route"

    def __init__(self, reason: str, job: str | None = None, *, code: Code | None = None) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """The job whose connection has no path, if it is a job's."""


class ShortestPaths:
    """The shortest paths of one fabric, found when they are first needed."""

    def __init__(self, hosts: Collection[str], switches: Collection[str], links: Iterable[tuple[str, str]]) -> None:
        self.nodes = {*hosts, *switches}
        self._hosts, self._switches = hosts, switches
        self._edge: dict[str, str] = {}
        """The edge switch of each host."""
        between = []
        for one, other in links:
            if one in hosts:
                self._edge[one] = other
            elif other in hosts:
                self._edge[other] = one
            else:
                between.append((one, other))
        self._graph = graph_of(switches, between)
        self._hops_left: dict[str, dict[str, int]] = {}
        """The distances to each edge switch, of every switch that has a path to it."""
        self._paths: dict[tuple[str, str], tuple[Path, ...]] = {}

    def switches(self, src: str, dst: str) -> tuple[Path, ...]:
        """Return the switches on each of the shortest paths between two hosts, sorted. Raises `NoRouteError`."""
        for one, other in ((src, dst), (dst, src)):
            if one not in self.nodes:
                raise NoRouteError(f"'{one}' is not a node of the fabric", code="unknown-node")
            if one not in self._edge:
                raise NoRouteError(f"there is no path from '{one}' to '{other}': its link is drained or missing")
        edges = (self._edge[src], self._edge[dst])
        if edges not in self._paths:
            self._paths[edges] = tuple(self._find(*edges))
        if not self._paths[edges]:
            raise NoRouteError(f"there is no path from '{src}' to '{dst}'")
        return self._paths[edges]

    def kept(self, path: Path | None, src: str, dst: str) -> Path:
        """Return `path` if it is one of the shortest, otherwise an empty path. Raises `NoRouteError`."""
        paths = self.switches(src, dst)
        return path if path is not None and path[1:-1] in paths else ()

    def next_hops(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the neighbours of every switch on its shortest paths to every host, by (switch, host).

        Neighbours are sorted; the tuple is empty where there is no path.
        """
        out: dict[tuple[str, str], tuple[str, ...]] = dict.fromkeys(
            ((switch, host) for host in self._hosts for switch in self._switches), ()
        )
        towards: dict[str, dict[str, tuple[str, ...]]] = {}
        for host, edge in self._edge.items():
            if edge not in towards:
                towards[edge] = {switch: self._nearer(switch, edge) for switch in self._distances(edge)}
            out.update(((switch, host), hops or (host,)) for switch, hops in towards[edge].items())
        return out

    def _find(self, first: str, last: str) -> Iterator[Path]:
        """Yield the paths between two switches in lexicographic order."""
        if first not in self._distances(last):
            return
        paths: list[Path] = [(first,)]
        while paths:
            path = paths.pop()
            if path[-1] == last:
                yield path
            paths += [(*path, other) for other in reversed(self._nearer(path[-1], last))]

    def _nearer(self, switch: str, last: str) -> tuple[str, ...]:
        hops_left = self._distances(last)
        return tuple(sorted(other for other in self._graph[switch] if hops_left[other] == hops_left[switch] - 1))

    def _distances(self, last: str) -> dict[str, int]:
        import networkx

        if last not in self._hops_left:
            self._hops_left[last] = dict(networkx.single_source_shortest_path_length(self._graph, last))
        return self._hops_left[last]


def graph_of(nodes: Iterable[str], links: Iterable[tuple[str, str]]) -> networkx.Graph[str]:
    """Return a graph of these nodes and links."""
    import networkx  # on first use, because it takes longer to import than most commands take to run

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(links)
    return graph
