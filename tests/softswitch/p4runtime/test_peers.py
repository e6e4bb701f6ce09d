"""Tests of who gives way where places are few: by address, then by connection, then by age."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.rpc.peers import Peer, crowding, gives_way, peer_named

A, B, C = (peer_named(f"ipv4:192.0.2.{number}:1000") for number in (1, 2, 3))
A_AGAIN = peer_named("ipv4:192.0.2.1:2000")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("ipv4:192.0.2.1:4711", "192.0.2.1"),
        ("ipv6:%5B2001:db8::1%5D:4711", "2001:db8::1"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::1"),
        ("unix:", "unix:"),
        ("this process", "this process"),
    ],
)
def test_peers_have_addresses_and_connections(name: str, address: str) -> None:
    assert peer_named(name) == Peer(address, name)


def test_the_oldest_of_the_connection_that_has_most_is_crowding() -> None:
    assert crowding([]) is None
    assert crowding([(1, B), (2, A), (3, A)]) == 2
    assert crowding([(1, A), (2, A_AGAIN), (3, A_AGAIN), (4, B)]) == 2
    assert crowding([(1, A), (2, B), (3, C)]) == 1


def test_a_place_goes_to_who_has_two_fewer() -> None:
    assert gives_way(B, [(1, A), (2, A)]) == 1
    assert gives_way(B, [(1, A), (2, A), (3, B)]) is None
    assert gives_way(A_AGAIN, [(1, A), (2, A)]) == 1
    assert gives_way(A, [(1, A), (2, A)]) is None


@given(st.lists(st.sampled_from([A, A_AGAIN, B, C]), max_size=40))
def test_places_are_shared_until_nobody_is_due_more(newcomers: list[Peer]) -> None:
    """Each address gets its share of six places, whichever of them call again and again."""
    held: list[tuple[int, Peer]] = []
    for number, peer in enumerate(newcomers + [A, B, C] * 6):
        if len(held) == 6:
            leaving = gives_way(peer, held)
            if leaving is None:
                continue
            held = [call for call in held if call[0] != leaving]
        held.append((number, peer))
    assert sorted(peer.address for _, peer in held) == sorted([A.address, B.address, C.address] * 2)
