"""Names of interfaces: what the kernel takes, and no two alike."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
from hypothesis import given

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon_lab.hosts.backends.interfaces import address_setups, interface_names, neighbour_setups

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,31}", fullmatch=True)


def star(switch: str, hosts: list[str], first_port: int = 1) -> Fabric:
    return Fabric(
        "star",
        {
            name: Host(name, f"10.{n}.0.1", f"02:00:00:00:00:{n:02x}")
            for n, name in enumerate(hosts)
        },
        {switch: Switch(switch, 1)},
        tuple(
            CableLink(LinkEnd(name, 0), LinkEnd(switch, first_port + n), 10**6, Fraction(0))
            for n, name in enumerate(hosts)
        ),
    )


@given(st.lists(NAMES, min_size=2, max_size=30, unique=True), st.integers(1, 480))
def test_they_are_short_and_unique(names: list[str], first_port: int) -> None:
    switch, *hosts = names
    given_out = interface_names(star(switch, hosts, first_port))
    assert len(given_out) == 2 * len(hosts)
    assert len(set(given_out.values())) == len(given_out)
    for (node, port), name in given_out.items():
        assert len(name) <= 15
        assert name.endswith(f"-eth{port}")
        stem = name.removesuffix(f"-eth{port}")
        assert stem == node or (len(node) > 8 and stem.partition(".")[0] == node[: stem.index(".")])


def test_usual_names_are_whole() -> None:
    names = interface_names(star("s1", ["h1", "h2"]))
    assert names == {
        ("h1", 0): "h1-eth0",
        ("h2", 0): "h2-eth0",
        ("s1", 1): "s1-eth1",
        ("s1", 2): "s1-eth2",
    }


def test_a_host_of_another_network_has_a_route() -> None:
    fabric = star("s1", ["h1", "h2"])
    assert address_setups(fabric, {"h1": "h1-eth0"})["h1"] == (
        "link set lo up",
        "address add 10.0.0.1/16 dev h1-eth0",
        "link set h1-eth0 up",
    )
    assert neighbour_setups(fabric, {"h1": "h1-eth0"})["h1"] == [
        "route replace 10.1.0.0/16 dev h1-eth0",
        "neighbour replace 10.1.0.1 lladdr 02:00:00:00:00:01 dev h1-eth0 nud permanent",
    ]
