"""The fabric: hosts, switches, links and their capacities, with the port numbers and addresses that lowering needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    ipv4: str
    mac: str


@dataclass(frozen=True, slots=True)
class Switch:
    name: str
    device_id: int


@dataclass(frozen=True, slots=True)
class LinkEnd:
    node: str
    port: int
    """1.. on a switch; 0 on a host, which has one interface."""


@dataclass(frozen=True, slots=True)
class CableLink:
    """A full-duplex link."""

    a: LinkEnd
    b: LinkEnd
    rate_bps: int
    """Of each direction."""
    delay_s: Fraction


@dataclass(frozen=True)
class Fabric:
    name: str
    hosts: Mapping[str, Host]
    switches: Mapping[str, Switch]
    cables: tuple[CableLink, ...]

    @cached_property
    def rate_bps(self) -> Mapping[tuple[str, str], int]:
        """Capacity of each directed link (node, next node), bits per second."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = out[c.b.node, c.a.node] = c.rate_bps
        return out

    @cached_property
    def port_to(self) -> Mapping[tuple[str, str], int]:
        """Port of the first node that leads to the second, its neighbour."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = c.a.port
            out[c.b.node, c.a.node] = c.b.port
        return out

    @cached_property
    def neighbour(self) -> Mapping[tuple[str, int], str]:
        """Node at the other end of (node, port)."""
        return {(n, p): m for (n, m), p in self.port_to.items()}

    @cached_property
    def next_hops(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Neighbours of a switch on its shortest paths to a host, by (switch, host). Raises `NoRouteError`."""
        from echelon.fabric.routing import next_hops_of_switches

        return next_hops_of_switches(self)
