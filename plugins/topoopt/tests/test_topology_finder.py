"""TopologyFinder: what a topology must be, and beside all topologies there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_topoopt.matching import Pair
from echelon_topoopt.topology_finder import Topology, find_topology
from echelon_topoopt.traffic import Traffic
from tests.drawing import examples
from tests.faults import naming


@st.composite
def traffics(draw: st.DrawFn, most: int = 14) -> Traffic:
    hosts = draw(st.integers(2, most))
    members = st.permutations(range(hosts)).flatmap(
        lambda order: st.integers(2, hosts).map(lambda count: tuple(order[:count]))
    )
    pairs = [(a, b) for a in range(hosts) for b in range(hosts) if a != b]
    amounts = st.integers(1, 100).map(float)
    return Traffic(
        hosts,
        draw(st.dictionaries(members, amounts, max_size=3)),
        draw(st.dictionaries(st.sampled_from(pairs), amounts, max_size=20)),
    )


@settings(max_examples=examples(1000), deadline=None)
@given(traffics(), st.integers(2, 6), st.data())
def test_hosts_are_connected_by_no_more_cables_than_they_have_ports(
    traffic: Traffic, degree: int, data: st.DataObject
) -> None:
    ports = data.draw(st.sampled_from([None, *range(0, degree + 1, 2)]))
    topology = find_topology(traffic, degree, ports)
    used = Counter(host for pair, count in topology.cables.items() for host in pair * count)
    assert max(used.values()) <= degree
    graph = networkx.Graph(list(topology.cables))
    assert networkx.is_connected(graph)
    assert len(graph) == traffic.hosts
    assert all(count > 0 and one < other for (one, other), count in topology.cables.items())


@settings(max_examples=examples(1000), deadline=None)
@given(traffics(), st.integers(2, 6))
def test_rings_pass_all_members_over_cables_of_their_own(traffic: Traffic, degree: int) -> None:
    topology = find_topology(traffic, degree)
    for group in traffic.reduced:
        for order, width in topology.rings(group):
            assert sorted(order) == sorted(group)
            steps = list(zip(order, (*order[1:], order[0]), strict=True))
            if all(topology.between(*step) for step in steps):
                assert width == min(topology.between(*step) for step in steps)


@pytest.mark.parametrize(("hosts", "degree"), [(4, 2), (5, 2), (6, 2), (4, 3)])
def test_one_all_reduce_of_all_hosts_has_as_many_rings_as_there_can_be(
    hosts: int, degree: int
) -> None:
    found = find_topology(Traffic(hosts, {tuple(range(hosts)): 1.0}), degree)
    assert sum(width for _, width in found.rings(tuple(range(hosts)))) == degree - degree % 2


def all_topologies(hosts: int, degree: int) -> Iterator[Topology]:
    pairs: list[Pair] = list(combinations(range(hosts), 2))
    for laid in combinations_with_replacement(pairs, hosts * degree // 2):
        cables = Counter(laid)
        ports = Counter(host for pair in laid for host in pair)
        if (
            max(ports.values()) <= degree
            and networkx.is_connected(networkx.Graph(laid))
            and len(ports) == hosts
        ):
            yield Topology(hosts, degree, cables)


def unserved(topology: Topology, traffic: Traffic) -> float:
    """Return the bytes times hops of a topology: what all cables carry."""
    return sum(amount * topology.hops(src)[dst] for (src, dst), amount in traffic.sent.items())


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 20), min_size=12, max_size=12))
def test_beside_all_topologies_of_four_hosts_cables_carry_little_more_than_the_least(
    amounts: list[int],
) -> None:
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    sent = {pair: float(amount) for pair, amount in zip(pairs, amounts, strict=True) if amount}
    if not sent:
        return
    traffic = Traffic(4, {}, sent)
    best = min(unserved(of, traffic) for of in all_topologies(4, 2))
    tried = [find_topology(traffic, 2, ports) for ports in (0, 2)]
    assert best <= min(unserved(of, traffic) for of in tried) <= 1.5 * best


def test_parallel_groups_share_ports_and_heavy_ones_have_more_rings() -> None:
    groups = {
        (0, 1, 2, 3): 90.0,
        (4, 5, 6, 7): 90.0,
        (0, 4): 5.0,
        (1, 5): 5.0,
        (2, 6): 5.0,
        (3, 7): 5.0,
    }
    topology = find_topology(Traffic(8, groups), 4)
    # Two rings for the heavy groups leave one for the others; to connect the parts, one heavy cable
    # each is crossed.
    own = [
        sum(topology.between(*pair) for pair in combinations(group, 2))
        for group in groups
        if len(group) == 4
    ]
    assert min(own) > sum(topology.between(*group) for group in groups if len(group) == 2)


def test_one_port_is_too_few() -> None:
    with pytest.raises(ValueError, check=naming("3 hosts", "1 port", "2 ports")):
        find_topology(Traffic(3), 1)
