"""Virtual time in plain Python: the oracle of `softswitch/native/fabric.c`.

Every class has the interface of its like in `softswitch.native.fabric`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, cast

from softswitch.virtual.eventloop import Loop, check_time
from softswitch.virtual.fabric import FabricOfNodes, HostNode, Node, SwitchNode, Urgency, WireLine
from softswitch.virtual.switch import DepartedPacket, Pipelines, QueuedPacket, VirtualDrop
from tests.reference.traffic_manager import Dequeued, Pacer, PortScheduler

__all__ = ["EventLoop", "VirtualFabric", "VirtualHost", "VirtualSwitch", "Wire"]


class EventLoop:
    """A clock that jumps from event to event.

    It is not thread-safe: threads that share it hold a lock around `run`.
    """

    __slots__ = ("_events", "_running", "_scheduled", "_stopped", "now_ns")

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        """The present time. Callers read it and never write it."""
        self._events: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []
        self._scheduled = 0  # breaks ties, so that callbacks are never compared
        self._running = False
        self._stopped = False

    def call_at(self, time_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` at `time_ns`.

        Raise ValueError for a time in the past, TypeError for anything but an integer.
        """
        if time_ns < self.now_ns or not isinstance(time_ns, int):
            check_time(time_ns, self.now_ns)
        self._scheduled += 1
        heappush(self._events, (time_ns, self._scheduled, callback, args))

    def after(self, delay_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` in `delay_ns`. Raise as `call_at` does."""
        self.call_at(self.now_ns + delay_ns, callback, *args)

    @property
    def pending(self) -> int:
        """Return the number of events still to come."""
        return len(self._events)

    def stop(self) -> None:
        """Make the `run` in progress return after the current callback. Do nothing without one."""
        self._stopped = self._running

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the events due up to and including `until_ns`, at most `max_events`.

        Return how many ran.

        Afterwards `now_ns` is `until_ns`, unless `stop` or `max_events` ended the run first;
        another call then continues. An exception in a callback ends the run, and its event is gone.
        Raises RuntimeError inside a callback.
        """
        if self._running:
            raise RuntimeError(
                "the event loop is already running: a callback schedules with call_at() or after()"
            )
        events = self._events
        last_ns = math.inf if until_ns is None else until_ns
        most = math.inf if max_events is None else max_events
        count = 0
        self._running = True
        try:
            while events and events[0][0] <= last_ns:
                if self._stopped or count >= most:
                    return count
                self.now_ns, _, callback, args = heappop(events)
                count += 1
                callback(*args)
            if until_ns is not None and not self._stopped and until_ns > self.now_ns:
                self.now_ns = until_ns
            return count
        finally:
            self._running = self._stopped = False


class Wire:
    """A sender of packets one after another at `rate_bps`; each arrives `delay_ns` after its last
    bit left.

    It stores and forwards: a packet of L bytes occupies the wire for 8e9 L / rate_bps ns; see
    `Pacer` for the rounding. Raises ValueError for a rate below 1 or a negative delay.
    """

    __slots__ = (
        "_loop",
        "delay_ns",
        "delivered_packets",
        "destination",
        "destination_port",
        "line",
        "sent_bytes",
        "sent_packets",
        "source",
        "source_port",
    )

    def __init__(
        self,
        loop: Loop,
        source: tuple[Node, int],
        destination: tuple[Node, int],
        rate_bps: int,
        delay_ns: int,
    ) -> None:
        if delay_ns < 0:
            raise ValueError(f"delay_ns: {delay_ns} is negative")
        self._loop = loop
        self.source, self.source_port = source
        self.destination, self.destination_port = destination
        self.delay_ns = delay_ns
        self.line = Pacer(rate_bps, loop.now_ns)
        self.sent_packets = self.sent_bytes = self.delivered_packets = 0

    @property
    def name(self) -> str:
        """Return the names of its two ends."""
        return (
            f"{self.source.name}:{self.source_port} ->"
            f" {self.destination.name}:{self.destination_port}"
        )

    def transmit(self, data: bytes) -> None:
        """Send a packet now, or right after the one that is being sent."""
        loop = self._loop
        length_bytes = len(data)
        self.sent_packets += 1
        self.sent_bytes += length_bytes
        loop.call_at(
            self.line.charge(length_bytes, loop.now_ns) + self.delay_ns, self._deliver, data
        )

    def _deliver(self, data: bytes) -> None:
        self.delivered_packets += 1
        self.destination.receive(self.destination_port, data)


class VirtualHost:
    """A host whose interface has unbounded queues at the rate of the host's link.

    Packets with the same urgency function wait in one FIFO. The interface serves the most urgent of
    these FIFOs. Packets without urgency wait in another FIFO, which takes turns with the most
    urgent packets.
    """

    __slots__ = (
        "_awake",
        "_loop",
        "_ranked",
        "_ranked_next",
        "_unranked",
        "backlog_bytes",
        "name",
        "on_packet",
        "packets_dropped",
        "packets_received",
        "packets_sent",
        "wire",
    )

    def __init__(self, loop: Loop, name: str, on_packet: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._unranked: deque[bytes] = deque()
        self._ranked: dict[Urgency, deque[bytes]] = {}
        """The packets that wait, by urgency. None of the queues is empty."""
        self._ranked_next = True
        """Whether it is the turn of a packet with urgency, if both kinds wait."""
        self._awake = False  # an event at the end of the packet on the wire is scheduled
        self.name = name
        self.on_packet = on_packet
        """A callback with the time and the packet for each packet that arrives."""
        self.wire: Wire | None = None
        """The outgoing wire; None until connected."""
        self.backlog_bytes = 0
        """The bytes waiting behind the packet that is being sent."""
        self.packets_sent = self.packets_received = 0
        self.packets_dropped = 0
        """The packets sent while the host was not connected."""

    def check_free(self, port: int) -> None:
        """Raise ValueError if `port` cannot be connected."""
        if port != 0:
            raise ValueError(f"{self.name}: port {port} does not exist (the port of a host is 0)")
        if self.wire is not None:
            raise ValueError(f"{self.name}: port 0 is already connected")

    def attach(self, port: int, wire: Wire) -> None:
        """Connect the host to its outgoing wire. Raise as `check_free` does."""
        self.check_free(port)
        self.wire = wire

    def send(self, data: bytes, urgency: Urgency | None = None) -> None:
        """Send a packet when it is its turn."""
        wire = self.wire
        if wire is None:
            self.packets_dropped += 1
        elif self.backlog_bytes or wire.line.free_ns > self._loop.now_ns:
            if urgency is None:
                self._unranked.append(data)
            else:
                self._ranked.setdefault(urgency, deque()).append(data)
            self.backlog_bytes += len(data)
            self._wake(wire)
        else:
            self._transmit(wire, data)

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet from the wire."""
        self.packets_received += 1
        self.on_packet(self._loop.now_ns, data)

    def _transmit(self, wire: Wire, data: bytes) -> None:
        self.packets_sent += 1
        wire.transmit(data)
        if self.backlog_bytes:
            self._wake(wire)

    def _take(self) -> bytes:
        """Take the packet that is sent next."""
        ranked = self._ranked
        unranked = self._unranked
        if unranked and not (ranked and self._ranked_next):
            self._ranked_next = True
            return unranked.popleft()
        self._ranked_next = False
        now_ns = self._loop.now_ns
        if len(ranked) == 1:
            first = next(iter(ranked))
        else:
            first = max(ranked, key=lambda urgency: urgency(now_ns))
        packets = ranked[first]
        data = packets.popleft()
        if not packets:
            del ranked[first]
        return data

    def _wake(self, wire: Wire) -> None:
        if not self._awake:
            self._awake = True
            self._loop.call_at(wire.line.free_ns, self._on_line_free, wire)

    def _on_line_free(self, wire: Wire) -> None:
        self._awake = False
        if wire.line.free_ns > self._loop.now_ns:
            self._wake(wire)  # a packet given at this very instant, before this event, went first
        elif self.backlog_bytes:
            data = self._take()
            self.backlog_bytes -= len(data)
            self._transmit(wire, data)


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
                self._loop.call_at(now_ns, self._depart_unlinked, switch, packet, now_ns)
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
            self._loop.call_at(time_ns, self._on_wake, outlet, time_ns)

    def _on_wake(self, outlet: _Outlet, time_ns: int) -> None:
        outlet.wakes_ns.remove(time_ns)
        self._serve(outlet, time_ns)

    def _on_reconfigured(self, outlet: _Outlet, _now_ns: int) -> None:
        self._wake_at(outlet, self._loop.now_ns)


class VirtualFabric(FabricOfNodes):
    """Nodes and links on an event loop in Python."""

    def _new_switch(self, name: str, switch: Pipelines) -> SwitchNode:
        return VirtualSwitch(self.loop, name, switch)

    def _new_host(self, name: str, on_packet: Callable[[int, bytes], None]) -> HostNode:
        return VirtualHost(self.loop, name, on_packet)

    def _new_wire(self, source: Any, destination: Any, rate_bps: int, delay_ns: int) -> WireLine:
        return Wire(self.loop, source, destination, rate_bps, delay_ns)
