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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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

    def between(self, one: int, other: int) -> int:
        """Return the number of cables between two hosts."""
        return self.cables.get(in_order((one, other)), 0)

    def rings(self, group: Group) -> tuple[tuple[Group, int], ...]:
        """Return the orders in which the group's data goes round, each with the cables that it has
        at every step.

        They are all rings of its own that the group has cables for, in both directions; where there
        are none, the one whose steps are fewest hops in all.
        """
        members = len(group)
        found: list[tuple[Group, int]] = []
        strides = totient_perms(members, duplex=True)
        for stride in strides:
            order = tuple(group[at] for at in ring(members, stride))
            width = min(self.between(*step) for step in _steps(order))
            if width:
                found += (
                    [(order, width)] if members == 2 else [(order, width), (order[::-1], width)]
                )
        return tuple(found) or ((self._shortest(group, strides), 1),)

    @cached_property
    def _graph(self) -> networkx.Graph[int]:
        return graph_of(range(self.hosts), self.cables)

    def hops(self, start: int) -> dict[int, int]:
        """Return the hops from a host to each that can be reached."""
        import networkx

        return dict(networkx.single_source_shortest_path_length(self._graph, start))

    def _shortest(self, group: Group, strides: Sequence[int]) -> Group:
        hops = {member: self.hops(member) for member in group}

        def length(order: Group) -> int:
            return sum(hops[one].get(other, self.hosts) for one, other in _steps(order))

        return min(
            (tuple(group[at] for at in ring(len(group), stride)) for stride in strides), key=length
        )


def graph_of(hosts: Iterable[int], cables: Iterable[Pair]) -> networkx.Graph[int]:
    """Return the graph of these cables."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(hosts)
    graph.add_edges_from(cables)
    return graph


def find_topology(traffic: Traffic, degree: int, for_rings: int | None = None) -> Topology:
    """Return the topology for the traffic. `for_rings` is an even number of ports; None: the
    paper's share of them.

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
    if for_rings and not any(len(groups[0]) == hosts for _, groups in kinds):
        # Ports that no all-reduce wants make rings of all: few hops for everything.
        kinds.append((0.0, [tuple(range(hosts))]))
    for count, (_, groups) in zip(
        group_rings(for_rings // 2, [amount for amount, _ in kinds]), kinds, strict=True
    ):
        _lay(cables, free, groups, count)
    exchanged = traffic.exchanged
    cables += matching_rounds(exchanged, free)
    spare = (degree - max(_ports(cables).values(), default=0)) // 2
    if spare:
        _lay(cables, free, kinds[0][1] if kinds else [tuple(range(hosts))], spare)
    return Topology(
        hosts, degree, dict(sorted(_connected(cables, exchanged, hosts, degree).items()))
    )


def _kinds(traffic: Traffic) -> list[tuple[float, list[Group]]]:
    """Return the kinds of groups with their traffic, most first.

    Groups of a kind have no member in common.
    """
    kinds: list[tuple[float, list[Group]]] = []
    for group, amount in sorted(traffic.reduced.items(), key=lambda item: (-item[1], item[0])):
        for at, (of_kind, groups) in enumerate(kinds):
            if len(groups[0]) == len(group) and not any(
                set(other) & set(group) for other in groups
            ):
                kinds[at] = (of_kind + amount, [*groups, group])
                break
        else:
            kinds.append((amount, [group]))
    return sorted(kinds, key=lambda kind: (-kind[0], kind[1]))


def _lay(cables: Counter[Pair], free: dict[int, int], groups: Sequence[Group], rings: int) -> None:
    """Lay so many rings of each group; two members have two cables instead."""
    if not rings:
        return
    members = len(groups[0])
    strides = totient_perms(members, duplex=True)
    for stride in select_permutations(strides, rings if members > 2 else 2 * rings, members):
        for group in groups:
            for one, other in _steps(tuple(group[at] for at in ring(members, stride))):
                cables[in_order((one, other))] += 1
                free[one] -= 1
                free[other] -= 1


def _ports(cables: Mapping[Pair, int]) -> Counter[int]:
    """Return the cables of each host."""
    return Counter(end for pair, count in cables.items() for end in pair * count)


def _steps(order: Group) -> Iterator[tuple[int, int]]:
    """Yield each member and its successor; two members have one step."""
    yield from zip(order, (*order[1:], order[0])[: 1 if len(order) == 2 else None], strict=False)


def _connected(
    cables: Counter[Pair], exchanged: Mapping[Pair, float], hosts: int, degree: int
) -> Counter[Pair]:
    """Return the cables, some of them crossed so that all hosts are connected and have no more of
    them.
    """
    import networkx

    while True:
        graph = graph_of(range(hosts), cables)
        parts = sorted(map(sorted, networkx.connected_components(graph)))
        if len(parts) == 1:
            return cables
        ports = _ports(cables)
        free = [[host for host in part for _ in range(degree - ports[host])] for part in parts[:2]]
        if all(free):
            crossed = [(free[0][0], free[1][0])]
        else:
            bridges: Any = networkx.bridges(graph)
            only_ways = {pair for pair in map(in_order, bridges) if cables[pair] == 1}
            ends: list[Pair] = []
            for part, own in zip(parts, free, strict=False):
                if len(own) > 1:
                    ends.append((own[0], own[1]))
                    continue
                # A part without two free ports is no tree, so a cable of it is not the only way.
                members = set(part)
                inner = (pair for pair in cables if pair[0] in members and pair not in only_ways)
                cut = min(inner, key=lambda pair: (exchanged.get(pair, 0.0) / cables[pair], pair))
                cables -= Counter({cut: 1})
                ends.append(cut)
            crossed = list(zip(*ends, strict=True))
        cables.update(map(in_order, crossed))
