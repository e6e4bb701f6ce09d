"""The fabric: hosts, switches, links and their capacities, port numbers and addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from echelon.model.errors import Code, CodedError

if TYPE_CHECKING:
    import networkx

Path = tuple[str, ...]
"""Nodes from source to destination, both included. Of a flow among several hosts
(`echelon.model.jobs.graph.Flow.among`), branches of a tree with `BREAK` between them: from each
sender up to the root or an earlier branch, then down to each receiver from the root or an earlier
branch."""
BREAK = ""
"""No link leads over it."""
NodePair = tuple[str, str]
"""The ends of a link, or a way from the first to the second."""


def root_of(path: Path) -> str:
    """Return the root of a tree: where the first branch ends."""
    return path[path.index(BREAK) - 1]


class NoRouteError(CodedError, ValueError):
    """A node is unknown, or no path connects two nodes.

    Length is the number of hops. No path leads through a host.
    """

    code: Code = "no-route"

    def __init__(
        self,
        reason: str,
        job: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """The job whose connection has no path, if it is a job's."""


class ShortestPaths:
    """The shortest paths of one fabric, found when they are first needed.

    `otherwise` has the paths of what these links do not connect.
    """

    def __init__(
        self,
        hosts: Collection[str],
        switches: Collection[str],
        links: Iterable[NodePair],
        otherwise: ShortestPaths | None = None,
    ) -> None:
        self.nodes = {*hosts, *switches}
        self._otherwise = otherwise
        self._hosts = hosts
        self._switches = switches
        self._edges: dict[str, tuple[str, ...]] = {}
        """The edge switches of each host, sorted."""
        between = []
        for a, b in links:
            if a in hosts:
                self._add_edge(a, b)
            elif b in hosts:
                self._add_edge(b, a)
            else:
                between.append((a, b))
        self._graph = graph_of(switches, between)
        self._hops_left: dict[str, dict[str, int]] = {}
        """The distances to each edge switch, of every switch that has a path to it."""
        self._paths: dict[tuple[Path, Path], tuple[Path, ...]] = {}
        self._tree_paths: dict[Sequence[str], tuple[Path, ...]] = {}

    def _add_edge(self, host: str, edge: str) -> None:
        before = self._edges.get(host, ())
        edges = sorted((*before, edge))
        self._edges[host] = tuple(edges)

    def switches(self, *ends: str) -> tuple[Path, ...]:
        """Return what is between the ends of each of the shortest paths between two hosts, sorted.

        For several hosts, return it of each of the trees among them. Raises `NoRouteError`.
        """
        try:
            if len(ends) > 2:
                return self._trees(ends)
            return self._connected(*ends)
        except NoRouteError:
            if self._otherwise is None:
                raise
            return self._otherwise.switches(*ends)

    def _connected(self, src: str, dst: str) -> tuple[Path, ...]:
        for host, peer in ((src, dst), (dst, src)):
            if host not in self.nodes:
                raise NoRouteError(f"'{host}' is not a node of the fabric", code="unknown-node")
            if host not in self._edges:
                reason = "its link is drained or missing"
                raise NoRouteError(f"there is no path from '{host}' to '{peer}': {reason}")
        edges = (self._edges[src], self._edges[dst])
        if edges not in self._paths:
            paths: list[Path] = []
            for first, last in product(*edges):
                paths += self._find(first, last)
            length = min(map(len, paths), default=0)
            shortest = [path for path in paths if len(path) == length]
            self._paths[edges] = tuple(sorted(shortest))
        if not self._paths[edges]:
            raise NoRouteError(f"there is no path from '{src}' to '{dst}'")
        return self._paths[edges]

    def _trees(self, ends: Sequence[str]) -> tuple[Path, ...]:
        """Return the trees of shortest paths to the best roots.

        These are the switches that are as near as any to the farthest of the hosts.
        """
        if ends not in self._tree_paths:
            for host in ends:
                self._connected(ends[0], host)
                if len(self._edges[host]) > 1:
                    raise NoRouteError(
                        f"'{host}' has several links, and trees end at hosts with one (use a ring)"
                    )
            # Each host has one edge switch here.
            edges = {self._edges[host][0] for host in ends}
            reach = {}
            for root in self._distances(min(edges)):
                hops = [self._distances(edge)[root] for edge in edges]
                reach[root] = max(hops)
            least = min(reach.values())
            paths = []
            for root in sorted(reach):
                if reach[root] == least:
                    tree = self._tree(root, ends)
                    paths.append(tree[1:-1])
            self._tree_paths[ends] = tuple(paths)
        return self._tree_paths[ends]

    def _tree(self, root: str, ends: Sequence[str]) -> Path:
        def way(host: str) -> Path:
            """Return the way up to the root; ways that meet go on together."""
            path = [host, *self._edges[host]]
            while path[-1] != root:
                path.append(self._nearer(path[-1], root)[0])
            return tuple(path)

        # All hosts send where the first is also the last (`Flow.among`), otherwise the first does.
        senders = ends[:1]
        if ends[0] == ends[-1]:
            senders = ends[:-1]
        up = []
        for host in dict.fromkeys(senders):
            up.append(way(host))
        down = []
        for host in ends[1:]:
            down.append(way(host)[::-1])

        branches = [*_joined(up, at_end=True), *_joined(down, at_end=False)]
        tree = branches[0]
        for branch in branches[1:]:
            tree = (*tree, BREAK, *branch)
        return tree

    def kept(self, path: Path | None, *ends: str) -> Path:
        """Return `path` if it is one of the shortest, otherwise an empty path.

        Raises `NoRouteError`.
        """
        paths = self.switches(*ends)
        if path is not None and path[1:-1] in paths:
            return path
        return ()

    @cached_property
    def edges(self) -> Sequence[str]:
        """Return the switches that have hosts, sorted."""
        return sorted({edge for edges in self._edges.values() for edge in edges})

    def between(self, first: str, last: str) -> tuple[Path, ...]:
        """Return the shortest paths between two switches, sorted; empty if there are none."""
        pair = (first,), (last,)
        if pair not in self._paths:
            self._paths[pair] = tuple(self._find(first, last))
        return self._paths[pair]

    def next_hops(self) -> dict[NodePair, tuple[str, ...]]:
        """Return the neighbours of switches on their shortest paths to hosts, by (switch, host).

        Neighbours are sorted; the tuple is empty where there is no path.
        """
        next_hops: dict[NodePair, tuple[str, ...]] = {}
        for host in self._hosts:
            for switch in self._switches:
                next_hops[switch, host] = ()
        # Hosts with the same edge switches differ in the last hop only.
        towards: dict[tuple[str, ...], Mapping[str, tuple[str, ...]]] = {}
        for host, edges in self._edges.items():
            if edges not in towards:
                towards[edges] = self._towards(edges)
            for switch, neighbours in towards[edges].items():
                next_hops[switch, host] = neighbours or (host,)
        if self._otherwise is None:
            return next_hops
        # Packets come nearer by each such hop, until they are at a switch with a better path, if
        # there is any.
        otherwise = self._otherwise.next_hops()
        return {place: next_hops[place] or hops for place, hops in otherwise.items()}

    def _towards(self, edges: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return, by switch, the neighbours that are nearer to the nearest of some switches."""
        hops_left: dict[str, int] = {}
        for edge in edges:
            for switch, hops in self._distances(edge).items():
                before = hops_left.get(switch, hops)
                hops_left[switch] = min(hops, before)
        nearer = {}
        for switch in hops_left:
            nearer[switch] = self._closer(switch, hops_left)
        return nearer

    def _find(self, first: str, last: str) -> Iterator[Path]:
        """Yield the paths between two switches in lexicographic order."""
        if first not in self._distances(last):
            return
        paths: list[Path] = [(first,)]
        while paths:
            path = paths.pop()
            if path[-1] == last:
                yield path
            nearer = self._nearer(path[-1], last)
            paths += [(*path, switch) for switch in reversed(nearer)]

    def _nearer(self, switch: str, last: str) -> tuple[str, ...]:
        return self._closer(switch, self._distances(last))

    def _closer(self, switch: str, hops_left: Mapping[str, int]) -> tuple[str, ...]:
        hops = hops_left[switch] - 1
        closer = []
        for neighbour in self._graph[switch]:
            if hops_left[neighbour] == hops:
                closer.append(neighbour)
        closer.sort()
        return tuple(closer)

    def _distances(self, last: str) -> dict[str, int]:
        import networkx

        if last not in self._hops_left:
            lengths = networkx.single_source_shortest_path_length(self._graph, last)
            self._hops_left[last] = dict(lengths)
        return self._hops_left[last]


def _joined(ways: Iterable[Path], *, at_end: bool) -> Iterator[Path]:
    """Yield the part of each way that no earlier one has.

    Ways have their ends in common, or their beginnings.
    """
    seen: set[str] = set()
    for way in ways:
        new = sum(node not in seen for node in way)
        # All but the first end, or begin, with a node of an earlier one.
        if at_end:
            yield way[: new + 1]
        else:
            yield way[-new - 1 :]
        seen.update(way)


def graph_of(nodes: Iterable[str], links: Iterable[NodePair]) -> networkx.Graph[str]:
    """Return a graph of these nodes and links."""
    # on first use, because it takes longer to import than most commands take to run
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(links)
    return graph


@dataclass(frozen=True, slots=True)
class Host:
    """An end host; all its interfaces have these addresses."""

    name: str
    ipv4: str
    mac: str


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch and its P4Runtime device id."""

    name: str
    device_id: int


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link: a port of a node."""

    node: str
    port: int
    """The port number: from 1 on a switch, from 0 on a host."""


@dataclass(frozen=True, slots=True)
class CableLink:
    """A full-duplex link."""

    a: LinkEnd
    b: LinkEnd
    rate_bps: int
    """The capacity of each direction, bits per second."""
    delay_s: Fraction
    """The propagation delay, seconds."""


@dataclass(frozen=True)
class Fabric:
    """Hosts and switches by name, and the links between them."""

    name: str
    hosts: Mapping[str, Host]
    switches: Mapping[str, Switch]
    cables: tuple[CableLink, ...]
    drained: frozenset[frozenset[str]] = frozenset()
    """Links, as pairs of nodes, that no path may use.

    They keep their ports and what is configured there.
    """
    down: frozenset[frozenset[str]] = frozenset()
    """Links that are used only between nodes without another path. Such a path needs no change when
    they are back, and a controller that is cut off from all switches leaves all paths alone."""
    paths: str = "kept"
    """The choice of paths where a policy leaves it open (`echelon.model.fabric.choices`)."""
    roce_marks: tuple[int, ...] = ()
    """The DSCP of RoCE packets from each queue of a switch; empty: as their sender set it."""

    def without(self, links: Iterable[NodePair], down: Iterable[NodePair] = ()) -> Fabric:
        """Return the same fabric with exactly these links drained, and these down.

        Raises `ValueError` if two nodes are not linked.
        """
        drained = frozenset(map(frozenset, links))
        failed = frozenset(map(frozenset, down))
        for link in drained | failed:
            if tuple(link) not in self.rate_bps:
                ends = " and ".join(sorted(link))
                raise ValueError(f"{ends} are not linked in fabric {self.name}")
        fabric = replace(self, drained=drained, down=failed)
        # What does not depend on drained links is computed once, and stays the same object for
        # those who compare it.
        for name in _WIRING:
            fabric.__dict__[name] = getattr(self, name)
        return fabric

    @cached_property
    def usable_links(self) -> tuple[NodePair, ...]:
        """Return the links that are neither drained nor down, as pairs of nodes."""
        unusable = self.drained | self.down
        links = []
        for cable in self.cables:
            link = cable.a.node, cable.b.node
            if frozenset(link) not in unusable:
                links.append(link)
        return tuple(links)

    @cached_property
    def rate_bps(self) -> Mapping[NodePair, int]:
        """Return the capacity of each directed link (node, next node), bits per second."""
        rates_bps: dict[NodePair, int] = {}
        for cable in self.cables:
            rates_bps[cable.a.node, cable.b.node] = cable.rate_bps
            rates_bps[cable.b.node, cable.a.node] = cable.rate_bps
        return rates_bps

    @cached_property
    def delay_s(self) -> Mapping[NodePair, float]:
        """Return the propagation delay of each directed link (node, next node), seconds."""
        delays_s: dict[NodePair, float] = {}
        for cable in self.cables:
            delays_s[cable.a.node, cable.b.node] = float(cable.delay_s)
            delays_s[cable.b.node, cable.a.node] = float(cable.delay_s)
        return delays_s

    @cached_property
    def capacity_Bps(self) -> Mapping[NodePair, Fraction]:  # noqa: N802
        """Return the capacity of each directed link (node, next node), bytes per second."""
        rates = {rate: Fraction(rate, 8) for rate in set(self.rate_bps.values())}
        return {link: rates[rate] for link, rate in self.rate_bps.items()}

    @cached_property
    def port_to(self) -> Mapping[NodePair, int]:
        """Return, by (node, neighbour), the port of the node that leads to the neighbour."""
        ports: dict[NodePair, int] = {}
        for cable in self.cables:
            ports[cable.a.node, cable.b.node] = cable.a.port
            ports[cable.b.node, cable.a.node] = cable.b.port
        return ports

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, str]]:
        """Return, by node, its ports and the node at the other end of each."""
        nodes = (*self.hosts, *self.switches)
        ports: dict[str, dict[int, str]] = {name: {} for name in nodes}
        for (node, neighbour), port in self.port_to.items():
            ports[node][port] = neighbour
        return ports

    @cached_property
    def neighbour(self) -> Mapping[tuple[str, int], str]:
        """Return the node at the other end of each (node, port)."""
        return {(node, port): neighbour for (node, neighbour), port in self.port_to.items()}

    @cached_property
    def host_numbers(self) -> Mapping[str, int]:
        """Return the number of each host, from 1 in the order of the fabric file."""
        return {host: number for number, host in enumerate(self.hosts, start=1)}

    @cached_property
    def shortest_paths(self) -> ShortestPaths:
        """Return the shortest paths.

        Those over links that are down are for nodes without any other path.
        """
        otherwise = None
        if self.down:
            otherwise = replace(self, down=frozenset()).shortest_paths
        return ShortestPaths(self.hosts, self.switches, self.usable_links, otherwise)

    @cached_property
    def next_hops(self) -> Mapping[NodePair, tuple[str, ...]]:
        """Return the neighbours of switches on their shortest paths to hosts, by (switch, host)."""
        return self.shortest_paths.next_hops()


_WIRING = ("rate_bps", "delay_s", "capacity_Bps", "port_to", "ports", "neighbour", "host_numbers")
"""Properties that do not depend on which links are drained or down."""
