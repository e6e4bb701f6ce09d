from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest


@dataclass(slots=True)
class Waiting:
    """A packet that a stand-in's ingress asks to queue."""

    port: int
    queue: int
    data: bytes
    rounds: int = 0

    @property
    def length_bytes(self) -> int:
        return len(self.data)


@dataclass(slots=True)
class Sent:
    port: int
    packet: bytes | None
    requeue: list[Waiting] = field(default_factory=list)


Ingress = Callable[[int, bytes], list[tuple[int, int]]]
Egress = Callable[[Waiting], list[Sent]]


class StandIn:
    """The two halves of a switch, given as functions: where a packet goes, as (port, queue) pairs; what leaves."""

    def __init__(self, ingress: Ingress, egress: Egress | None = None) -> None:
        self._ingress = ingress
        self._egress = egress or (lambda waiting: [Sent(waiting.port, waiting.data)])
        self.egress_calls: list[tuple[int, int, int, int]] = []

    def ingress(self, port: int, data: bytes, now_ns: int) -> list[Waiting]:
        return [Waiting(port, queue, data) for port, queue in self._ingress(port, data)]

    def egress(self, q: Waiting, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int) -> list[Sent]:
        self.egress_calls.append((enq_ns, now_ns, enq_qdepth_pkts, deq_qdepth_pkts))
        return self._egress(q)


@pytest.fixture(scope="session")
def stand_in() -> type[StandIn]:
    return StandIn


@pytest.fixture(scope="session")
def waiting() -> type[Waiting]:
    return Waiting


@pytest.fixture(scope="session")
def sent() -> type[Sent]:
    return Sent
