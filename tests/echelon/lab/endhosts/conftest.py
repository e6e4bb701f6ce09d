"""A clock and a network of one FIFO link, as small as they can be: what emulator and transport are
tested on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.switches.targets.virtual import Urgency


def fabric_of(hosts: int, rate_bps: int = 10_000_000) -> Fabric:
    """Return hosts h1, h2 and so on at one switch."""
    names = [f"h{number}" for number in range(1, hosts + 1)]
    return Fabric(
        "hub",
        {
            name: Host(name, f"10.0.0.{at}", f"02:00:00:00:00:{at:02x}")
            for at, name in enumerate(names, start=1)
        },
        {"s1": Switch("s1", 1)},
        tuple(
            CableLink(LinkEnd(name, 0), LinkEnd("s1", at), rate_bps, Fraction(0))
            for at, name in enumerate(names, 1)
        ),
    )


class ToyClock:
    """Calls in order of time, then of scheduling."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._calls: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def call_at(self, time_ns: int, callback: Callable[..., object], /, *args: object) -> None:
        assert time_ns >= self.now_ns
        self._count += 1
        heapq.heappush(self._calls, (time_ns, self._count, callback, args))

    def run(self, done: Callable[[], bool] = lambda: False, until_ns: int = 10**15) -> None:
        while self._calls and not done() and self._calls[0][0] <= until_ns:
            self.now_ns, _, callback, args = heapq.heappop(self._calls)
            callback(*args)


class ToyLink:
    """A FIFO of any length at `rate_bps`: a packet takes its bits' time, then `delay_ns`.

    `fate(number, frame)` says what becomes of a packet: a list of (extra delay in ns, frame to
    deliver).
    """

    def __init__(
        self,
        clock: ToyClock,
        rate_bps: int,
        delay_ns: int,
        deliver: Callable[[int, bytes], None],
        fate: Callable[[int, bytes], list[tuple[int, bytes]]] = lambda number, frame: [(0, frame)],
    ) -> None:
        self._clock, self._rate_bps, self._delay_ns = clock, rate_bps, delay_ns
        self.deliver, self.fate = deliver, fate
        self.free_ns = 0
        self.frames: list[tuple[int, bytes]] = []

    def send(self, data: bytes, urgency: Urgency | None = None) -> None:
        self.frames.append((self._clock.now_ns, data))
        start = max(self._clock.now_ns, self.free_ns)
        self.free_ns = start + -(-len(data) * 8 * 10**9 // self._rate_bps)
        for extra_ns, frame in self.fate(len(self.frames) - 1, data):
            self._clock.call_at(self.free_ns + self._delay_ns + extra_ns, self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        self.deliver(self._clock.now_ns, frame)


class ToyHub:
    """Hosts around one shared FIFO link, which every frame crosses; the destination is found by MAC
    address.
    """

    def __init__(self, clock: ToyClock, rate_bps: int, delay_ns: int = 1000) -> None:
        self.receivers: dict[bytes, Callable[[int, bytes], None]] = {}
        self.link = ToyLink(clock, rate_bps, delay_ns, self._deliver)
        self.send = self.link.send

    def attach(self, mac: str, receiver: Callable[[int, bytes], None]) -> None:
        self.receivers[bytes.fromhex(mac.replace(":", ""))] = receiver

    def _deliver(self, now_ns: int, frame: bytes) -> None:
        self.receivers[frame[:6]](now_ns, frame)


@pytest.fixture
def clock() -> ToyClock:
    return ToyClock()


@pytest.fixture(scope="session")
def toy_clock() -> type[ToyClock]:
    return ToyClock


@pytest.fixture(scope="session")
def toy_link() -> type[ToyLink]:
    return ToyLink


@pytest.fixture(scope="session")
def toy_hub() -> type[ToyHub]:
    return ToyHub
