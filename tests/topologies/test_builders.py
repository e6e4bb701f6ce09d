"""Fabrics of well-known shapes against what is published of them, and against networkx."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from ipaddress import IPv4Address

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric import builders
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import equal_cost_paths
from tests.faults import naming


def graph(fabric: Fabric) -> nx.Graph:
    out = nx.Graph()
    for cable in fabric.cables:
        out.add_edge(cable.a.node, cable.b.node, capacity=cable.rate_bps)
    return out


def degrees(fabric: Fabric, prefix: str) -> set[int]:
    wiring = graph(fabric)
    return {wiring.degree[node] for node in fabric.switches if node.startswith(prefix)}


def between_bps(fabric: Fabric, sources: list[str], sinks: list[str]) -> int:
    """Return the maximum flow from hosts to hosts."""
    wiring = graph(fabric)
    for node, ends in (("source", sources), ("sink", sinks)):
        for end in ends:
            wiring.add_edge(node, end)  # without a capacity: infinite
    value: int = nx.maximum_flow_value(wiring, "source", "sink")
    return value


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree_is_al_fares(k: int) -> None:
    fabric = build_fabric(builders.fat_tree(k, rate_bps=1000))
    assert len(fabric.hosts) == k**3 // 4
    assert Counter(name.rstrip("0123456789-") for name in fabric.switches) == {
        "edge": k * k // 2,
        "agg": k * k // 2,
        "core": k * k // 4,
    }
    assert {graph(fabric).degree[switch] for switch in fabric.switches} == {k}
    assert nx.diameter(graph(fabric)) == (4 if k == 2 else 6) + (2 if k == 2 else 0)
    # Full bisection: half of the hosts can send to the other half, each at its link's rate.
    names = list(fabric.hosts)
    half = len(names) // 2
    assert between_bps(fabric, names[:half], names[half:]) == half * 1000
    assert between_bps(fabric, names[::2], names[1::2]) == half * 1000


def test_fat_tree_has_the_papers_addresses_and_paths() -> None:
    fabric = build_fabric(builders.fat_tree(4))
    by_pod: dict[str, set[IPv4Address]] = {}
    for host in fabric.hosts.values():
        (edge,) = graph(fabric)[host.name]
        pod, switch = edge.removeprefix("edge").split("-")
        address = IPv4Address(host.ipv4).packed
        assert (address[0], address[1], address[2]) == (10, int(pod), int(switch))
        assert address[3] in (2, 3)
        by_pod.setdefault(pod, set()).add(IPv4Address(host.ipv4))
    assert [len(addresses) for addresses in by_pod.values()] == [4, 4, 4, 4]
    # (k/2)^2 paths between pods, k/2 inside one, one below an edge switch.
    assert [len(equal_cost_paths(fabric, "h1", other)) for other in ("h2", "h3", "h5")] == [1, 2, 4]


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([Fraction(1), Fraction(2), Fraction(3, 2), Fraction(1, 2), Fraction(10)]),
)
@settings(deadline=None, max_examples=30)
def test_leaf_spine(leaves: int, spines: int, per_leaf: int, oversubscription: Fraction) -> None:
    if leaves * per_leaf < 2:
        return
    rate_bps = 6_000_000
    fabric = build_fabric(builders.leaf_spine(leaves, spines, per_leaf, oversubscription, rate_bps))
    assert len(fabric.hosts) == leaves * per_leaf
    assert len(fabric.cables) == leaves * (spines + per_leaf)
    assert degrees(fabric, "leaf") == {spines + per_leaf}
    assert degrees(fabric, "spine") == {leaves}
    if leaves > 1:
        assert nx.diameter(graph(fabric)) == 4
        hosts = list(fabric.hosts)
        out_of_leaf = between_bps(fabric, hosts[:per_leaf], hosts[per_leaf:])
        wanted = min(Fraction(1), 1 / oversubscription) * per_leaf * rate_bps
        assert (
            wanted - spines < out_of_leaf <= wanted
        )  # uplinks are rounded down to bits per second
        assert len(equal_cost_paths(fabric, hosts[0], hosts[-1])) == spines


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3))
@settings(deadline=None, max_examples=20)
def test_rail_optimised(servers: int, rails: int, spines: int) -> None:
    if servers * rails < 2:
        return
    fabric = build_fabric(builders.rail_optimised(servers, rails, spines, rate_bps=6000))
    assert len(fabric.hosts) == servers * rails
    assert degrees(fabric, "rail") == {servers + spines}
    assert degrees(fabric, "spine") == {rails}
    wiring = graph(fabric)
    for rail in range(1, rails + 1):
        of_rail = [f"n{server}r{rail}" for server in range(1, servers + 1)]
        assert all(list(wiring[nic]) == [f"rail{rail}"] for nic in of_rail)
        if servers > 1:
            # Collectives of one rank need no spine.
            assert nx.shortest_path_length(wiring, of_rail[0], of_rail[-1]) == 2


@pytest.mark.parametrize(
    ("pods", "leaves", "spines", "per_leaf"), [(2, 2, 2, 4), (3, 4, 2, 2), (4, 1, 3, 3)]
)
@pytest.mark.parametrize("oversubscription", [1, 2])
def test_clos(pods: int, leaves: int, spines: int, per_leaf: int, oversubscription: int) -> None:
    fabric = build_fabric(
        builders.clos(pods, leaves, spines, per_leaf, oversubscription, rate_bps=36_000)
    )
    assert degrees(fabric, "leaf") == {per_leaf + spines}
    assert degrees(fabric, "spine") == {leaves + spines}
    assert degrees(fabric, "core") == {pods}
    hosts = list(fabric.hosts)
    in_pod = leaves * per_leaf
    assert len(hosts) == pods * in_pod
    # What a pod sends to the others is what its hosts send, less the oversubscription of its
    # leaves.
    assert (
        between_bps(fabric, hosts[:in_pod], hosts[in_pod:]) == in_pod * 36_000 // oversubscription
    )
    assert len(equal_cost_paths(fabric, hosts[0], hosts[-1])) == spines * spines


@pytest.mark.parametrize(
    ("groups", "switches", "per_switch"), [(5, 4, 2), (9, 4, 2), (7, 2, 1), (2, 1, 1), (4, 5, 1)]
)
def test_dragonfly_is_kims(groups: int, switches: int, per_switch: int) -> None:
    fabric = build_fabric(builders.dragonfly(groups, switches, per_switch))
    wiring = graph(fabric)
    assert len(fabric.hosts) == groups * switches * per_switch
    between: Counter[frozenset[str]] = Counter()
    for a, b in wiring.edges:
        if a in fabric.switches and b in fabric.switches:
            ends = [node[1:].split("-")[0] for node in (a, b)]
            between[frozenset(ends)] += 1
    within = switches * (switches - 1) // 2
    assert all(count == (1 if len(ends) == 2 else within) for ends, count in between.items())
    assert sum(len(ends) == 2 for ends in between) == groups * (groups - 1) // 2
    # A group's links to others are spread evenly over its switches, and a packet takes at most one
    # of them.
    far = {wiring.degree[switch] - per_switch - (switches - 1) for switch in fabric.switches}
    assert max(far) - min(far) <= 1
    assert nx.diameter(wiring) <= 2 + 3


@pytest.mark.parametrize("sides", [(4, 4), (3, 5), (2, 2), (3, 3, 3), (2, 4, 3), (6,)])
@pytest.mark.parametrize("per_switch", [1, 2])
def test_torus(sides: tuple[int, ...], per_switch: int) -> None:
    fabric = build_fabric(builders.torus(sides, per_switch))
    switches = graph(fabric).subgraph(fabric.switches)
    assert nx.is_isomorphic(
        switches, nx.grid_graph(list(sides), periodic=[side > 2 for side in sides])
    )
    assert len(fabric.hosts) == per_switch * len(fabric.switches)
    assert all(graph(fabric).degree[host] == 1 for host in fabric.hosts)


@given(st.integers(1, 20), st.integers(2, 20))
@settings(deadline=None, max_examples=20)
def test_dumbbell_line_and_tor(pairs: int, many: int) -> None:
    dumbbell = build_fabric(builders.dumbbell(pairs, rate_bps=10, nic_bps=100))
    sides = [[f"{side}{n}" for n in range(1, pairs + 1)] for side in "ab"]
    assert between_bps(dumbbell, *sides) == 10
    line = build_fabric(builders.line(many, rate_bps=10))
    assert nx.diameter(graph(line)) == many + 1
    assert sorted(dict(graph(line).degree()).values()) == [1] * many + [2, 2] + [3] * (many - 2)
    tor = build_fabric(builders.one_tor(many))
    assert nx.is_isomorphic(graph(tor), nx.star_graph(many))


def test_thesis() -> None:
    a, b = build_fabric(builders.thesis_a(100)), build_fabric(builders.thesis_b(100))
    # A: whatever h1 sends leaves through the port of its NIC, which is slower than its own link.
    assert between_bps(a, ["h1"], ["h2", "h3", "h4"]) == a.rate_bps["nic0", "tor"] == 100
    assert a.rate_bps["h1", "nic0"] == 400
    # B: all that goes to h1 shares the last link.
    assert between_bps(b, ["h2", "h3", "h4"], ["h1"]) == b.rate_bps["tor", "h1"] == 100
    assert {rate for (one, other), rate in b.rate_bps.items()} == {100}


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: builders.leaf_spine(0, 1), ["leaves: 0", 1]),
        (lambda: builders.leaf_spine(2, 2, 0), ["hosts per leaf: 0", 1]),
        (lambda: builders.leaf_spine(2, 2, 1, 0), ["oversubscription", 0]),
        (lambda: builders.leaf_spine(1, 1, 1, 10**9), ["oversubscription", 10**9, "1 bit/s"]),
        (
            lambda: builders.leaf_spine(2, 600),
            ["leaf_spine_2_600_4: switches.leaf1", "604 links", 509],
        ),
        (lambda: builders.leaf_spine(10**6, 1), ["4000000 hosts", 64000]),
        (lambda: builders.leaf_spine(10**4, 10**4, 1), ["100010000 links"]),
        (lambda: builders.fat_tree(3), ["k", 3, "2, 4, 6"]),
        (lambda: builders.fat_tree(10**6), [f"{25 * 10**16} hosts", 64000]),
        (lambda: builders.torus((4, 0)), ["side: 0", 1]),
        (lambda: builders.dragonfly(1), ["groups: 1", 2]),
        (lambda: builders.clos(10**4, 10), ["400000 hosts", 64000]),
        (lambda: builders.one_tor(1), ["servers: 1", 2]),
    ],
)
def test_numbers_that_make_no_fabric(build: object, names: list[object]) -> None:
    assert callable(build)
    with pytest.raises(ValueError, check=naming(*names)) as error:
        build()
    assert len(f"{error.value}".splitlines()) == 1
