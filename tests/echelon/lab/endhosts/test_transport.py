"""The transport over networks that lose, repeat and shuffle; what arrives is counted byte by byte,
independently.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts.shim import (
    MIN_FRAME_BYTES,
    AckSegment,
    DataSegment,
    FlowAddress,
    PacketTally,
    ShimFrames,
    read_frame,
)
from echelon_lab.endhosts.transport import MAX_BACKOFF, FlowReceiver, FlowSender, last_packet_bytes
from tests.drawing import examples

RTO_NS = 50_000
Flow = tuple[FlowSender, FlowReceiver, PacketTally]


def make(size: int, packet: int, window: int, rto_ns: int = RTO_NS, initial: int = 1) -> Flow:
    tally = PacketTally()
    sender = FlowSender(size, packet, window, rto_ns, tally, initial=initial)
    return sender, FlowReceiver(size, packet, window, tally, every=max(1, window // 2)), tally


def give(receiver: FlowReceiver, segment: DataSegment) -> AckSegment | None:
    return receiver.on_segment(segment)


def answer(sender: FlowSender, now_ns: int, ack: AckSegment) -> list[DataSegment]:
    return list(sender.on_ack(now_ns, ack))


def transfer(
    sender: FlowSender, receiver: FlowReceiver
) -> Iterator[tuple[DataSegment, AckSegment | None]]:
    """Carry a whole flow over a network without faults, and yield each packet and its answer."""
    flight = list(sender.start(0))
    while flight:
        ack = give(receiver, frame := flight.pop(0))
        yield frame, ack
        if ack is not None:
            flight += answer(sender, 0, ack)


def opening(window: int) -> int:
    """Return the packets sent while the window is not fully open: one, and two for each but the
    last acknowledgement it takes.
    """
    return max(0, 2 * window - 3)


def opened(
    packets: int, packet: int, window: int
) -> tuple[FlowSender, FlowReceiver, PacketTally, list[DataSegment]]:
    """Return a flow whose window is fully open, and the packets in flight: none of the last
    `packets` has arrived.
    """
    sender, receiver, tally = make(packet * (opening(window) + packets), packet, window)
    flight = list(sender.start(0))
    for _ in range(opening(window)):
        ack = give(receiver, flight.pop(0))
        assert ack is not None
        flight += answer(sender, 0, ack)
    assert receiver.missing_bytes == packets * packet
    assert len(flight) == sender.in_flight == min(window, packets)
    return sender, receiver, tally, flight


def with_drain(segment: DataSegment) -> DataSegment:
    return replace(segment, drain=True)


class Network:
    """Events of one flow, with a fault model; checks the window and counts bytes on its own.

    `loss`, `twice` and `late` are probabilities of each packet and each acknowledgement, `drain` is
    one of a data packet. Without loss nobody may ever wait for a time-out: the longest way there
    and back takes less.
    """

    def __init__(
        self,
        size: int,
        packet: int,
        window: int,
        initial: int,
        rng: random.Random,
        *,
        loss: float = 0,
        twice: float = 0,
        late: float = 0,
        drain: float = 0,
    ):
        self.sender, self.receiver, self.tally = make(size, packet, window, initial=initial)
        self.window, self.initial, self.rng = window, initial, rng
        self.loss, self.twice, self.late, self.drain = loss, twice, late, drain
        self.events: list[tuple[int, int, DataSegment | AckSegment]] = []
        self.count = self.now_ns = 0
        self.covered = bytearray(self.sender.size_bytes)
        self.sent: dict[int, int] = {}
        self.acknowledged = self.sender.size_bytes

    def post(self, segment: DataSegment | AckSegment) -> None:
        copies = 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.twice)
        for _ in range(copies):
            extra = self.rng.randrange(20_000) if self.rng.random() < self.late else 0
            self.count += 1
            heapq.heappush(self.events, (self.now_ns + 1000 + extra, self.count, segment))

    def send(self, segments: Iterable[DataSegment]) -> None:
        segments = list(segments)
        answered = sum(1 for remaining in self.sent if remaining > self.acknowledged)
        new = [segment for segment in segments if segment.remaining not in self.sent]
        may_fly = min(self.window, self.initial + answered)
        prompt = may_fly < self.window
        for segment in segments:
            remaining, length = segment.remaining, segment.length_bytes
            assert not segment.drain, "only switches ask for that"
            if remaining in self.sent:
                assert segment.resent
                assert not segment.prompt
            else:
                assert not segment.resent
                assert segment.prompt == prompt or (self.drain and segment.prompt)
            assert self.sent.setdefault(remaining, length) == length
            assert segment.last == (remaining == length)
            alone = segment in new[:1] and len(self.sent) == answered + 1
            assert segment.alone == alone, "all before it has arrived, and the sender knows"
            self.post(with_drain(segment) if self.rng.random() < self.drain else segment)
        flying = len(self.sent) - answered
        assert flying <= may_fly
        if not self.drain:
            assert flying == may_fly or min(self.sent) <= 200, "whatever may be sent is"

    def run(self) -> None:
        self.send(self.sender.start(0))
        for _ in range(100_000):
            if self.sender.finished:
                return
            if not self.events or self.events[0][0] > self.sender.deadline_ns:
                assert self.loss, "stuck in a network that loses nothing"
                self.now_ns = self.sender.deadline_ns
                self.send(self.sender.on_timeout(self.now_ns))
                continue
            self.now_ns, _, segment = heapq.heappop(self.events)
            if isinstance(segment, DataSegment):
                start = len(self.covered) - segment.remaining
                self.covered[start : start + segment.length_bytes] = b"\x01" * segment.length_bytes
                ack = give(self.receiver, segment)
                in_order = self.covered.find(0)
                missing = 0 if in_order < 0 else len(self.covered) - in_order
                assert self.receiver.missing_bytes == missing
                if ack is not None:
                    assert ack.missing_bytes == missing
                    self.post(ack)
            else:
                self.acknowledged = min(self.acknowledged, segment.missing_bytes)
                self.send(answer(self.sender, self.now_ns, segment))
        raise AssertionError("the flow does not end")


@given(
    packets=st.integers(1, 60),
    rest=st.integers(1, 200),
    window=st.integers(1, 12),
    initial=st.sampled_from([1, 1, 4, 12]),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.02, 0.3]),
    twice=st.sampled_from([0.0, 0.2]),
    late=st.sampled_from([0.0, 0.3]),
    drain=st.sampled_from([0.0, 0.05, 0.5]),
)
@settings(max_examples=examples(300), deadline=None)
def test_every_byte_arrives_once_whatever_the_network_does(
    packets: int,
    rest: int,
    window: int,
    initial: int,
    seed: int,
    loss: float,
    twice: float,
    late: float,
    drain: float,
) -> None:
    size = (packets - 1) * 200 + rest
    network = Network(
        size,
        200,
        window,
        initial,
        random.Random(seed),
        loss=loss,
        twice=twice,
        late=late,
        drain=drain,
    )
    network.run()
    assert all(network.covered)
    assert network.receiver.missing_bytes == 0
    # The packets tile the flow: each byte belongs to exactly one.
    assert sum(network.sent.values()) == max(size, MIN_FRAME_BYTES)
    at = max(size, MIN_FRAME_BYTES)
    for remaining in sorted(network.sent, reverse=True):
        assert remaining == at
        assert network.sent[remaining] >= MIN_FRAME_BYTES
        at -= network.sent[remaining]
    assert at == 0
    if not late:
        assert network.tally.reordered == 0
    if not loss:
        assert network.tally.retransmitted == 0
    if not (loss or twice or late):
        assert network.tally.duplicate == 0


@pytest.mark.parametrize(
    ("size", "lengths"),
    [
        (2500, [1250, 1250]),
        (2501, [1250, 1188, 63]),
        (2562, [1250, 1249, 63]),
        (2563, [1250, 1250, 63]),
        (1251, [1188, 63]),
        (1250, [1250]),
        (63, [63]),
        (1, [63]),
    ],
)
def test_sizes_that_do_not_divide(size: int, lengths: list[int]) -> None:
    sender, receiver, _ = make(size, 1250, 8)
    assert [frame.length_bytes for frame, _ in transfer(sender, receiver)] == lengths
    assert sender.finished
    assert last_packet_bytes(size, 1250) == lengths[-1]


def test_a_flow_of_fig_2_is_2000_full_frames() -> None:
    sender, receiver, _ = make(2_500_000, 1250, 8)
    assert [frame.length_bytes for frame, _ in transfer(sender, receiver)] == [1250] * 2000
    assert sender.finished


@pytest.mark.parametrize("window", [1, 2, 3, 8])
def test_the_window_opens_by_one_for_each_acknowledged_packet(window: int) -> None:
    sender, receiver, _ = make(200 * 50, 200, window)
    flight = list(sender.start(0))
    assert len(flight) == 1
    prompt = [flight[0].prompt]
    for acknowledged in range(1, opening(window) + 1):
        ack = give(receiver, flight.pop(0))
        assert ack is not None
        new = answer(sender, 0, ack)
        flight += new
        prompt += [frame.prompt for frame in new]
        assert sender.in_flight == len(flight) == min(window, 1 + acknowledged)
    assert prompt == [True] * opening(window) + [False] * window


def test_one_acknowledgement_of_several_packets_opens_the_window_by_as_many() -> None:
    sender, receiver, _ = make(200 * 50, 200, 8)
    ack = give(receiver, sender.start(0)[0])
    assert ack is not None
    two, three = answer(sender, 1, ack)
    assert give(receiver, two) is not None  # and is lost
    ack = give(receiver, three)
    assert ack is not None
    assert len(answer(sender, 2, ack)) == sender.in_flight == 4


@pytest.mark.parametrize(("window", "every"), [(1, 1), (2, 1), (3, 1), (8, 4), (9, 4)])
def test_acknowledges_every_half_window_once_it_is_open(window: int, every: int) -> None:
    sender, receiver, _ = make(200 * 100, 200, window)
    between, seen = 0, []
    for _, ack in transfer(sender, receiver):
        between += 1
        if ack is not None:
            seen.append(between)
            between = 0
    whole, rest = divmod(100 - opening(window), every)
    assert seen == [1] * opening(window) + [every] * whole + [rest] * (rest > 0)
    assert sender.finished


def test_drain_lets_the_window_run_empty_once_and_open_again() -> None:
    sender, receiver, tally, frames = opened(50, 200, 8)
    # A switch flags the third packet and all that were on their way behind it, until the flow may
    # move up (the last 3).
    flight = frames[:2] + [with_drain(frame) for frame in frames[2:5]] + frames[5:]
    out = []
    for at, frame in enumerate(flight):
        ack = give(receiver, frame)
        if at < 2:
            assert ack is None
            continue
        assert ack is not None, "each packet from the flag on is acknowledged at once"
        assert ack.drain == (at < 5)
        out = answer(sender, 1000 + at, ack)
        assert bool(out) == (at == 7), "nothing new before the last of the window is acknowledged"
    assert out == [DataSegment(200 * 42, 200, alone=True, prompt=True)]
    # It opens as at the start, and then it is back to normal: an acknowledgement for each half
    # window, no draining.
    sizes, acks = [sender.in_flight], 0
    while out:
        ack = give(receiver, out.pop(0))
        if ack is not None:
            acks += 1
            out += answer(sender, 2000, ack)
            sizes.append(sender.in_flight)
    assert sizes[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    assert max(sizes) == 8
    assert sender.finished
    assert acks == 13 + -(-(42 - 13) // 4)
    assert tally.retransmitted == tally.duplicate == tally.reordered == 0


def test_drain_while_the_window_opens_starts_it_again() -> None:
    sender, receiver, _ = make(200 * 50, 200, 8)
    ack = give(receiver, sender.start(0)[0])
    assert ack is not None
    two, three = answer(sender, 1, ack)
    for frame, sent in ((with_drain(two), 0), (three, 1)):
        ack = give(receiver, frame)
        assert ack is not None
        out = answer(sender, 2, ack)
        assert len(out) == sent
    assert out[0] == DataSegment(200 * 47, 200, alone=True, prompt=True)
    ack = give(receiver, out[0])
    assert ack is not None
    assert len(answer(sender, 3, ack)) == sender.in_flight == 2


@pytest.mark.parametrize("window", [1, 2, 8, 9])
def test_draining_costs_a_window_of_acknowledgements_if_the_sender_does_not_hear_of_it(
    window: int,
) -> None:
    _, receiver, _ = make(200 * 100, 200, window)
    frames = [DataSegment(200 * remaining, 200) for remaining in range(100, 1, -1)]
    answered = [
        give(receiver, with_drain(frame) if at == 0 else frame) is not None
        for at, frame in enumerate(frames)
    ]
    assert answered[: 1 + window] == [True] * (1 + window)
    every = max(1, window // 2)
    assert answered[1 + window :] == [at % every == 0 for at in range(1, 99 - window)]


def test_a_lost_request_does_not_spoil_the_next_one() -> None:
    """The sender hears only of the second request, and drains with packets in flight behind the
    first one's window.
    """
    sender, receiver, tally, flight = opened(50, 200, 8)
    assert give(receiver, with_drain(flight.pop(0))) is not None  # and is lost
    ack = give(receiver, flight.pop(0))
    assert ack is not None
    flight += answer(sender, 1, ack)
    ack = give(receiver, with_drain(flight.pop(0)))
    assert ack is not None
    assert answer(sender, 2, ack) == []
    assert len(flight) == sender.in_flight == 7
    while flight:
        ack = give(receiver, flight.pop(0))
        assert ack is not None
        out = answer(sender, 3, ack)
        assert len(out) == (not flight)
    assert tally.retransmitted == 0


@given(
    seed=st.integers(0, 2**32),
    window=st.integers(1, 10),
    initial=st.sampled_from([1, 3, 10]),
    size=st.integers(200 * 40, 200 * 60),
    often=st.sampled_from([0.03, 0.1, 0.5]),
)
@settings(max_examples=examples(150), deadline=None)
def test_draining_never_gets_stuck_in_a_network_without_loss(
    seed: int, window: int, initial: int, size: int, often: float
) -> None:
    rng = random.Random(seed)
    sender, receiver, tally = make(size, 200, window, initial=initial)
    flight = list(sender.start(0))
    flagged = draining = False
    restarts = 0
    while flight:
        flagged = rng.random() < (0.7 if flagged else often)
        frame = flight.pop(0)
        ack = give(receiver, with_drain(frame) if flagged else frame)
        if ack is None:
            assert not draining
            continue
        new = answer(sender, 0, ack)
        draining = draining or flagged
        assert sender.in_flight == len(flight) + len(new) <= window
        if not draining:
            flight += new
        elif flight:
            assert new == []
        elif not sender.finished:
            left = -(-new[0].remaining // 200)
            assert len(new) == min(initial, window, left)
            assert new[0].prompt == (window > initial)
            flight, draining, restarts = new, False, restarts + 1
    assert sender.finished
    assert tally.retransmitted == tally.duplicate == tally.reordered == 0
    if often == 0.5:
        assert restarts > 0


@pytest.mark.parametrize("window", [1, 8])
def test_a_drain_request_on_the_only_packet_in_flight_stops_nothing(window: int) -> None:
    sender, receiver, _ = make(200 * 3, 200, window)
    ack = give(receiver, with_drain(sender.start(0)[0]))
    assert ack is not None
    assert len(answer(sender, 1, ack)) == 1


def test_lost_packets_come_again_one_for_each_acknowledgement() -> None:
    sender, receiver, tally, frames = opened(20, 200, 8)
    acks = [give(receiver, frame) for at, frame in enumerate(frames) if at not in (2, 5)]
    assert [ack is not None for ack in acks] == [False, False, True, True, True, True]
    for ack in acks[2:]:
        assert ack is not None
        answer(sender, 10, ack)
    assert sender.deadline_ns == 10 + RTO_NS
    [again] = sender.on_timeout(sender.deadline_ns)
    assert again == DataSegment(200 * 18, 200, resent=True)
    ack = give(receiver, again)
    assert ack is not None
    second, *new = answer(sender, 100_000, ack)
    assert second == DataSegment(200 * 15, 200, resent=True)
    assert [frame.prompt or frame.resent for frame in new] == [False] * 3
    ack = give(receiver, second)
    assert ack is not None
    assert ack.missing_bytes == 200 * 12
    assert tally.retransmitted == 2
    assert tally.duplicate == 0


def test_a_lost_window_comes_again_at_once_when_the_network_is_back() -> None:
    sender, receiver, tally, _ = opened(20, 200, 8)
    flight = list(sender.on_timeout(sender.deadline_ns))
    while flight:
        frame = flight.pop(0)
        ack = give(receiver, frame)
        assert ack is not None or not frame.resent, (
            "a retransmission is answered at once: its sender waits"
        )
        if ack is not None:
            flight += answer(sender, 100_000, ack)
    assert sender.finished
    assert tally.retransmitted == 8
    assert tally.duplicate == 0


def test_draining_begins_although_something_is_missing() -> None:
    sender, receiver, _, (_, second, third, fourth) = opened(20, 200, 4)
    ack = give(receiver, with_drain(second))
    assert ack is not None
    assert ack.missing_bytes == 200 * 20
    assert answer(sender, 1, ack) == []
    for frame in (third, fourth):
        ack = give(receiver, frame)
        assert ack is not None
        assert answer(sender, 2, ack) == []
    [again] = sender.on_timeout(sender.deadline_ns)
    ack = give(receiver, again)
    assert ack is not None
    assert ack.missing_bytes == 200 * 16
    assert len(answer(sender, 100_000, ack)) == 1
    # Had the request not been heeded, the first of the window alone would have let new packets go.
    sender, receiver, _, (first, second, *_) = opened(20, 200, 4)
    drained = give(receiver, with_drain(second))
    ack = give(receiver, first)
    assert drained is not None
    assert ack is not None
    answer(sender, 1, drained)
    assert answer(sender, 2, ack) == []


def test_impatience_costs_one_packet() -> None:
    """The whole window waits in a queue for longer than the time-out, then comes out in order."""
    sender, receiver, tally, flight = opened(20, 200, 8)
    flight += sender.on_timeout(sender.deadline_ns)
    assert len(flight) == 9
    while flight:
        ack = give(receiver, flight.pop(0))
        if ack is not None:
            flight += answer(sender, 200_000, ack)
    assert sender.finished
    assert tally.retransmitted == tally.duplicate == 1
    assert tally.reordered == 0


def test_waits_twice_as_long_each_time_up_to_a_limit() -> None:
    sender, receiver, _ = make(2000, 200, 2)
    frames = sender.start(0)
    at, waits = 0, []
    for _ in range(6):
        waits.append(sender.deadline_ns - at)
        at = sender.deadline_ns
        sender.on_timeout(at)
    assert waits == [RTO_NS * factor for factor in (1, 2, 4, 8, 8, 8)]
    assert MAX_BACKOFF == 8
    assert sender.timeouts == 6
    ack = give(receiver, frames[0])
    assert ack is not None
    answer(sender, at, ack)
    assert sender.deadline_ns - at == RTO_NS
    assert sender.timeouts == 0
    at = sender.deadline_ns
    sender.on_timeout(at)
    assert sender.deadline_ns - at == 2 * RTO_NS


def test_reordering_is_counted_for_originals_only() -> None:
    _, receiver, tally, (one, two, three, four, five, six) = opened(6, 200, 8)
    again = replace(two, resent=True)
    for frame in (one, three, again, five, five, four, four, six):
        give(receiver, frame)
    assert tally.reordered == 1  # four, after five; two came as a retransmission
    assert tally.duplicate == 2
    give(receiver, two)
    assert tally.reordered == 1
    assert tally.duplicate == 3
    assert receiver.missing_bytes == 0


def test_impossible_packets_and_acknowledgements_change_nothing() -> None:
    _, receiver, _ = make(2000, 200, 4)
    for marks in ({}, {"resent": True}, {"prompt": True}):
        assert receiver.on_segment(DataSegment(2200, 200, **marks)) is None
        assert receiver.on_segment(DataSegment(100, 200, **marks)) is None
    assert receiver.missing_bytes == 2000
    sender, _, _, _ = opened(10, 200, 4)
    for missing in (2000, 2200, 3000, 2**32 - 1, 0, 200):
        assert list(sender.on_ack(5, AckSegment(missing))) == []
    assert sender.in_flight == 4
    assert sender.deadline_ns == RTO_NS


FRAMES = ShimFrames(
    FlowAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 0xC001), 3, 1250
)


def read_data(frame: bytes) -> DataSegment:
    found = read_frame(frame)
    assert found is not None
    assert isinstance(found[1], DataSegment)
    return found[1]


def read_ack(frame: bytes) -> AckSegment:
    found = read_frame(frame)
    assert found is not None
    assert isinstance(found[1], AckSegment)
    return found[1]


@pytest.mark.parametrize(("window", "delay_ns"), [(8, 2_400_000), (2, 0), (16, 6_000_000)])
def test_line_rate_when_the_window_covers_the_way_there_and_back(
    window: int, delay_ns: int, toy_clock: Any, toy_link: Any
) -> None:
    """Bottleneck 10 Mbit/s: 1 ms a packet.

    The window doubles with each round trip; from the one on that a doubled window fills, the line
    never idles. Half a window is acknowledged at a time, so the other half must cover the round
    trip: then the last byte arrives after exactly the first round trips, the bytes' own time and
    one way's delay.
    """
    clock = toy_clock()
    packets = 400
    sender, receiver, tally = make(1250 * packets, 1250, window, rto_ns=10**9)
    finished: list[int] = []

    def at_receiver(now_ns: int, frame: bytes) -> None:
        ack = give(receiver, read_data(frame))
        if not receiver.missing_bytes:
            finished.append(now_ns)
        if ack is not None:
            back.send(FRAMES.ack(ack))

    def at_sender(now_ns: int, frame: bytes) -> None:
        for out in answer(sender, now_ns, read_ack(frame)):
            there.send(FRAMES.data(out))

    there = toy_link(clock, 10_000_000, delay_ns // 2, at_receiver)
    back = toy_link(clock, 1_000_000_000, delay_ns // 2, at_sender)
    for segment in sender.start(0):
        there.send(FRAMES.data(segment))
    clock.run()
    round_trip_ns = 1_000_000 + delay_ns + 512  # an acknowledgement is 64 bytes
    rounds = next(number for number in range(10) if 2**number * 1_000_000 >= round_trip_ns)
    assert finished == [
        rounds * round_trip_ns + (packets - (2**rounds - 1)) * 1_000_000 + delay_ns // 2
    ]
    assert tally.retransmitted == 0


def test_half_the_rate_when_the_window_is_half_of_what_is_needed(
    toy_clock: Any, toy_link: Any
) -> None:
    clock = toy_clock()
    sender, receiver, _ = make(1250 * 400, 1250, 2, rto_ns=10**9)

    def at_receiver(now_ns: int, frame: bytes) -> None:
        ack = give(receiver, read_data(frame))
        if ack is not None:
            back.send(FRAMES.ack(ack))

    there = toy_link(clock, 10_000_000, 3_000_000, at_receiver)

    def at_sender(now_ns: int, frame: bytes) -> None:
        for out in answer(sender, now_ns, read_ack(frame)):
            there.send(FRAMES.data(out))

    back = toy_link(clock, 10**12, 0, at_sender)
    for segment in sender.start(0):
        there.send(FRAMES.data(segment))
    clock.run()
    # 2 packets of 1 ms in each round trip of 1 + 3 ms.
    assert Fraction(clock.now_ns, 400 * 1_000_000) == pytest.approx(2, rel=0.01)
