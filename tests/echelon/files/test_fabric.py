"""Fabrics: numbering and addresses; routes against brute force."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import parse_document
from echelon.model.fabric.load import FabricSpec, build_fabric, load_fabric
from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.fabric.routing import NoRouteError, equal_cost_paths, route
from echelon.model.jobs.graph import Job
from echelon.model.jobs.paradigms.data import all_reduce
from tests.drawing import examples
from tests.faults import coded
from tests.reference.routes import next_hops, route_jobs

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


def fabric_of(switch_links: list[tuple[str, str]], hosts: dict[str, str]) -> Fabric:
    """Return a fabric; `hosts` maps each host to its switch."""
    switches = dict.fromkeys([end for link in switch_links for end in link] + list(hosts.values()))
    links = [*switch_links, *hosts.items()]
    data = {
        "fabric": "f",
        "hosts": list(hosts),
        "switches": list(switches),
        "links": [{"between": list(link), "rate": "1 Gbit/s"} for link in links],
    }
    return build_fabric(parse_document(FabricSpec, data, "test"))


def test_numbers_and_addresses(tmp_path: Path) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(
        """\
fabric: f
hosts: {h1: , h2: {ipv4: 10.9.9.9, mac: "0A:00:00:00:00:FF"}, h3: {}}
switches: {s1: , s2: {device_id: 40}, s3: }
links:
  - {between: [s1, h1], rate: 1 Gbit/s, delay: 1 us}
  - {between: [s1, s2], rate: 10 Mbit/s, ports: {s1: 1}}
  - {between: [h2, s2], rate: 2.5 Mbit/s}
  - {between: [s2, s3], rate: 10 Mbit/s, ports: {s2: 5, s3: 2}}
  - {between: [s3, h3], rate: 10 Mbit/s, delay: 2 ms}
"""
    )
    fabric = load_fabric(file)
    assert fabric.hosts == {
        "h1": Host("h1", "10.0.0.1", "02:00:00:00:00:01"),
        "h2": Host("h2", "10.9.9.9", "0a:00:00:00:00:ff"),
        "h3": Host("h3", "10.0.0.3", "02:00:00:00:00:03"),
    }
    assert fabric.switches == {"s1": Switch("s1", 1), "s2": Switch("s2", 40), "s3": Switch("s3", 3)}
    assert fabric.cables == (
        # Port 1 of s1 is taken by the second link, which asks for it.
        CableLink(LinkEnd("s1", 2), LinkEnd("h1", 0), 10**9, Fraction(1, 10**6)),
        CableLink(LinkEnd("s1", 1), LinkEnd("s2", 1), 10**7, Fraction(0)),
        CableLink(LinkEnd("h2", 0), LinkEnd("s2", 2), 2_500_000, Fraction(0)),
        CableLink(LinkEnd("s2", 5), LinkEnd("s3", 2), 10**7, Fraction(0)),
        CableLink(LinkEnd("s3", 1), LinkEnd("h3", 0), 10**7, Fraction(1, 500)),
    )
    assert fabric.port_to["s2", "s3"] == 5
    assert fabric.neighbour["s3", 2] == "s2"


def test_addresses_of_many_hosts_are_unique_and_never_a_network_or_broadcast_address() -> None:
    fabric = fabric_of(
        [(f"s{i}", f"s{i + 1}") for i in range(5)], {f"h{i}": f"s{i % 6}" for i in range(1200)}
    )
    assert len({host.ipv4 for host in fabric.hosts.values()}) == 1200
    assert len({host.mac for host in fabric.hosts.values()}) == 1200
    assert {int(host.ipv4.split(".")[3]) for host in fabric.hosts.values()} == set(range(1, 251))
    for switch in fabric.switches:
        ports = sorted(port for (node, port) in fabric.neighbour if node == switch)
        assert ports == list(range(1, len(ports) + 1))


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Connected: a random tree of switches with further links, and two to four hosts."""
    count = draw(st.integers(1, 6))
    links = {(f"s{draw(st.integers(0, i - 1))}", f"s{i}") for i in range(1, count)}
    others = [
        (f"s{i}", f"s{j}")
        for i in range(count)
        for j in range(i + 1, count)
        if (f"s{i}", f"s{j}") not in links
    ]
    if others:
        links |= set(draw(st.lists(st.sampled_from(others), unique=True)))
    hosts = {f"h{i}": f"s{draw(st.integers(0, count - 1))}" for i in range(draw(st.integers(2, 4)))}
    return fabric_of(sorted(links), hosts)


def brute_force(fabric: Fabric, src: str, dst: str) -> list[tuple[str, ...]]:
    """Return the shortest of all simple paths, found by walking every one."""
    found: list[tuple[str, ...]] = []

    def walk(path: tuple[str, ...]) -> None:
        if path[-1] == dst:
            found.append(path)
            return
        for a, b in fabric.rate_bps:
            if a == path[-1] and b not in path:
                walk((*path, b))

    walk((src,))
    shortest = min(map(len, found))
    return sorted(path for path in found if len(path) == shortest)


@given(fabrics(), st.integers(0, 100))
@settings(max_examples=examples(60), deadline=None)
def test_routes_against_brute_force(fabric: Fabric, key: int) -> None:
    for src in fabric.hosts:
        for dst in fabric.hosts:
            if src == dst:
                continue
            expected = brute_force(fabric, src, dst)
            assert list(equal_cost_paths(fabric, src, dst)) == expected
            assert route(fabric, src, dst, key) == expected[key % len(expected)]
            taken = Counter(
                route(fabric, src, dst, key + turn) for turn in range(2 * len(expected))
            )
            assert taken == dict.fromkeys(expected, 2)
            for node in {node for path in expected for node in path}:
                hops = {path[path.index(node) + 1] for path in expected if node in path[:-1]}
                assert next_hops(fabric, node, dst) == tuple(sorted(hops))


def test_connections_between_the_same_switches_take_the_spines_in_turn() -> None:
    spines = ["x", "y", "z"]
    fabric = fabric_of(
        [(leaf, spine) for leaf in ("l1", "l2") for spine in spines],
        {**{f"a{i}": "l1" for i in range(6)}, **{f"b{i}": "l2" for i in range(6)}},
    )
    # Between two jobs that cross the spines there is one that stays within a leaf and must not take
    # a turn from them.
    pairs = [(f"a{i}", f"b{i}") for i in range(6)]
    jobs = [Job(f"j{i}", *all_reduce(pair, Fraction(1), 100)) for i, pair in enumerate(pairs)]
    jobs.insert(1, Job("within", *all_reduce(["a0", "a1"], Fraction(1), 100)))
    routes = route_jobs(fabric, jobs)
    assert set(routes) == {
        (f"j{i}", *pair) for i, ab in enumerate(pairs) for pair in (ab, ab[::-1])
    } | {
        ("within", "a0", "a1"),
        ("within", "a1", "a0"),
    }
    assert routes["within", "a0", "a1"] == ("a0", "l1", "a1")
    for (_, src, dst), path in routes.items():
        assert path in equal_cost_paths(fabric, src, dst)
    load = Counter(
        hop for path in routes.values() for hop in pairwise(path) if hop[0] in ("l1", "l2")
    )
    for leaf in ("l1", "l2"):
        assert [load[leaf, spine] for spine in spines] == [2, 2, 2]
    assert routes == route_jobs(fabric, jobs)


def test_no_route() -> None:
    fabric = fabric_of([], {"h1": "s1", "h2": "s1"})
    with pytest.raises(NoRouteError, check=coded("unknown-node", "h9")):
        route(fabric, "h1", "h9", 0)
    apart = Fabric("f", fabric.hosts, fabric.switches, fabric.cables[:1])
    with pytest.raises(NoRouteError, check=coded("no-route", "h1", "h2")):
        equal_cost_paths(apart, "h1", "h2")
    assert next_hops(fabric, "h1", "h1") == ()


@pytest.mark.parametrize("file", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_committed_fabrics(file: Path) -> None:
    fabric = load_fabric(file)
    assert fabric.name.startswith(file.stem)
    hosts = list(fabric.hosts)
    for dst in hosts[1:]:
        assert route(fabric, hosts[0], dst, 0)


@pytest.mark.parametrize(
    ("name", "bottleneck"),
    [
        ("leaf_spine", 50_000_000),
        *((f"{shape}_{n}", 10_000_000) for shape in ("dumbbell", "line") for n in (2, 4)),
    ],
)
def test_hosts_on_different_switches_meet_one_bottleneck(name: str, bottleneck: int) -> None:
    fabric = load_fabric(TOPOLOGIES / f"{name}.yaml")
    hosts = list(fabric.hosts)
    for dst in hosts[1:]:
        path = route(fabric, hosts[0], dst, 0)
        rates = {fabric.rate_bps[hop] for hop in pairwise(path)}
        assert rates == ({10**9, bottleneck} if len(path) > 3 else {10**9})
