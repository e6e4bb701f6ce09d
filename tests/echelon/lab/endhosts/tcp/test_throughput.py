"""Long-run throughput: what random loss leaves (Mathis et al. 1997), and how two connections share
a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from random import Random
from typing import Any

import pytest

from echelon_lab.endhosts.tcp.frames import TcpAddress
from echelon_lab.endhosts.tcp.newreno import Aggressiveness
from echelon_lab.endhosts.tcp.sender import TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection, TcpStack

MS = 1_000_000
S = 1000 * MS
MSS = 1184
ADDRESS = TcpAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 40000, 9)


@pytest.mark.parametrize("p", [0.0025, 0.01])
def test_throughput_under_random_loss(new_path: Callable[..., Any], p: float) -> None:
    """The throughput is MSS / RTT * C / sqrt(p), where C is sqrt(3/2) if the window grows by a
    segment a round trip, as it does by bytes, whatever the delay of acknowledgements. Real
    recoveries and time-outs take from it; losses that fall into one window count once and add to
    it."""
    rng = Random(7)
    rtt_ns = 40 * MS
    path = new_path(
        TcpSettings(1250, receive_window_bytes=10_000_000),
        rate_bps=10**11,
        delay_ns=rtt_ns // 2,
        there=lambda _number, frame: [] if rng.random() < p else [(0, frame)],
    )
    path.connection.establish()
    path.write(10**12)
    path.clock.run(until_ns=5 * S)
    before = path.connection.received_bytes
    seconds = 60 if p > 0.005 else 40
    path.clock.run(until_ns=(5 + seconds) * S)
    rate = (path.connection.received_bytes - before) / seconds
    mathis = MSS / (rtt_ns / S) * sqrt(3 / 2) / sqrt(p)
    assert 0.75 < rate / mathis < 1.15


class _Fork:
    """Two connections from two hosts through one drop-tail queue; acknowledgements return by a line
    of their own.
    """

    def __init__(
        self,
        clock: Any,
        link: Any,
        queue_bytes: int,
        starts_ns: tuple[int, ...],
        settings: tuple[TcpSettings, ...] = (TcpSettings(1250),) * 2,
    ) -> None:
        self.clock = clock
        rate_bps = 10_000_000

        def drop_tail(_number: int, frame: bytes) -> list[tuple[int, bytes]]:
            waiting_ns = self.queue.free_ns - clock.now_ns
            full = waiting_ns * rate_bps > 8 * S * queue_bytes
            if full:
                # It never takes the line's time.
                self.queue.free_ns -= -(-len(frame) * 8 * S // rate_bps)
            return [] if full else [(0, frame)]

        home = _Way()
        out = _Way()
        self.src, self.dst = TcpStack(clock, out), TcpStack(clock, home)
        self.queue = link(clock, rate_bps, 10 * MS, self.dst.deliver, drop_tail)
        self.back = link(clock, 10**9, 10 * MS, self.src.deliver)
        out.send, home.send = self.queue.send, self.back.send
        self.tally = TcpTally()
        self.connections = []
        for number, (start_ns, of_one) in enumerate(zip(starts_ns, settings, strict=True)):
            address = replace(ADDRESS, src_port=40000 + number)
            connection = Connection(self.src, self.dst, address, of_one, lambda: None, self.tally)
            connection.write(10**12)
            clock.call_at(start_ns, connection.open)
            self.connections.append(connection)


class _Way:
    def __init__(self) -> None:
        self.send: Any = None


def test_two_connections_share_a_queue_fairly_in_the_long_run(clock: Any, toy_link: Any) -> None:
    fork = _Fork(clock, toy_link, 50_000, (0, 3 * S))
    clock.run(until_ns=10 * S)
    before = [connection.received_bytes for connection in fork.connections]
    clock.run(until_ns=70 * S)
    x, y = (
        connection.received_bytes - b
        for connection, b in zip(fork.connections, before, strict=True)
    )
    assert (x + y) ** 2 / (2 * (x * x + y * y)) > 0.9  # Jain's index
    # And the line is full: payload of 1184 in 1250 bytes.
    assert (x + y) * 8 / 60 > 0.95 * 10_000_000 * 1184 / 1250
    assert fork.tally.retransmitted > 0


def test_mltcp_gives_the_connection_that_is_further_the_larger_share(
    clock: Any, toy_link: Any
) -> None:
    """F is 2 for the first and 1/4 for the second.

    A window of AIMD grows with the root of its increase, so in theory the first gets 2.8 times as
    much.
    """
    late = replace(TcpSettings(1250), aggressiveness=Aggressiveness(1, slope=0, intercept=2))
    early = replace(TcpSettings(1250), aggressiveness=Aggressiveness(1, slope=0, intercept=0.25))
    fork = _Fork(clock, toy_link, 50_000, (0, 3 * S), settings=(late, early))
    clock.run(until_ns=20 * S)
    before = [connection.received_bytes for connection in fork.connections]
    clock.run(until_ns=80 * S)
    x, y = (
        connection.received_bytes - b
        for connection, b in zip(fork.connections, before, strict=True)
    )
    assert x > 2 * y
