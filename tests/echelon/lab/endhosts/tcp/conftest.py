"""A connection over two one-way links that may lose, delay and repeat what they carry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echelon_lab.endhosts.tcp.frames import TcpAddress
from echelon_lab.endhosts.tcp.sender import TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection, TcpStack

ADDRESS = TcpAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 40000, 9)

Fate = Callable[[int, bytes], list[tuple[int, bytes]]]


class _Way:
    """One direction of a path."""

    def __init__(self) -> None:
        self.send: Callable[[bytes], None] = lambda _data: None


class Path:
    """One connection, `there` for its data and `back` for the acknowledgements; a link drops what
    would wait longer than `queue_bytes`."""

    def __init__(
        self,
        clock: Any,
        link: Any,
        settings: TcpSettings,
        *,
        rate_bps: int = 10_000_000,
        delay_ns: int = 5_000_000,
        there: Fate = lambda _number, frame: [(0, frame)],
        back: Fate = lambda _number, frame: [(0, frame)],
        address: TcpAddress = ADDRESS,
    ) -> None:
        self.clock = clock
        self.tally = TcpTally()
        self.lost = 0
        self.received: list[tuple[int, int]] = []
        out, home = _Way(), _Way()
        self.src, self.dst = TcpStack(clock, out), TcpStack(clock, home)
        self.there = link(clock, rate_bps, delay_ns, self.dst.deliver, there)
        self.back = link(clock, rate_bps, delay_ns, self.src.deliver, back)
        out.send, home.send = self.there.send, self.back.send
        self.connection = Connection(
            self.src, self.dst, address, settings, self._on_lost, self.tally
        )

    def _on_lost(self) -> None:
        self.lost += 1

    def write(self, size_bytes: int) -> None:
        """Write bytes, and record their arrival in `received`: (time in ns, bytes of the
        connection).
        """
        self.connection.write(
            size_bytes,
            lambda: self.received.append((self.clock.now_ns, self.connection.received_bytes)),
        )


@pytest.fixture
def path(clock: Any, toy_link: Any) -> Callable[..., Path]:
    def make(settings: TcpSettings | None = None, **more: Any) -> Path:
        return Path(clock, toy_link, settings or TcpSettings(), **more)

    return make


@pytest.fixture(scope="session")
def new_path(toy_clock: Any, toy_link: Any) -> Callable[..., Path]:
    """Return a factory, for tests that need many paths."""

    def make(settings: TcpSettings | None = None, **more: Any) -> Path:
        return Path(toy_clock(), toy_link, settings or TcpSettings(), **more)

    return make
