"""The fabric: hosts, switches, links and their capacities, port numbers and addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from echelon.fabric.paths import ShortestPaths


@dataclass(frozen=True, slots=True)
class Host:
    """An end host; it has one interface."""

    name: str
    ipv4: str
    mac: str


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch and its P4Runtime device id."""

    name: str
    device_id: int


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link: a port of a node."""

    node: str
    port: int
    """The port number: from 1 on a switch; 0 on a host, which has one interface."""


@dataclass(frozen=True, slots=True)
class CableLink:
    """A full-duplex link."""

    a: LinkEnd
    b: LinkEnd
    rate_bps: int
    """The capacity of each direction, bits per second."""
    delay_s: Fraction
    """The propagation delay, seconds."""


@dataclass(frozen=True)
class Fabric:
    """Hosts and switches by name, and the links between them."""

    name: str
    hosts: Mapping[str, Host]
    switches: Mapping[str, Switch]
    cables: tuple[CableLink, ...]
    drained: frozenset[frozenset[str]] = frozenset()
    """Links, as pairs of nodes, that no path may use. They keep their ports and what is configured there."""

    def without(self, links: Iterable[tuple[str, str]]) -> Fabric:
        """Return the same fabric with exactly these links drained. Raises `ValueError` if two nodes are not linked."""
        drained = frozenset(frozenset(link) for link in links)
        for link in drained:
            if tuple(link) not in self.rate_bps:
                raise ValueError(f"{' and '.join(sorted(link))} are not linked in fabric {self.name}")
        other = replace(self, drained=drained)
        # What does not depend on drained links is computed once, and stays the same object for those who compare it.
        other.__dict__.update({name: getattr(self, name) for name in _WIRING})
        return other

    @cached_property
    def usable_links(self) -> tuple[tuple[str, str], ...]:
        """Return the links that paths may use, as pairs of nodes."""
        links = ((c.a.node, c.b.node) for c in self.cables)
        return tuple(link for link in links if frozenset(link) not in self.drained)

    @cached_property
    def rate_bps(self) -> Mapping[tuple[str, str], int]:
        """Return the capacity of each directed link (node, next node), bits per second."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = out[c.b.node, c.a.node] = c.rate_bps
        return out

    @cached_property
    def capacity_Bps(self) -> Mapping[tuple[str, str], Fraction]:  # noqa: N802
        """Return the capacity of each directed link (node, next node), bytes per second."""
        rates = {rate: Fraction(rate, 8) for rate in set(self.rate_bps.values())}
        return {link: rates[rate] for link, rate in self.rate_bps.items()}

    @cached_property
    def port_to(self) -> Mapping[tuple[str, str], int]:
        """Return, by (node, neighbour), the port of the node that leads to the neighbour."""
        out: dict[tuple[str, str], int] = {}
        for c in self.cables:
            out[c.a.node, c.b.node] = c.a.port
            out[c.b.node, c.a.node] = c.b.port
        return out

    @cached_property
    def ports(self) -> Mapping[str, Mapping[int, str]]:
        """Return, by node, its ports and the node at the other end of each."""
        out: dict[str, dict[int, str]] = {name: {} for name in (*self.hosts, *self.switches)}
        for (node, other), port in self.port_to.items():
            out[node][port] = other
        return out

    @cached_property
    def neighbour(self) -> Mapping[tuple[str, int], str]:
        """Return the node at the other end of each (node, port)."""
        return {(n, p): m for (n, m), p in self.port_to.items()}

    @cached_property
    def shortest_paths(self) -> ShortestPaths:
        """Return the shortest paths over links that are not drained."""
        return ShortestPaths(self.hosts, self.switches, self.usable_links)

    @cached_property
    def next_hops(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """Return the neighbours of a switch on its shortest paths to a host, by (switch, host); none if no path."""
        return self.shortest_paths.next_hops()


_WIRING = ("rate_bps", "capacity_Bps", "port_to", "ports", "neighbour")
"""Properties that do not depend on which links are drained."""
