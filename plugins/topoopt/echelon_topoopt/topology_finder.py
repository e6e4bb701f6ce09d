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
from collections.abc import Iterable, Mapping, Sequence
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

    def rings(self, group: Group) -> tuple[tuple[Group, int], ...]:
        """Return the orders in which the group's data goes round, each with the cables that it has
        at every step.

        They are all rings of its own that the group has cables for, in both directions; where there
        are none, the one whose steps are fewest hops in all.
        """
        orders = _orders(group)
        rings: list[tuple[Group, int]] = []
        for order in orders:
            width = min(self.between(*step) for step in _steps(order))
            if width:
                rings.append((order, width))
                if len(group) > 2:
                    rings.append((order[::-1], width))
        if rings:
            return tuple(rings)
        return ((min(orders, key=self._length), 1),)

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
            length += self._hops[start].get(end, self.hosts)
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
    cables: Counter[Pair] = Counter()
    free = dict.fromkeys(range(hosts), degree)
    kinds = _kinds(traffic) if for_rings else []
    of_all = [tuple(range(hosts))]
    if for_rings and not any(len(groups[0]) == hosts for _, groups in kinds):
        # Ports that no all-reduce wants make rings of all: few hops for everything.
        kinds.append((0.0, of_all))
    counts = group_rings(for_rings // 2, [amount for amount, _ in kinds])
    for count, (_, groups) in zip(counts, kinds, strict=True):
        _lay(cables, free, groups, count)
    exchanged = traffic.exchanged
    cables += matching_rounds(exchanged, free)
    spare = (degree - max(_ports(cables).values(), default=0)) // 2
    if spare:
        _lay(cables, free, kinds[0][1] if kinds else of_all, spare)
    connected = _connected(cables, exchanged, hosts, degree)
    return Topology(hosts, degree, dict(sorted(connected.items())))


def _kinds(traffic: Traffic) -> list[tuple[float, list[Group]]]:
    """Return the kinds of groups with their traffic, most first.

    Groups of a kind have no member in common.
    """
    kinds: list[tuple[float, list[Group]]] = []
    largest_first = sorted(traffic.reduced.items(), key=lambda item: (-item[1], item[0]))
    for group, amount in largest_first:
        for number, (of_kind, groups) in enumerate(kinds):
            if _is_alike(group, groups):
                kinds[number] = (of_kind + amount, [*groups, group])
                break
        else:
            kinds.append((amount, [group]))
    return sorted(kinds, key=lambda kind: (-kind[0], kind[1]))


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
            for pair in _steps(_order(group, stride)):
                cables[in_order(pair)] += 1
                for host in pair:
                    free[host] -= 1


def _ports(cables: Mapping[Pair, int]) -> Counter[int]:
    """Return the cables of each host."""
    return Counter(end for pair, count in cables.items() for end in pair * count)


def _orders(group: Group) -> list[Group]:
    """Return the group in the orders in which its rings may pass it."""
    return [_order(group, stride) for stride in totient_perms(len(group), duplex=True)]


def _order(group: Group, stride: int) -> Group:
    return tuple(group[number] for number in ring(len(group), stride))


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
        parts = sorted(map(sorted, networkx.connected_components(graph)))
        if len(parts) == 1:
            return cables
        ports = _ports(cables)
        free = [_free_ports(part, ports, degree) for part in parts[:2]]
        if all(free):
            crossed = [(free[0][0], free[1][0])]
        else:
            bridges: Any = networkx.bridges(graph)
            only_ways = {pair for pair in map(in_order, bridges) if cables[pair] == 1}
            ends: list[Pair] = []
            for part, free_ports in zip(parts, free, strict=False):
                if len(free_ports) > 1:
                    ends.append((free_ports[0], free_ports[1]))
                    continue
                # A part without two free ports is no tree, so a cable of it is not the only way.
                members = set(part)
                inner = [pair for pair in cables if pair[0] in members and pair not in only_ways]
                by_traffic = [(exchanged.get(pair, 0.0) / cables[pair], pair) for pair in inner]
                _, cut = min(by_traffic)
                cables -= Counter({cut: 1})
                ends.append(cut)
            crossed = list(zip(*ends, strict=True))
        cables.update(map(in_order, crossed))


def _free_ports(
    hosts: Sequence[int],
    ports: Mapping[int, int],
    degree: int,
) -> list[int]:
    """Return each host as often as it has free ports."""
    return [host for host in hosts for _ in range(degree - ports[host])]
