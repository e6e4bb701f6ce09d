"""TopologyFinder: rings for all-reduces, and cables for other transfers (TopoOpt, NSDI '23, section
4.3, algorithm 1).

The ports for all-reduces are shared by the kinds of groups, by traffic; a kind is groups of one
size without a common member, such as all replicas of each stage. For each, `select_permutations`
chooses rings among `totient_perms`. Blossom matchings give the other ports to the pairs that send
each other most. The hosts must be connected: where they are not, two cables that carry least are
crossed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from echelon_topoopt.degrees import group_rings, ring_ports
from echelon_topoopt.matching import Pair, in_order, matching_rounds
from echelon_topoopt.select_permutations import select_permutations
from echelon_topoopt.totient_perms import ring, totient_perms
from echelon_topoopt.traffic import Group, Traffic

if TYPE_CHECKING:
    import networkx

Ring = tuple[Group, int]
"""An order in which data goes round, and the cables that it has at every step."""

Kind = tuple[float, list[Group]]
"""Groups of one size without a common member, behind their traffic."""


@dataclass(frozen=True)
class Topology:
    """Direct connections between hosts, which are numbered from 0."""

    hosts: int
    degree: int
    """The ports of each host."""
    cables: Mapping[Pair, int]
    """The number of cables between two hosts, the smaller number first."""

    def between(self, start: int, end: int) -> int:
        """Return the number of cables between two hosts."""
        return self.cables.get(in_order((start, end)), 0)

    def rings(self, group: Group) -> tuple[Ring, ...]:
        """Return the orders in which the group's data goes round, each with the cables that it has
        at every step.

        They are all rings of its own that the group has cables for, in both directions; where there
        are none, the one whose steps are fewest hops in all.
        """
        orders = _orders(group)
        rings: list[Ring] = []
        for order in orders:
            width = self._width(order)
            if not width:
                continue
            rings.append((order, width))
            if len(group) > 2:
                backwards = order[::-1]
                rings.append((backwards, width))
        if rings:
            return tuple(rings)
        shortest = min(orders, key=self._length)
        return ((shortest, 1),)

    def _width(self, order: Group) -> int:
        """Return the cables that a ring has at each of its steps."""
        widths = [self.between(start, end) for start, end in _steps(order)]
        return min(widths)

    @cached_property
    def _graph(self) -> networkx.Graph[int]:
        return graph_of(range(self.hosts), self.cables)

    def hops(self, start: int) -> dict[int, int]:
        """Return the hops from a host to each that can be reached."""
        import networkx

        return dict(networkx.single_source_shortest_path_length(self._graph, start))

    @cached_property
    def _hops(self) -> dict[int, dict[int, int]]:
        """The hops from each host that was asked for."""
        return {}

    def _length(self, order: Group) -> int:
        """Return the hops of all steps of a ring; a step without a way counts as `hosts`."""
        length = 0
        for start, end in _steps(order):
            if start not in self._hops:
                self._hops[start] = self.hops(start)
            reached = self._hops[start]
            length += reached.get(end, self.hosts)
        return length


def graph_of(hosts: Iterable[int], cables: Iterable[Pair]) -> networkx.Graph[int]:
    """Return the graph of these cables."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from(cables)
    return graph


def find_topology(
    traffic: Traffic,
    degree: int,
    for_rings: int | None = None,
) -> Topology:
    """Return the topology for the traffic.

    `for_rings` is an even number of ports; None: the paper's share of them.

    Raises `ValueError` if hosts have too few ports to be connected.
    """
    hosts = traffic.hosts
    if degree < 2 and hosts > 2:
        raise ValueError(
            f"{hosts} hosts with {degree} port each cannot be connected (give 2 ports or more)"
        )
    if for_rings is None:
        for_rings = ring_ports(degree, traffic.total_reduced, traffic.total_sent)

    all_hosts = [tuple(range(hosts))]
    kinds: list[Kind] = []
    if for_rings:
        kinds = _kinds(traffic)
        group_sizes = {len(groups[0]) for _, groups in kinds}
        if hosts not in group_sizes:
            # Ports that no all-reduce wants make rings of all: few hops for everything.
            kinds.append((0.0, all_hosts))

    cables: Counter[Pair] = Counter()
    free = dict.fromkeys(range(hosts), degree)
    pairs_of_ports = for_rings // 2
    amounts = [amount for amount, _ in kinds]
    counts = group_rings(pairs_of_ports, amounts)
    for count, (_, groups) in zip(counts, kinds, strict=True):
        _lay(cables, free, groups, count)

    exchanged = traffic.exchanged
    cables += matching_rounds(exchanged, free)

    most_used = max(_ports(cables).values(), default=0)
    spare = (degree - most_used) // 2
    if spare:
        _, largest_kind = kinds[0] if kinds else (0.0, all_hosts)
        _lay(cables, free, largest_kind, spare)

    connected = _connected(cables, exchanged, hosts, degree)
    ascending = dict(sorted(connected.items()))
    return Topology(hosts, degree, ascending)


def _kinds(traffic: Traffic) -> list[Kind]:
    """Return the kinds of groups with their traffic, most first.

    Groups of a kind have no member in common.
    """

    def group_rank(group: Group) -> tuple[float, Group]:
        return -traffic.reduced[group], group

    kinds: list[Kind] = []
    for group in sorted(traffic.reduced, key=group_rank):
        amount = traffic.reduced[group]
        for number, (amount_before, groups) in enumerate(kinds):
            if _is_alike(group, groups):
                kinds[number] = (amount_before + amount, [*groups, group])
                break
        else:
            kinds.append((amount, [group]))
    return sorted(kinds, key=_kind_rank)


def _kind_rank(kind: Kind) -> tuple[float, list[Group]]:
    amount, groups = kind
    return -amount, groups


def _is_alike(group: Group, groups: Sequence[Group]) -> bool:
    """Return whether a group is as large as others, and shares no member with them."""
    if len(groups[0]) != len(group):
        return False
    members = set(group)
    return all(members.isdisjoint(other) for other in groups)


def _lay(
    cables: Counter[Pair],
    free: dict[int, int],
    groups: Sequence[Group],
    rings: int,
) -> None:
    """Lay so many rings of each group; two members have two cables instead."""
    if not rings:
        return
    members = len(groups[0])
    strides = totient_perms(members, duplex=True)
    count = rings if members > 2 else 2 * rings
    for stride in select_permutations(strides, count, members):
        for group in groups:
            order = _order(group, stride)
            for start, end in _steps(order):
                pair = in_order((start, end))
                cables[pair] += 1
                free[start] -= 1
                free[end] -= 1


def _ports(cables: Mapping[Pair, int]) -> Counter[int]:
    """Return the cables of each host."""
    ports: Counter[int] = Counter()
    for (start, end), count in cables.items():
        ports[start] += count
        ports[end] += count
    return ports


def _orders(group: Group) -> list[Group]:
    """Return the group in the orders in which its rings may pass it."""
    strides = totient_perms(len(group), duplex=True)
    return [_order(group, stride) for stride in strides]


def _order(group: Group, stride: int) -> Group:
    numbers = ring(len(group), stride)
    return tuple(group[number] for number in numbers)


def _steps(order: Group) -> list[Pair]:
    """Return each member with its successor; two members have one step."""
    steps = list(pairwise(order))
    if len(order) != 2:
        steps.append((order[-1], order[0]))
    return steps


def _connected(
    cables: Counter[Pair],
    exchanged: Mapping[Pair, float],
    hosts: int,
    degree: int,
) -> Counter[Pair]:
    """Return the cables, some crossed so that they connect all hosts and are no more."""
    import networkx

    while True:
        graph = graph_of(range(hosts), cables)
        components = networkx.connected_components(graph)
        parts = sorted(sorted(component) for component in components)
        if len(parts) == 1:
            return cables
        joined = parts[:2]
        ports = _ports(cables)
        free = [_free_ports(part, ports, degree) for part in joined]
        if all(free):
            (start, *_), (end, *_) = free
            crossed = [(start, end)]
        else:
            only_ways = _only_ways(graph, cables)
            ends: list[Pair] = []
            for part, free_ports in zip(joined, free, strict=True):
                if len(free_ports) > 1:
                    ends.append((free_ports[0], free_ports[1]))
                    continue
                # A part without two free ports is no tree, so a cable of it is not the only way.
                cut = _least_used(part, cables, only_ways, exchanged)
                cables -= Counter({cut: 1})
                ends.append(cut)
            # Two cables within the parts become two between them, so that no host has more.
            crossed = list(zip(*ends, strict=True))
        cables.update(map(in_order, crossed))


def _only_ways(graph: networkx.Graph[int], cables: Mapping[Pair, int]) -> set[Pair]:
    """Return the pairs whose only cable is the only way between two parts of the graph."""
    import networkx

    bridges: Any = networkx.bridges(graph)
    pairs = map(in_order, bridges)
    return {pair for pair in pairs if cables[pair] == 1}


def _least_used(
    part: Sequence[int],
    cables: Mapping[Pair, int],
    only_ways: Collection[Pair],
    exchanged: Mapping[Pair, float],
) -> Pair:
    """Return the pair of a part whose cables carry least each, and are not the only way."""
    members = set(part)
    by_traffic: list[tuple[float, Pair]] = []
    for pair, count in cables.items():
        if pair[0] in members and pair not in only_ways:
            traffic = exchanged.get(pair, 0.0)
            by_traffic.append((traffic / count, pair))
    _, least_used = min(by_traffic)
    return least_used


def _free_ports(
    hosts: Sequence[int],
    ports: Mapping[int, int],
    degree: int,
) -> list[int]:
    """Return each host as often as it has free ports."""
    free: list[int] = []
    for host in hosts:
        free += [host] * (degree - ports[host])
    return free
