"""A switch in virtual time: pipelines that take no time between ports that take their lines'
time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Protocol, cast

from softswitch.tm import Dequeued, PortScheduler
from softswitch.virtual.eventloop import Loop
from softswitch.virtual.wire import Wire


class QueuedPacket(Protocol):
    """A packet that ingress asks the traffic manager to queue."""

    @property
    def port(self) -> int: ...
    @property
    def queue(self) -> int: ...
    @property
    def length_bytes(self) -> int: ...


class DepartedPacket(Protocol):
    """The result of egress for one queued packet."""

    @property
    def port(self) -> int: ...
    @property
    def packet(self) -> bytes | None: ...
    @property
    def requeue(self) -> Sequence[QueuedPacket]: ...


class Pipelines(Protocol):
    """The two halves of a switch, before and behind its traffic manager; `softswitch.Switch` is
    one.
    """

    def ingress(self, port: int, data: bytes, now_ns: int, /) -> Sequence[QueuedPacket]: ...

    def egress(
        self, q: Any, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int, /
    ) -> Sequence[DepartedPacket]: ...


class VirtualDrop(StrEnum):
    """The reason why a packet ended inside a switch."""

    INGRESS = "ingress"
    """The program dropped it before the queues."""
    NO_LINK = "no_link"
    """It was sent to a port without a link. Egress ran for it first, as on any other port."""
    NO_QUEUE = "no_queue"
    """It was sent to a queue that the port does not have."""
    QUEUE_FULL = "queue_full"
    """Its queue had no room."""
    EGRESS = "egress"
    """The program dropped it behind the queues."""


class _Outlet:
    """An egress port: its queues, its wire, and the instants at which it will look at them."""

    __slots__ = ("port", "scheduler", "wakes_ns", "wire")

    def __init__(self, port: int, scheduler: PortScheduler, wire: Wire) -> None:
        self.port = port
        self.scheduler = scheduler
        self.wire = wire
        self.wakes_ns: set[int] = set()


class VirtualSwitch:
    """A switch that runs ingress when a packet has arrived and egress when its turn has come, both
    in no time.

    Packets in plus `replicated` always equals packets out plus dropped plus queued
    (`VirtualFabric.check`).
    """

    __slots__ = (
        "_loop",
        "_outlets",
        "_unlinked",
        "dropped",
        "name",
        "packets_in",
        "packets_injected",
        "packets_out",
        "ports",
        "replicated",
        "switch",
    )

    def __init__(self, loop: Loop, name: str, switch: Pipelines) -> None:
        self._loop = loop
        self._outlets: dict[int, _Outlet] = {}
        self._unlinked = 0  # packets about to pass egress at ports without a link
        self.name = name
        self.switch = switch
        """The pipeline.

        It may be replaced at any time; waiting packets still leave by the one that queued them.
        """
        self.ports: dict[int, PortScheduler] = {}
        """The queues of each connected port, which may be configured at any time."""
        self.packets_in = self.packets_out = 0
        self.packets_injected = 0
        """The `packets_in` that no wire delivered."""
        self.replicated = 0
        """Packets that the switch made itself: each copy beyond the first of a multicast or a
        clone.
        """
        self.dropped: Counter[VirtualDrop] = Counter()

    @property
    def packets_dropped(self) -> int:
        """Return the number of packets that ended here, for any reason."""
        return sum(self.dropped.values())

    @property
    def packets_queued(self) -> int:
        """Return the number of packets waiting in the queues of all ports, or on their way to a
        port without a link.
        """
        return self._unlinked + sum(scheduler.queued_packets for scheduler in self.ports.values())

    def check_free(self, port: int) -> None:
        """Raise ValueError if `port` cannot be connected."""
        if port in self._outlets:
            raise ValueError(f"{self.name}: port {port} is already connected")

    def attach(self, port: int, wire: Wire) -> None:
        """Connect a port to its outgoing wire, with queues of the wire's rate.

        Raise as `check_free` does.
        """
        self.check_free(port)
        scheduler = PortScheduler(wire.line.rate_bps)
        outlet = _Outlet(port, scheduler, wire)
        scheduler.on_reconfigured = partial(self._on_reconfigured, outlet)
        self.ports[port] = scheduler
        self._outlets[port] = outlet

    def inject(self, port: int, data: bytes) -> None:
        """Process a packet as if it had come in at `port`, now: a controller's packet-out, for
        example.
        """
        self.packets_injected += 1
        self.receive(port, data)

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet from the wire of `port`."""
        now_ns = self._loop.now_ns
        self.packets_in += 1
        switch = self.switch
        queued = switch.ingress(port, data, now_ns)
        if not queued:
            self.dropped[VirtualDrop.INGRESS] += 1
            return
        self.replicated += len(queued) - 1
        # All copies are in their queues before any port chooses: the order of copies is not an
        # order of service.
        for outlet in self._admit(queued, switch, now_ns):
            self._serve(outlet, now_ns)

    def _admit(
        self, packets: Iterable[QueuedPacket], switch: Pipelines, now_ns: int
    ) -> list[_Outlet]:
        """Queue packets that `switch` made. Return the ports that got some."""
        outlets: list[_Outlet] = []
        for packet in packets:
            outlet = self._outlets.get(packet.port)
            if outlet is None:
                # Programs recirculate through ports that nothing is connected to.
                self._unlinked += 1
                self._loop.at(now_ns, self._depart_unlinked, switch, packet, now_ns)
            elif outlet.scheduler.enqueue(
                packet.queue, (switch, packet), packet.length_bytes, now_ns
            ):
                if outlet not in outlets:
                    outlets.append(outlet)
            else:
                exists = 0 <= packet.queue < outlet.scheduler.queues
                self.dropped[VirtualDrop.QUEUE_FULL if exists else VirtualDrop.NO_QUEUE] += 1
        return outlets

    def _serve(self, outlet: _Outlet, now_ns: int) -> None:
        """Send from a port while its line is free, then schedule the next call."""
        scheduler = outlet.scheduler
        line = outlet.wire.line
        while line.free_ns <= now_ns:
            leaving = scheduler.dequeue(now_ns)
            if leaving is None:
                break
            if self._depart(outlet, leaving, now_ns):
                # a program may requeue for ever; through the event loop, its caller can end that
                break
        ready_ns = scheduler.next_eligible_ns(now_ns)
        if ready_ns is not None:
            self._wake_at(outlet, max(ready_ns, line.free_ns))

    def _depart(self, outlet: _Outlet, leaving: Dequeued, now_ns: int) -> bool:
        """Run egress for one packet and send the result.

        Return whether something went back to a queue.
        """
        switch, packet = cast("tuple[Pipelines, QueuedPacket]", leaving.item)
        departures = switch.egress(
            packet, leaving.enq_ns, now_ns, leaving.enq_qdepth_pkts, leaving.deq_qdepth_pkts
        )
        sent_bytes = self._send(outlet, departures, switch, now_ns)
        if sent_bytes != leaving.length_bytes:
            outlet.scheduler.correct_line(sent_bytes - leaving.length_bytes)
        return any(departure.requeue for departure in departures)

    def _depart_unlinked(self, switch: Pipelines, packet: QueuedPacket, now_ns: int) -> None:
        """Run egress for a packet at a port without queues and line."""
        self._unlinked -= 1
        self._send(None, switch.egress(packet, now_ns, now_ns, 0, 0), switch, now_ns)

    def _send(
        self,
        outlet: _Outlet | None,
        departures: Sequence[DepartedPacket],
        switch: Pipelines,
        now_ns: int,
    ) -> int:
        """Send what egress made of a packet that left `outlet`.

        Return the number of bytes on `outlet`'s own line.
        """
        made = sent_bytes = 0
        for departure in departures:
            data = departure.packet
            if data is not None:
                made += 1
                own = outlet is not None and departure.port == outlet.port
                way = outlet if own else self._outlets.get(departure.port)
                if way is None:
                    self.dropped[VirtualDrop.NO_LINK] += 1
                else:
                    self.packets_out += 1
                    way.wire.transmit(data)
                    if own:
                        sent_bytes += len(data)
            if departure.requeue:
                made += len(departure.requeue)
                for other in self._admit(departure.requeue, switch, now_ns):
                    self._wake_at(other, now_ns)
        if made:
            self.replicated += made - 1
        else:
            self.dropped[VirtualDrop.EGRESS] += 1
        return sent_bytes

    def _wake_at(self, outlet: _Outlet, time_ns: int) -> None:
        if time_ns not in outlet.wakes_ns:
            outlet.wakes_ns.add(time_ns)
            self._loop.at(time_ns, self._on_wake, outlet, time_ns)

    def _on_wake(self, outlet: _Outlet, time_ns: int) -> None:
        outlet.wakes_ns.remove(time_ns)
        self._serve(outlet, time_ns)

    def _on_reconfigured(self, outlet: _Outlet, _now_ns: int) -> None:
        self._wake_at(outlet, self._loop.now_ns)
