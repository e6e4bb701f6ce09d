"""What carries the flows of a job from host to host: the protocol between a worker and its sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from echelon.jobs.graph import Flow


class HostPacketCounts(NamedTuple):
    """Packets of a job at one host since the beginning."""

    reordered: int
    """Arrived after one that was sent later, as far as this transport can tell."""
    retransmitted: int


@dataclass(frozen=True, slots=True)
class FlowEvents:
    """Whom a carrier tells of its flows, by their names."""

    started: Callable[[str, int, int], None]
    """(flow, iteration, when in ns): its first byte leaves."""
    sent: Callable[[str], None]
    """Its last byte is known to have arrived."""
    received: Callable[[str, int, int], None]
    """(flow, iteration, when in ns): its last byte is here. It was there before the sender could be told of it."""
    iteration: Callable[[], int]
    """The iteration that this host has begun last. Others are there, or one ahead."""


class SocketCarrier(Protocol):
    """One job's flows at one host: open, then connect when all hosts are open, then send."""

    def connect(self, connected: Callable[[], None]) -> None:
        """Call `connected` when flows can go out and come in."""
        ...

    def send(self, flow: Flow, iteration: int) -> None:
        """A flow from here starts; flows to the same host follow each other in the order of their starts."""
        ...

    @property
    def counts(self) -> HostPacketCounts: ...
