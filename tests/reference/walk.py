"""Packets that walk through the entries of several switches, as the P4 program looks them up: for tests of routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from echelon.fabric.model import Fabric
from echelon.lowering.intent import ActionCall, Prefix, TableEntry

Key = tuple[str, object]
Tables = dict[Key, tuple[ActionCall, ...]]
"""The entries of one switch."""


@dataclass(frozen=True)
class Packet:
    """A packet with the shim header."""

    job: int
    flow: int
    dst: str
    """The name of a host."""


def key_of(entry: TableEntry) -> Key:
    """Return what a switch tells entries apart by."""
    return entry.table, (frozenset(entry.match), entry.priority)


def tables_of(entries: Iterable[TableEntry]) -> Tables:
    """Return the tables of a switch that holds these entries."""
    return {key_of(entry): entry.actions for entry in entries}


def _find(tables: Tables, table: str, **match: object) -> tuple[ActionCall, ...]:
    return tables.get((table, (frozenset(match.items()), 0)), ())


def ports(tables: Tables, packet: Packet, address: int) -> frozenset[int]:
    """Return the ports that a switch may send a packet to; none if it drops the packet."""
    for recognised in _find(tables, "shim_flow", job=packet.job, flow=packet.flow):
        for action in _find(tables, "flow", flow=dict(recognised.arguments)["flow"]):
            return frozenset({dict(action.arguments)["port"]})
    routes = _find(tables, "ipv4_lpm", dst=Prefix(address, 32))
    if routes and routes[0].name == "spread":
        routes = _find(tables, "ecmp", group=dict(routes[0].arguments)["group"])
    return frozenset(dict(action.arguments)["port"] for action in routes)


def faults(
    tables: Mapping[str, Tables], fabric: Fabric, packet: Packet, at: str, before: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield every way in which a packet that is at `at` may not reach its host: loops, drops, and wrong hosts."""
    way = (*before, at)
    if at in before:
        yield f"{packet} circles: {' > '.join(way)}"
    elif at in fabric.hosts:
        if at != packet.dst:
            yield f"{packet} comes to {at}: {' > '.join(way)}"
    else:
        leaving = ports(tables[at], packet, _address(fabric.hosts[packet.dst].ipv4))
        if not leaving:
            yield f"{packet} is dropped: {' > '.join(way)}"
        for port in sorted(leaving):
            there = fabric.neighbour.get((at, port))
            if there is None:
                yield f"{packet} leaves by port {port}, which leads nowhere: {' > '.join(way)}"
            else:
                yield from faults(tables, fabric, packet, there, way)


def _address(ipv4: str) -> int:
    return int.from_bytes(bytes(map(int, ipv4.split("."))), "big")
