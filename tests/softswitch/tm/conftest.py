from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.engines import LANGUAGES
from tests.reference.traffic_manager import Dequeued, PortScheduler
from tests.softswitch.tm.native import SchedulerInC

Saturate = Callable[..., "Served"]


class Served:
    """The packets that left a port whose given queues were never empty."""

    def __init__(self) -> None:
        self.order: list[tuple[int, Dequeued]] = []  # (time, what)
        self.bytes: Counter[int] = Counter()
        self.end_ns = 0

    def rate_bps(self, queue: int) -> float:
        return self.bytes[queue] * 8e9 / self.end_ns


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests use the queues in Python, then those in C."""
    if hasattr(metafunc.module, "PortScheduler") and not hasattr(metafunc.module, "SchedulerInC"):
        metafunc.parametrize("traffic_manager", LANGUAGES, indirect=True, scope="module")


@pytest.fixture(autouse=True, scope="module")
def traffic_manager(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a module the queues that its parameter names."""
    if getattr(request, "param", "python") == "c":
        request.module.PortScheduler = SchedulerInC
        yield
        request.module.PortScheduler = PortScheduler
    else:
        yield


@pytest.fixture
def saturate() -> Saturate:
    """Run a port for `until_ns` with the queues of `sizes` always backlogged by packets of the
    sizes given, in turn.
    """

    def run(
        port: PortScheduler, sizes: Mapping[int, Sequence[int]], until_ns: int, start_ns: int = 0
    ) -> Served:
        given = Counter[int]()

        def fill(queue: int, now_ns: int) -> None:
            size = sizes[queue][given[queue] % len(sizes[queue])]
            assert port.enqueue(queue, (queue, given[queue]), size, now_ns)
            given[queue] += 1

        for queue in sizes:
            for _ in range(4):
                fill(queue, start_ns)
        served = Served()
        now_ns: int | None = start_ns
        while now_ns is not None and now_ns < start_ns + until_ns:
            leaving = port.dequeue(now_ns)
            assert leaving is not None, "next_eligible_ns promised a packet"
            served.order.append((now_ns, leaving))
            served.bytes[leaving.queue] += leaving.length_bytes
            fill(leaving.queue, now_ns)
            now_ns = port.next_eligible_ns(now_ns)
        served.end_ns = until_ns
        return served

    return run
