"""Speed of the traffic manager and of virtual time, without a P4 program: the floor under every simulated packet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from softswitch.tm import PortScheduler, QueueConfig
from softswitch.virtual import EventLoop, VirtualFabric

_PACKETS = 50_000
_FRAME = bytes(1250)


def _scheduler_rate(queues: Sequence[QueueConfig]) -> float:
    """Return the packets per second through a port whose queues always have some waiting."""
    port = PortScheduler(10**10, queues)
    for queue in range(len(queues)):
        for _ in range(16):
            port.enqueue(queue, None, 1250, 0)
    now_ns: int | None = 0
    begin = perf_counter()
    for _ in range(_PACKETS):
        assert now_ns is not None
        leaving = port.dequeue(now_ns)
        assert leaving is not None
        port.enqueue(leaving.queue, None, 1250, now_ns)
        now_ns = port.next_eligible_ns(now_ns)
    return _PACKETS / (perf_counter() - begin)


@dataclass(slots=True)
class _Packet:
    port: int
    queue: int
    data: bytes

    @property
    def length_bytes(self) -> int:
        return len(self.data)


@dataclass(slots=True)
class _Sent:
    port: int
    packet: bytes
    requeue: list[_Packet] = field(default_factory=list)


class _Through:
    """A pipeline that forwards from port 0 to port 1."""

    def ingress(self, port: int, data: bytes, now_ns: int) -> list[_Packet]:
        return [_Packet(1, 0, data)]

    def egress(self, q: _Packet, enq_ns: int, now_ns: int, enq_qdepth_pkts: int, deq_qdepth_pkts: int) -> list[_Sent]:
        return [_Sent(q.port, q.data)]


def _loop_rate() -> float:
    """Return the empty events per second, with 1000 pending."""
    loop = EventLoop()

    def again(step_ns: int) -> None:
        loop.after(step_ns, again, step_ns)

    for step_ns in range(1, 1001):
        loop.at(step_ns, again, step_ns)
    begin = perf_counter()
    events = loop.run(max_events=2 * _PACKETS)
    return events / (perf_counter() - begin)


def _fabric_rates() -> tuple[float, float]:
    """Return the events and switch hops per second of a saturated chain: host, three switches, host."""
    loop = EventLoop()
    fabric = VirtualFabric(loop)
    received = 0

    def count(_now_ns: int, _data: bytes) -> None:
        nonlocal received
        received += 1

    source = fabric.add_host("source", count)
    fabric.add_host("sink", count)
    for name in ("s1", "s2", "s3"):
        fabric.add_switch(name, _Through())
    fabric.connect(("source", 0), ("s1", 0), 10**9, 1000)
    fabric.connect(("s1", 1), ("s2", 0), 10**9, 1000)
    fabric.connect(("s2", 1), ("s3", 0), 10**9, 1000)
    fabric.connect(("s3", 1), ("sink", 0), 10**9, 1000)
    packets = _PACKETS // 5
    for _ in range(packets):
        source.send(_FRAME)
    begin = perf_counter()
    events = fabric.run()
    elapsed = perf_counter() - begin
    assert received == packets
    return events / elapsed, 3 * packets / elapsed


def bench() -> list[tuple[str, float, str]]:
    """Return the name, value and unit of each measurement."""
    cases: list[tuple[str, Callable[[], float]]] = [
        ("tm: 8 strict levels", lambda: _scheduler_rate([QueueConfig(level=level) for level in range(8)])),
        ("tm: 8 weights in one level", lambda: _scheduler_rate([QueueConfig(weight=1 + 3 * i) for i in range(8)])),
        ("tm: 8 shaped queues", lambda: _scheduler_rate([QueueConfig(max_rate_bps=5 * 10**9) for _ in range(8)])),
    ]
    results = [(name, measure(), "packets/s") for name, measure in cases]
    events_per_s, hops_per_s = _fabric_rates()
    return [
        *results,
        ("virtual: empty event loop", _loop_rate(), "events/s"),
        ("virtual: loop, links and queues", events_per_s, "events/s"),
        ("virtual: switch hops without a program", hops_per_s, "hops/s"),
    ]
