"""One direction of a link."""

from __future__ import annotations

from typing import Protocol

from softswitch.tm import Pacer
from softswitch.virtual.eventloop import Loop


class Node(Protocol):
    """A node that a wire can end at."""

    @property
    def name(self) -> str: ...

    def receive(self, port: int, data: bytes) -> None:
        """Receive a packet whose last bit has come in at `port`, now."""


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
        loop.at(self.line.charge(length_bytes, loop.now_ns) + self.delay_ns, self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        self.delivered_packets += 1
        self.destination.receive(self.destination_port, data)
