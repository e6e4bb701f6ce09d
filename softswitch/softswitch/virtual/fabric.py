"""Switches and hosts joined by links, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softswitch.virtual.conservation import Conservation, ConservationError, SwitchAccount, WireAccount
from softswitch.virtual.eventloop import EventLoop
from softswitch.virtual.host import VirtualHost
from softswitch.virtual.switch import Pipelines, VirtualSwitch
from softswitch.virtual.wire import Wire

Endpoint = tuple[VirtualSwitch | VirtualHost | str, int]
"""A node, or its name, and a port of it; the port of a host is 0."""


@dataclass(frozen=True, slots=True)
class Link:
    """The two directions of a link, in the order in which its ends were given."""

    forward: Wire
    backward: Wire


class VirtualFabric:
    """Nodes and links on one event loop. Node names are unique. Raises ValueError for a fabric that cannot be built."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.switches: dict[str, VirtualSwitch] = {}
        self.hosts: dict[str, VirtualHost] = {}
        self.links: list[Link] = []

    def add_switch(self, name: str, switch: Pipelines) -> VirtualSwitch:
        """Add a switch without links."""
        self._check_new(name)
        node = self.switches[name] = VirtualSwitch(self.loop, name, switch)
        return node

    def add_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> VirtualHost:
        """Add a host without a link; `on_packet(now_ns, data)` receives what arrives there."""
        self._check_new(name)
        node = self.hosts[name] = VirtualHost(self.loop, name, on_packet)
        return node

    def connect(self, one: Endpoint, other: Endpoint, rate_bps: int, delay_ns: int) -> Link:
        """Add a full-duplex link of `rate_bps` each way; the last bit of a packet takes `delay_ns` to the other end."""
        ends = self._free_port(one), self._free_port(other)
        if ends[0] == ends[1]:
            raise ValueError(f"{ends[0][0].name}: port {ends[0][1]} cannot be connected to itself")
        link = Link(
            Wire(self.loop, ends[0], ends[1], rate_bps, delay_ns), Wire(self.loop, ends[1], ends[0], rate_bps, delay_ns)
        )
        for (node, port), wire in zip(ends, (link.forward, link.backward), strict=True):
            node.attach(port, wire)
        self.links.append(link)
        return link

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the event loop (`EventLoop.run`), then `check`. Return the number of events."""
        events = self.loop.run(until_ns, max_events)
        self.check()
        return events

    def conservation(self) -> Conservation:
        """Return the present whereabouts of every packet."""
        wires = [wire for link in self.links for wire in (link.forward, link.backward)]
        return Conservation(
            now_ns=self.loop.now_ns,
            switches=tuple(
                SwitchAccount(
                    node.name,
                    node.packets_in,
                    node.replicated,
                    node.packets_out,
                    {reason.value: count for reason, count in sorted(node.dropped.items())},
                    node.packets_queued,
                )
                for node in self.switches.values()
            ),
            wires=tuple(WireAccount(wire.name, wire.sent_packets, wire.delivered_packets) for wire in wires),
            host_sent=sum(host.packets_sent for host in self.hosts.values()),
            host_received=sum(host.packets_received for host in self.hosts.values()),
            injected=sum(node.packets_injected for node in self.switches.values()),
            events_pending=self.loop.pending,
        )

    def check(self) -> None:
        """Raise ConservationError unless every packet is accounted for."""
        faults = self.conservation().faults
        if faults:
            raise ConservationError(f"at {self.loop.now_ns} ns: " + "; ".join(faults))

    def _check_new(self, name: str) -> None:
        if name in self.switches or name in self.hosts:
            raise ValueError(f"{name}: there already is a node of that name")

    def _free_port(self, endpoint: Endpoint) -> tuple[VirtualSwitch | VirtualHost, int]:
        node, port = endpoint
        if isinstance(node, str):
            known = self.switches.get(node) or self.hosts.get(node)
            if known is None:
                raise ValueError(f"{node}: there is no node of that name; add it before connecting it")
            node = known
        node.check_free(port)
        return node, port
