"""A host: one network interface that sends in order, and a receiver for the packets that arrive."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from softswitch.virtual.eventloop import EventLoop
from softswitch.virtual.wire import Wire


class VirtualHost:
    """A host whose interface is an unbounded queue at the rate of the host's link.

    It is a FIFO, unless a sender says since when a packet counts as waiting.
    """

    __slots__ = (
        "_awake",
        "_given",
        "_loop",
        "_waiting",
        "backlog_bytes",
        "name",
        "on_idle",
        "on_packet",
        "packets_dropped",
        "packets_received",
        "packets_sent",
        "wire",
    )

    def __init__(self, loop: EventLoop, name: str, on_packet: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, int, bytes]] = []  # a heap of time, number and packet
        self._given = 0  # numbers packets, so that those of one time stay in order
        self._awake = False  # an event at the end of the packet on the wire is scheduled
        self.name = name
        self.on_packet = on_packet
        """A callback with the time and the packet for each packet that arrives."""
        self.on_idle: Callable[[int], None] | None = None
        """A callback with the time when the last bit has left and nothing waits. Set it before sending."""
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

    def send(self, data: bytes, since_ns: int | None = None) -> None:
        """Send a packet after those that have waited since `since_ns` or longer; None: since now."""
        wire = self.wire
        if wire is None:
            self.packets_dropped += 1
        elif self._waiting or wire.line.free_ns > self._loop.now_ns:
            self._given += 1
            heappush(self._waiting, (self._loop.now_ns if since_ns is None else since_ns, self._given, data))
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
        if self._waiting or self.on_idle is not None:
            self._wake(wire)

    def _wake(self, wire: Wire) -> None:
        if not self._awake:
            self._awake = True
            self._loop.at(wire.line.free_ns, self._on_line_free, wire)

    def _on_line_free(self, wire: Wire) -> None:
        self._awake = False
        if wire.line.free_ns > self._loop.now_ns:
            self._wake(wire)  # a packet given at this very instant, before this event, went first
        elif self._waiting:
            _, _, data = heappop(self._waiting)
            self.backlog_bytes -= len(data)
            self._transmit(wire, data)
        elif self.on_idle is not None:
            self.on_idle(self._loop.now_ns)
