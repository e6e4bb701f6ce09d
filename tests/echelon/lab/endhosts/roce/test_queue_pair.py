"""Go-back-N: whatever a network does to packets, every byte arrives once and in order, and nothing
else is sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts.roce.frames import (
    ACK,
    ACKNOWLEDGE,
    NAK_SEQUENCE,
    NUMBERS,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Packet,
    QueuePairAddress,
    parse,
)
from echelon_lab.endhosts.roce.queue_pair import MAX_TIMEOUTS, PairSettings, Requester, Responder
from echelon_lab.endhosts.shim import PacketTally
from echelon_lab.endhosts.transport import MAX_BACKOFF
from tests.drawing import examples

ADDRESS = QueuePairAddress(
    "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 0xC000, 5, 6
)
TIMEOUT_NS = 10_000_000


def read(frame: bytes) -> Packet:
    packet = parse(frame)
    assert packet is not None
    return packet


class Path:
    """Both ends, and a link each way; `sent` and `answers` are what was put on them."""

    def __init__(
        self,
        toy_clock: Any,
        toy_link: Any,
        settings: PairSettings,
        first_psn: int,
        fate: Callable[[int, bytes], list[tuple[int, bytes]]] | None = None,
        fate_back: Callable[[int, bytes], list[tuple[int, bytes]]] | None = None,
    ) -> None:
        self.clock, self.tally = toy_clock(), PacketTally()
        self.requester = Requester(ADDRESS, settings, self.tally, first_psn)
        self.responder = Responder(ADDRESS, self.tally, first_psn)
        self.there = toy_link(
            self.clock, 10**8, 50_000, self._arrive, *([] if fate is None else [fate])
        )
        self.back = toy_link(
            self.clock, 10**8, 50_000, self._answer, *([] if fate_back is None else [fate_back])
        )

    @property
    def sent(self) -> list[Packet]:
        return [read(frame) for _, frame in self.there.frames]

    @property
    def answers(self) -> list[Packet]:
        return [read(frame) for _, frame in self.back.frames]

    def write(self, length_bytes: int) -> None:
        self._transmit(self.requester.write(self.clock.now_ns, length_bytes))

    def _transmit(self, frames: Any) -> None:
        for frame in frames:
            self.there.send(frame)
        if self.requester.deadline_ns is not None:
            self.clock.call_at(max(self.requester.deadline_ns, self.clock.now_ns), self._due)

    def _due(self) -> None:
        self._transmit(self.requester.on_deadline(self.clock.now_ns))

    def _arrive(self, _now_ns: int, frame: bytes) -> None:
        answer = self.responder.on_packet(read(frame))
        if answer is not None:
            self.back.send(answer)

    def _answer(self, now_ns: int, frame: bytes) -> None:
        self._transmit(self.requester.on_packet(now_ns, read(frame)))


def trouble(
    seed: int, lose: float, repeat: float, hold: float
) -> Callable[[int, bytes], list[tuple[int, bytes]]]:
    rng, in_a_row = Random(seed), [0]

    def fate(_number: int, frame: bytes) -> list[tuple[int, bytes]]:
        if rng.random() < lose and in_a_row[0] < 3:
            in_a_row[0] += 1
            return []
        in_a_row[0] = 0
        copies = 2 if rng.random() < repeat else 1
        return [
            (rng.randrange(1_000_000) if rng.random() < hold else 0, frame) for _ in range(copies)
        ]

    return fate


def packets_of(sizes: list[int], settings: PairSettings) -> list[tuple[int, int]]:
    """Return opcode and payload of each packet that carries these, computed byte by byte."""
    out = []
    for size in sizes:
        for message in range(0, size, settings.message_bytes):
            end = min(size, message + settings.message_bytes)
            starts = range(message, end, settings.mtu)
            for at in starts:
                kinds = {
                    (True, True): WRITE_ONLY,
                    (True, False): WRITE_FIRST,
                    (False, True): WRITE_LAST,
                }
                opcode = kinds.get((at == message, at + settings.mtu >= end), WRITE_MIDDLE)
                out.append((opcode, min(end, at + settings.mtu) - at))
    return out


@settings(
    max_examples=examples(150),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    sizes=st.lists(st.integers(1, 20_000), min_size=1, max_size=5),
    mtu=st.sampled_from([256, 1024, 4096]),
    packets_of_message=st.integers(1, 16),
    window=st.integers(1, 20),
    first_psn=st.one_of(st.integers(0, NUMBERS - 1), st.integers(NUMBERS - 40, NUMBERS - 1)),
    seed=st.integers(0, 2**16),
    lose=st.sampled_from([0.0, 0.02, 0.2]),
    repeat=st.sampled_from([0.0, 0.1]),
    hold=st.sampled_from([0.0, 0.05]),
)
def test_every_byte_arrives_once_and_in_order(
    toy_clock: Any,
    toy_link: Any,
    sizes: list[int],
    mtu: int,
    packets_of_message: int,
    window: int,
    first_psn: int,
    seed: int,
    lose: float,
    repeat: float,
    hold: float,
) -> None:
    settings = PairSettings(
        mtu, window, mtu * packets_of_message, TIMEOUT_NS, asks_after=(window + 1) // 2
    )
    path = Path(
        toy_clock,
        toy_link,
        settings,
        first_psn,
        trouble(seed, lose, repeat, hold),
        trouble(~seed, lose, repeat, hold),
    )
    for size in sizes:
        path.write(size)
    path.clock.run()
    expected = packets_of(sizes, settings)
    assert path.responder.received_bytes == sum(sizes) == sum(length for _, length in expected)
    assert path.requester.deadline_ns is None
    # A number stands for one packet, whenever it is sent, and numbers are sent in their order the
    # first time.
    places = [(packet.psn - first_psn) % NUMBERS for packet in path.sent]
    assert [(packet.opcode, packet.payload_bytes) for packet in path.sent] == [
        expected[place] for place in places
    ]
    assert list(dict.fromkeys(places)) == list(range(len(expected)))
    assert len(places) - len(expected) == path.tally.retransmitted
    # After a packet comes the next one, or it goes back, by no more than a window.
    assert all(1 - window <= later - place <= 1 for place, later in itertools.pairwise(places))
    if not lose and not hold:
        assert path.tally.retransmitted == path.tally.reordered == 0
        assert {answer.syndrome for answer in path.answers} == {ACK}


@pytest.mark.parametrize("first_psn", [0, NUMBERS - 3])
@pytest.mark.parametrize("lost", [0, 3, 4, 9])
def test_a_lost_packet_costs_one_nak_and_what_was_sent_behind_it(
    toy_clock: Any, toy_link: Any, lost: int, first_psn: int
) -> None:
    """Ten packets of one message are in flight, and one of them is lost."""
    settings = PairSettings(1024, 16, 10 * 1024, TIMEOUT_NS, asks_after=8)
    path = Path(
        toy_clock,
        toy_link,
        settings,
        first_psn,
        lambda number, frame: [] if number == lost else [(0, frame)],
    )
    path.write(10 * 1024)
    path.clock.run()
    places = [(packet.psn - first_psn) % NUMBERS for packet in path.sent]
    # Nobody misses the last one: the sender's time is up, for that and the one before, which asked
    # for nothing.
    first = 8 if lost == 9 else lost
    assert places == [*range(10), *range(first, 10)]
    naks = [
        (answer.psn - first_psn) % NUMBERS
        for answer in path.answers
        if answer.syndrome == NAK_SEQUENCE
    ]
    assert naks == ([] if lost == 9 else [lost])
    assert (path.there.frames[-1][0] >= TIMEOUT_NS) == (lost == 9)
    assert path.tally == PacketTally(
        retransmitted=10 - first, duplicate=int(lost == 9), reordered=0
    )


def test_only_what_the_window_holds_is_in_flight(toy_clock: Any, toy_link: Any) -> None:
    settings = PairSettings(1024, 4, 1 << 20, TIMEOUT_NS, asks_after=2)
    path = Path(toy_clock, toy_link, settings, 0)
    path.write(100 * 1024)
    assert [packet.asks for packet in path.sent] == [False, True, False, True]
    path.clock.run()
    acked = -1
    events = sorted(
        [(at, 0, read(f)) for at, f in path.there.frames]
        + [(at, 1, read(f)) for at, f in path.back.frames]
    )
    for _, _, packet in events:
        if packet.opcode == ACKNOWLEDGE:
            acked = packet.psn
        else:
            assert packet.psn - acked <= 4


def test_time_outs_double_and_end(toy_clock: Any, toy_link: Any) -> None:
    path = Path(
        toy_clock,
        toy_link,
        PairSettings(1024, 2, 4096, TIMEOUT_NS, asks_after=1),
        0,
        lambda _number, _frame: [],
    )
    path.write(1024)
    path.clock.run()
    times = [at for at, _ in path.there.frames]
    assert path.requester.given_up
    assert len(times) == 1 + MAX_TIMEOUTS
    waits = [(later - at) // TIMEOUT_NS for at, later in itertools.pairwise(times)]
    assert waits[:5] == [1, 2, 4, 8, 8]
    assert set(waits[3:]) == {MAX_BACKOFF}


def test_outdated_and_impossible_acknowledgements_are_ignored() -> None:
    requester = Requester(
        ADDRESS, PairSettings(1024, 8, 4096, TIMEOUT_NS, asks_after=4), first_psn=NUMBERS - 1
    )
    assert len(requester.write(0, 4096)) == 4
    # Of the packets before, and of those that were never sent.
    for psn in (NUMBERS - 2, NUMBERS - 100, 3, 1000):
        assert not requester.on_packet(1, Packet(ACKNOWLEDGE, 5, psn, syndrome=ACK))
    for psn in (NUMBERS - 2, 4, 1000):
        assert not requester.on_packet(1, Packet(ACKNOWLEDGE, 5, psn, syndrome=NAK_SEQUENCE))
    assert not requester.on_packet(1, Packet(ACKNOWLEDGE, 5, 2, syndrome=0x20)), (
        "a receiver that is not ready"
    )
    assert requester.deadline_ns == TIMEOUT_NS
    assert not requester.on_packet(2, Packet(ACKNOWLEDGE, 5, 2, syndrome=ACK))
    assert requester.deadline_ns is None
