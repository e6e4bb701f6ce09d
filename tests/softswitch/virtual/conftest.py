from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from softswitch.native import fabric
from tests.engines import LANGUAGES

_IN_C = {"EventLoop": fabric.EventLoop, "VirtualFabric": fabric.VirtualFabric}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests use virtual time in Python, then in C."""
    if hasattr(metafunc.module, "EventLoop"):
        metafunc.parametrize("virtual_time", LANGUAGES, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def virtual_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a module the virtual time that its parameter names."""
    if getattr(request, "param", "python") == "python":
        yield
        return
    before = {name: getattr(request.module, name, None) for name in _IN_C}
    for name, in_c in _IN_C.items():
        if before[name] is not None:
            setattr(request.module, name, in_c)
    yield
    for name, was in before.items():
        if was is not None:
            setattr(request.module, name, was)


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
    """The two halves of a switch, given as functions: where a packet goes, as (port, queue) pairs;
    what leaves.
    """

    def __init__(self, ingress: Ingress, egress: Egress | None = None) -> None:
        self._ingress = ingress
        self._egress = egress or (lambda waiting: [Sent(waiting.port, waiting.data)])
        self.egress_calls: list[tuple[int, int, int, int]] = []

    def ingress(self, port: int, data: bytes, now_ns: int) -> list[Waiting]:
        return [Waiting(port, queue, data) for port, queue in self._ingress(port, data)]

    def egress(
        self, q: Waiting, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int
    ) -> list[Sent]:
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
