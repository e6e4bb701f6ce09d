"""Switches and hosts joined by links, in virtual time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from softswitch.tm import PortQueues
from softswitch.virtual.conservation import (
    Conservation,
    ConservationError,
    SwitchAccount,
    WireAccount,
)
from softswitch.virtual.eventloop import Loop
from softswitch.virtual.switch import Pipelines, VirtualDrop

Urgency = Callable[[int], tuple[float, ...]]
"""The urgency of packets at a time in nanoseconds, as numbers that decide in their order."""


class Node(Protocol):
    """A node that a wire can end at."""

    @property
    def name(self) -> str: ...

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet whose last bit has come in at `port`, now."""


class WireLine(Protocol):
    """One direction of a link."""

    @property
    def name(self) -> str: ...
    @property
    def sent_packets(self) -> int: ...
    @property
    def sent_bytes(self) -> int: ...
    @property
    def delivered_packets(self) -> int: ...


class HostNode(Protocol):
    """A host with one network interface."""

    on_packet: Callable[[int, bytes], None]

    @property
    def name(self) -> str: ...
    @property
    def backlog_bytes(self) -> int: ...
    @property
    def packets_sent(self) -> int: ...
    @property
    def packets_received(self) -> int: ...
    @property
    def packets_dropped(self) -> int: ...
    def check_free(self, port: int) -> None: ...
    def attach(self, port: int, wire: Any) -> None: ...
    def send(self, data: bytes, urgency: Urgency | None = None) -> None: ...
    def receive(self, port: int, data: bytes) -> None: ...


class SwitchNode(Protocol):
    """A switch between the wires of its ports."""

    switch: Pipelines

    @property
    def name(self) -> str: ...
    @property
    def ports(self) -> dict[int, PortQueues]: ...
    @property
    def packets_in(self) -> int: ...
    @property
    def packets_injected(self) -> int: ...
    @property
    def packets_out(self) -> int: ...
    @property
    def replicated(self) -> int: ...
    @property
    def dropped(self) -> Counter[VirtualDrop]: ...
    @property
    def packets_dropped(self) -> int: ...
    @property
    def packets_queued(self) -> int: ...
    def check_free(self, port: int) -> None: ...
    def attach(self, port: int, wire: Any) -> None: ...
    def inject(self, port: int, data: bytes) -> None: ...
    def receive(self, port: int, data: bytes) -> None: ...


Endpoint = tuple[SwitchNode | HostNode | str, int]
"""A node, or its name, and a port of it; the port of a host is 0."""


@dataclass(frozen=True, slots=True)
class Link:
    """The two directions of a link, in the order in which its ends were given."""

    forward: WireLine
    backward: WireLine


class FabricOfNodes(ABC):
    """Nodes and links on one event loop.

    Node names are unique. Raises ValueError for a fabric that cannot be built.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.switches: dict[str, SwitchNode] = {}
        self.hosts: dict[str, HostNode] = {}
        self.links: list[Link] = []

    def add_switch(self, name: str, switch: Pipelines) -> SwitchNode:
        """Add a switch without links."""
        self._check_new(name)
        node = self.switches[name] = self._new_switch(name, switch)
        return node

    def add_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> HostNode:
        """Add a host without a link; `on_packet(now_ns, data)` receives what arrives there."""
        self._check_new(name)
        node = self.hosts[name] = self._new_host(name, on_packet)
        return node

    def connect(
        self,
        first: Endpoint,
        second: Endpoint,
        rate_bps: int,
        delay_ns: int,
    ) -> Link:
        """Add a full-duplex link of `rate_bps` each way.

        The last bit of a packet takes `delay_ns` to the other end.
        """
        near = self._free_port(first)
        far = self._free_port(second)
        node, port = near
        if near == far:
            raise ValueError(f"{node.name}: port {port} cannot be connected to itself")
        forward = self._new_wire(near, far, rate_bps, delay_ns)
        backward = self._new_wire(far, near, rate_bps, delay_ns)
        node.attach(port, forward)
        node, port = far
        node.attach(port, backward)

        link = Link(forward, backward)
        self.links.append(link)
        return link

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the event loop, then `check`. Return the number of events."""
        events = self.loop.run(until_ns, max_events)
        # A fault in an account is the simulator's, so no result of this run can be trusted.
        self.check()
        return events

    def conservation(self) -> Conservation:
        """Return the present whereabouts of every packet."""
        switches = tuple(map(_switch_account, self.switches.values()))
        wires: list[WireAccount] = []
        for link in self.links:
            for wire in (link.forward, link.backward):
                account = WireAccount(wire.name, wire.sent_packets, wire.delivered_packets)
                wires.append(account)
        host_sent = 0
        host_received = 0
        for host in self.hosts.values():
            host_sent += host.packets_sent
            host_received += host.packets_received
        injected = sum(node.packets_injected for node in self.switches.values())
        return Conservation(
            now_ns=self.loop.now_ns,
            switches=switches,
            wires=tuple(wires),
            host_sent=host_sent,
            host_received=host_received,
            injected=injected,
            events_pending=self.loop.pending,
        )

    def check(self) -> None:
        """Raise ConservationError unless every packet is accounted for."""
        faults = self.conservation().faults
        if faults:
            raise ConservationError(f"at {self.loop.now_ns} ns: " + "; ".join(faults))

    @abstractmethod
    def _new_switch(self, name: str, switch: Pipelines) -> SwitchNode: ...

    @abstractmethod
    def _new_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> HostNode: ...

    @abstractmethod
    def _new_wire(
        self,
        source: Any,
        destination: Any,
        rate_bps: int,
        delay_ns: int,
    ) -> WireLine:
        """Return one direction of a link between a node's port and another's."""

    def _check_new(self, name: str) -> None:
        if name in self.switches or name in self.hosts:
            raise ValueError(f"{name}: there already is a node of that name")

    def _free_port(self, endpoint: Endpoint) -> tuple[SwitchNode | HostNode, int]:
        node, port = endpoint
        if isinstance(node, str):
            named = self.switches.get(node) or self.hosts.get(node)
            if named is None:
                raise ValueError(
                    f"{node}: there is no node of that name; add it before connecting it"
                )
            node = named
        node.check_free(port)
        return node, port


def _switch_account(node: SwitchNode) -> SwitchAccount:
    dropped = {reason.value: count for reason, count in sorted(node.dropped.items())}
    return SwitchAccount(
        node.name,
        node.packets_in,
        node.replicated,
        node.packets_out,
        dropped,
        node.packets_queued,
    )
