"""Whatever a network does to packets, every byte arrives once and in order, and both ends come to
an end.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts.tcp.frames import parse
from echelon_lab.endhosts.tcp.sender import MAX_TIMEOUTS, TcpSettings
from tests.drawing import examples

PHASES = (Phase.explicit, Phase.generate)
"""A failing example says enough as it is; making it smaller takes minutes."""
MS = 1_000_000
S = 1000 * MS


class Trouble:
    """A fault model that loses, repeats and holds up packets, at random but always alike; not
    `patience` times in a row.
    """

    def __init__(self, seed: int, lose: float, repeat: float, hold: float, hold_ns: int) -> None:
        self._rng = Random(seed)
        self._lose, self._repeat, self._hold, self._hold_ns = lose, repeat, hold, hold_ns
        self._in_a_row = 0

    def __call__(self, _number: int, frame: bytes) -> list[tuple[int, bytes]]:
        rng = self._rng
        if rng.random() < self._lose and self._in_a_row < 3:
            self._in_a_row += 1
            return []
        self._in_a_row = 0
        copies = 2 if rng.random() < self._repeat else 1
        return [
            (rng.randrange(self._hold_ns) if rng.random() < self._hold else 0, frame)
            for _ in range(copies)
        ]


class Books:
    """The bytes that have come to the receiver, recorded one by one, without any of TCP's ideas."""

    def __init__(self, path: Any) -> None:
        self._path = path
        self._isn: int | None = None
        self._there = bytearray()
        self.prefix = 0
        self._deliver = path.dst.deliver
        path.there.deliver = self.deliver

    def deliver(self, now_ns: int, frame: bytes) -> None:
        segment = parse(frame)
        if segment.flags & 2:
            self._isn = segment.seq
        if segment.length_bytes:
            assert self._isn is not None
            start = segment.seq - self._isn - 1 & 0xFFFFFFFF
            end = start + segment.length_bytes
            self._there.extend(bytes(max(0, end - len(self._there))))
            self._there[start:end] = b"\1" * segment.length_bytes
            while self.prefix < len(self._there) and self._there[self.prefix]:
                self.prefix += 1
        self._deliver(now_ns, frame)
        assert self._path.connection.received_bytes == self.prefix


@settings(
    max_examples=examples(40),
    deadline=None,
    phases=PHASES,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
    pauses_ms=st.lists(st.integers(0, 500), min_size=6, max_size=6),
    packet=st.sampled_from([128, 600, 1250, 9000]),
    ecn=st.booleans(),
    window=st.sampled_from([18_000, 70_000, 1_000_000]),
    seed=st.integers(0, 2**32),
    lose=st.sampled_from([0.0, 0.02, 0.2, 0.5]),
    repeat=st.sampled_from([0.0, 0.2]),
    hold=st.sampled_from([0.0, 0.1, 0.5]),
    hold_ms=st.sampled_from([1, 30, 700]),
)
def test_every_byte_once_and_in_order(
    new_path: Callable[..., Any],
    sizes: list[int],
    pauses_ms: list[int],
    packet: int,
    ecn: bool,
    window: int,
    seed: int,
    lose: float,
    repeat: float,
    hold: float,
    hold_ms: int,
) -> None:
    there = Trouble(seed, lose, repeat, hold, hold_ms * MS)
    back = Trouble(seed + 1, lose, repeat, hold, hold_ms * MS)
    path = new_path(
        TcpSettings(packet, receive_window_bytes=window, ecn=ecn),
        rate_bps=100_000_000,
        there=there,
        back=back,
    )
    Books(path)
    at_ns = 0
    for size, pause_ms in zip(sizes, pauses_ms, strict=False):
        path.clock.call_at(at_ns, path.write, size)
        at_ns += pause_ms * MS
    path.clock.call_at(at_ns, path.connection.close)
    path.connection.open()
    path.clock.run()
    assert path.connection.received_bytes == sum(sizes)
    assert [done for _, done in path.received] == sorted(done for _, done in path.received)
    assert len(path.received) == len(sizes)
    assert path.lost == 0
    # Both ends have forgotten the connection, and nothing is left to do.
    assert not path.src.has(path.connection.address.reversed())
    assert not path.dst.has(path.connection.address)
    if not (lose or hold or repeat):
        assert path.tally.retransmitted == path.tally.reordered == path.tally.duplicate == 0


@pytest.mark.parametrize("established", [False, True])
def test_a_silent_peer_is_given_up(path: Callable[..., Any], established: bool) -> None:
    p = path(there=lambda _number, _frame: [])
    p.write(100)
    if established:
        p.connection.establish()
        p.write(100)
    else:
        p.connection.open()
    p.clock.run()
    assert p.lost == 1
    assert p.received == []
    assert p.tally.timeouts == MAX_TIMEOUTS
    waits_ns = [
        later - sooner
        for (sooner, _), (later, _) in zip(p.there.frames, p.there.frames[1:], strict=False)
    ]
    # Twice as long each time, from a second on, to a minute at most.
    assert waits_ns == [min(2**n, 60) * S for n in range(MAX_TIMEOUTS)]


def test_a_peer_that_refuses_ends_it(path: Callable[..., Any]) -> None:
    from echelon_lab.endhosts.tcp.frames import ACK, RST, SegmentFrames

    p = path()
    p.write(100)
    p.connection.open()
    syn = parse(p.there.frames[0][1])
    frames = SegmentFrames(p.connection.address.reversed())
    p.src.deliver(0, frames.build(0, syn.seq + 5, ACK | RST))
    assert p.lost == 0, "not an answer to our SYN"
    p.src.deliver(0, frames.build(0, syn.seq + 1, ACK | RST))
    assert p.lost == 1
    p.clock.run()
    assert p.lost == 1, "once is enough"


def test_the_sequence_number_goes_round(new_path: Callable[..., Any]) -> None:
    # The initial number comes from the address: one of these is near enough to 2^32.
    from dataclasses import replace

    from tests.echelon.lab.endhosts.tcp import conftest

    ports = [
        port
        for port in range(1, 65536)
        if _isn(replace(conftest.ADDRESS, src_port=port)) > 2**32 - 60_000
    ]
    assert ports
    p = new_path(
        TcpSettings(),
        address=replace(conftest.ADDRESS, src_port=ports[0]),
        there=Trouble(1, 0.02, 0.1, 0.1, 20 * MS),
    )
    Books(p)
    p.write(200_000)
    p.connection.close()
    p.connection.open()
    p.clock.run()
    assert p.connection.received_bytes == 200_000
    numbers = {parse(frame).seq >> 31 for _, frame in p.there.frames}
    assert numbers == {0, 1}


def _isn(address: Any) -> int:
    import zlib

    return zlib.crc32(address.key)
