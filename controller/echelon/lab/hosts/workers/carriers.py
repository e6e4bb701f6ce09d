"""The protocol between a worker and the sockets that carry the flows of a job from host to host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from echelon.jobs.graph import Flow


class HostPacketCounts(NamedTuple):
    """Packets of a job at one host since the beginning."""

    reordered: int
    """Packets that arrived after one that was sent later, as far as this transport can tell."""
    retransmitted: int


@dataclass(frozen=True, slots=True)
class FlowEvents:
    """The callbacks by which a carrier reports its flows, by their names."""

    started: Callable[[str, int, int], None]
    """Called with (flow, iteration, time in ns) when its first byte leaves."""
    sent: Callable[[str], None]
    """Called with the flow when its last byte is known to have arrived."""
    received: Callable[[str, int, int], None]
    """Called with (flow, iteration, time in ns) when its last byte is here, before the sender can be told of it."""
    iteration: Callable[[], int]
    """Returns the iteration that this host has begun last. Other hosts are there, or one ahead."""


class SocketCarrier(Protocol):
    """One job's flows at one host. First open, then connect when all hosts are open, then send."""

    def connect(self, connected: Callable[[], None]) -> None:
        """Call `connected` when flows can be sent and received."""
        ...

    def send(self, flow: Flow, iteration: int) -> None:
        """Send a flow from here. Flows to the same host follow each other in the order of their starts."""
        ...

    @property
    def counts(self) -> HostPacketCounts: ...
