"""Packets that walk through the entries of several switches, as the P4 program looks them up: for
tests of routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.identity import Identity, ShimIdentity
from echelon.switches.lowering.intent import ActionCall, Interval, Prefix, TableEntry

Match = tuple[frozenset[tuple[str, object]], int]
Tables = dict[str, dict[Match, tuple[ActionCall, ...]]]
"""The entries of one switch, by table and by what it tells them apart by."""


@dataclass(frozen=True)
class Packet:
    """A packet of a flow, in the middle of it."""

    identity: Identity
    dst: str
    """The name of a host."""


def match_of(entry: TableEntry) -> Match:
    """Return what a table tells its entries apart by."""
    return frozenset(entry.match), entry.priority


def tables_of(entries: Iterable[TableEntry]) -> Tables:
    """Return the tables of a switch that holds these entries."""
    tables: Tables = {}
    for entry in entries:
        tables.setdefault(entry.table, {})[match_of(entry)] = entry.actions
    return tables


def ports(tables: Tables, packet: Packet, address: int) -> frozenset[int]:
    """Return the ports that a switch may send a packet to; none if it drops the packet."""
    for flow in _flow(tables, packet.identity):
        for action in _find(tables, "flow", flow=flow):
            return frozenset({dict(action.arguments)["port"]})
    routes = _find(tables, "ipv4_lpm", dst=Prefix(address, 32))
    if routes and routes[0].name == "spread":
        routes = _find(tables, "ecmp", group=dict(routes[0].arguments)["group"])
    return frozenset(dict(action.arguments)["port"] for action in routes)


def faults(
    tables: Mapping[str, Tables],
    fabric: Fabric,
    packet: Packet,
    at: str,
    before: tuple[str, ...] = (),
) -> Iterator[str]:
    """Yield every way in which a packet that is at `at` may not reach its host: loops, drops, and
    wrong hosts.
    """
    way = (*before, at)
    if at in before:
        yield f"{packet} circles: {' > '.join(way)}"
    elif at in fabric.hosts:
        if at != packet.dst:
            yield f"{packet} comes to {at}: {' > '.join(way)}"
    else:
        following = next_nodes(tables[at], fabric, packet, at)
        if not following:
            yield f"{packet} is dropped: {' > '.join(way)}"
        for node in following:
            yield from faults(tables, fabric, packet, node, way)


def next_nodes(tables: Tables, fabric: Fabric, packet: Packet, at: str) -> list[str]:
    """Return the nodes to which a switch may send a packet; none if it drops the packet, or the
    port leads nowhere.
    """
    address = int.from_bytes(bytes(map(int, fabric.hosts[packet.dst].ipv4.split("."))), "big")
    leaving = sorted(ports(tables, packet, address))
    return [fabric.neighbour[at, port] for port in leaving if (at, port) in fabric.neighbour]


def _flow(tables: Tables, identity: Identity) -> Iterator[int]:
    """Yield the number of the flow, if the switch recognises it."""
    if isinstance(identity, ShimIdentity):
        found = _find(tables, "shim_flow", job=identity.job, flow=identity.flow)
    else:
        ends = [
            int.from_bytes(bytes(map(int, one.split("."))), "big")
            for one in (identity.src_ipv4, identity.dst_ipv4)
        ]
        key = {
            "src": ends[0],
            "dst": ends[1],
            "src_port": identity.src_port,
            "dst_port": identity.dst_port,
        }
        connections = _find(tables, f"{identity.protocol}_connection", **key)
        position = (identity.start_bytes + identity.end_bytes) // 2
        found = tuple(
            action
            for connection in connections
            for (match, _), actions in tables.get("segment", {}).items()
            if (fields := dict(match))["connection"] == dict(connection.arguments)["connection"]
            and _fits(fields["position"], position)
            for action in actions
        )
    for action in found:
        yield dict(action.arguments)["flow"]


def _fits(match: object, value: int) -> bool:
    if isinstance(match, Prefix):
        return match.value >> (32 - match.length) == value >> (32 - match.length)
    assert isinstance(match, Interval)
    return match.low <= value <= match.high


def _find(tables: Tables, table: str, **match: object) -> tuple[ActionCall, ...]:
    return tables.get(table, {}).get((frozenset(match.items()), 0), ())
