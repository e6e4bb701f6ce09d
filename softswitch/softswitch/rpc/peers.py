"""The peers of a server, and who of them gives way where places are few.

A peer is known by the address that it calls from, and by its connection. One address may be that of
several controllers (a laboratory on one machine, a translated network), so connections of the same
address are told apart, too. Nothing here knows gRPC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["LOCAL", "Peer", "crowding", "gives_way", "peer_named"]

_Call = TypeVar("_Call")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a call."""

    address: str
    """The host at the other end, or the name of a socket."""
    connection: str
    """The address and port of the other end."""

    def __str__(self) -> str:
        return self.address


LOCAL = Peer("this process", "this process")
"""A client in the server's own process."""


def peer_named(name: str) -> Peer:
    """Return the peer that gRPC names `name`: "ipv4:10.0.0.1:4711", "ipv6:[::1]:4711", "unix:"."""
    kind, _, rest = name.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return Peer(name, name)
    host, _, _ = rest.rpartition(":")
    # gRPC writes the brackets of IPv6 as in a URI.
    address = host.replace("%5B", "").replace("%5D", "").strip("[]")
    return Peer(address, name)


_Held = Iterable[tuple[_Call, Peer]]


def crowding(held: _Held[_Call]) -> _Call | None:
    """Return the call that takes most from the others, None if there is none.

    It is the oldest of the connection that has most, of the address that has most. A stranger who
    takes all places thus loses its own, however long others have been there.

    Args:
        held: the calls in the order in which they came, with their peers.
    """
    of_address = _of_most(held, _address)
    of_connection = _of_most(of_address, _connection)
    return of_connection[0][0] if of_connection else None


def gives_way(newcomer: Peer, held: _Held[_Call]) -> _Call | None:
    """Return the call whose place is for `newcomer`, None if that has its fair share already.

    Places go from an address that has most to one that has at least two fewer, and likewise between
    connections of an address. So calls do not push each other out for ever.

    Args:
        newcomer: who asks for a place where none is free.
        held: the calls in the order in which they came, with their peers.
    """
    calls = list(held)
    for key in (_address, _connection):
        counts = Counter(key(peer) for _, peer in calls)
        most = max(counts.values(), default=0)
        if most >= counts[key(newcomer)] + 2:
            return crowding(calls)
        calls = [call for call in calls if key(call[1]) == key(newcomer)]
    return None


def _address(peer: Peer) -> str:
    return peer.address


def _connection(peer: Peer) -> str:
    return peer.connection


def _of_most(calls: _Held[_Call], key: Callable[[Peer], str]) -> list[tuple[_Call, Peer]]:
    """Return the calls of the address, or of the connection, that has most of them."""
    calls = list(calls)
    counts = Counter(key(peer) for _, peer in calls)
    most = max(counts, key=counts.__getitem__, default=None)
    return [call for call in calls if key(call[1]) == most]
