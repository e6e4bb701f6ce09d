"""A host: one network interface that sends in order, and a receiver for the packets that arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from softswitch.virtual.eventloop import Loop
from softswitch.virtual.wire import Wire

Urgency = Callable[[int], tuple[float, ...]]
"""The urgency of packets at a time in nanoseconds, as numbers that decide in their order."""


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
            self._loop.at(wire.line.free_ns, self._on_line_free, wire)

    def _on_line_free(self, wire: Wire) -> None:
        self._awake = False
        if wire.line.free_ns > self._loop.now_ns:
            self._wake(wire)  # a packet given at this very instant, before this event, went first
        elif self.backlog_bytes:
            data = self._take()
            self.backlog_bytes -= len(data)
            self._transmit(wire, data)
