"""The fabric: hosts, switches, links and their capacities, with the port numbers and addresses that lowering needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from echelon.fabric.routing import ShortestPaths


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
    drained: frozenset[frozenset[str]] = frozenset()
    """Links, as pairs of nodes, that no path may lead over. They keep their ports and what is configured there."""

    def without(self, links: Iterable[tuple[str, str]]) -> Fabric:
        """The same fabric with these links drained, and no others. Raises `ValueError` for what is no link of it."""
        drained = frozenset(frozenset(link) for link in links)
        for link in drained:
            if tuple(link) not in self.rate_bps:
                raise ValueError(f"{' and '.join(sorted(link))} are not linked in fabric {self.name}")
        other = replace(self, drained=drained)
        # What does not depend on it is found once, and is the same object for whoever compares.
        other.__dict__.update({name: getattr(self, name) for name in _WIRING})
        return other

    @cached_property
    def usable(self) -> tuple[CableLink, ...]:
        """The cables that paths may lead over."""
        return tuple(c for c in self.cables if frozenset((c.a.node, c.b.node)) not in self.drained)

    @cached_property
    def rate_bps(self) -> Mapping[tuple[str, str], int]:
        """Capacity of each directed link (node, next node), bits per second."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = out[c.b.node, c.a.node] = c.rate_bps
        return out

    @cached_property
    def capacity_Bps(self) -> Mapping[tuple[str, str], Fraction]:  # noqa: N802
        """The same in bytes per second."""
        rates = {rate: Fraction(rate, 8) for rate in set(self.rate_bps.values())}
        return {link: rates[rate] for link, rate in self.rate_bps.items()}

    @cached_property
    def port_to(self) -> Mapping[tuple[str, str], int]:
        """Port of the first node that leads to the second, its neighbour."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = c.a.port
            out[c.b.node, c.a.node] = c.b.port
        return out

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, str]]:
        """By node: its ports, and the node at the other end of each."""
        out: dict[str, dict[int, str]] = {name: {} for name in (*self.hosts, *self.switches)}
        for (node, other), port in self.port_to.items():
            out[node][port] = other
        return out

    @cached_property
    def neighbour(self) -> Mapping[tuple[str, int], str]:
        """Node at the other end of (node, port)."""
        return {(n, p): m for (n, m), p in self.port_to.items()}

    @cached_property
    def shortest_paths(self) -> ShortestPaths:
        """From edge switch to edge switch, found when they are first asked for."""
        from echelon.fabric.routing import ShortestPaths

        return ShortestPaths(self)

    @cached_property
    def next_hops(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Neighbours of a switch on its shortest paths to a host, by (switch, host); none where there is no path."""
        from echelon.fabric.routing import next_hops_of_switches

        return next_hops_of_switches(self)


_WIRING = ("rate_bps", "capacity_Bps", "port_to", "ports", "neighbour")
"""Properties that do not depend on which links are drained."""
