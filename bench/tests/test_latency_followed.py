"""The benchmark's latency: which packets are followed, and which burst each belongs to."""

from __future__ import annotations

import random
import socket
from array import array
from collections import Counter

import pytest

from bench.switch.generator import BURST_FRAMES, INDEX_AT, MIN_FRAME_BYTES, ROUND_AT, Sent
from bench.switch.latency import FOLLOWED, latencies_ns
from bench.switch.sink import Arrival, attach

CYCLE_FRAMES = 4096


def _frame(index: int, turn: int, size: int = MIN_FRAME_BYTES) -> bytes:
    frame = bytearray(random.Random(index).randbytes(size))
    frame[INDEX_AT], frame[ROUND_AT] = index.to_bytes(2, "big"), (turn & 0xFFFF).to_bytes(2, "big")
    return bytes(frame)


def test_the_kernel_passes_one_packet_of_each_burst_and_each_place_as_often() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        attach(other, FOLLOWED)
        other.setblocking(False)
        passed = []
        for index in range(CYCLE_FRAMES):
            one.send(_frame(index, 1, 64 if index % 3 else 1400))
            try:
                passed.append(int.from_bytes(other.recv(2000)[INDEX_AT], "big"))
            except BlockingIOError:
                continue
    assert [index // BURST_FRAMES for index in passed] == list(range(CYCLE_FRAMES // BURST_FRAMES))
    assert set(Counter(index % BURST_FRAMES for index in passed).values()) == {
        CYCLE_FRAMES // BURST_FRAMES**2
    }


@pytest.mark.parametrize("first_turn", [1, 65_534])
def test_a_packet_is_timed_from_the_instant_of_its_burst(first_turn: int) -> None:
    """The round's number has two bytes and starts again.

    A packet of an earlier run has no burst.
    """
    rng = random.Random(first_turn)
    handed_ns = array("q", (10**18 + 40_000 * burst for burst in range(1000)))
    sent = Sent(16_000, 0, 1, 0, 0, first_turn, CYCLE_FRAMES, handed_ns)
    took_ns = [rng.randrange(10**6) for _ in range(500)]
    arrivals = []
    for each in took_ns:
        number = rng.randrange(16_000)
        turn, index = divmod(number, CYCLE_FRAMES)
        arrivals.append(
            Arrival(handed_ns[number // 16] + each, 64, _frame(index, first_turn + turn))
        )
    late = Arrival(10**18, 64, _frame(5, first_turn - 1))
    assert latencies_ns(sent, [late, *arrivals]) == took_ns
