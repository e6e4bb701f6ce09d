"""Flows that share the window of a stream, over a link that keeps what is sent for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echelon_lab.endhosts.shim import AckSegment, DataSegment, PacketTally, flow_key
from echelon_lab.endhosts.transport import FlowEnds, FlowReceiver, FlowSender, StreamPlace

PACKET = 1000
MS = 1_000_000
RETRANSMIT_NS = 50 * MS


class Pair:
    """Two hosts, and a link of a packet a millisecond between them, in each direction."""

    def __init__(self, clock: Any, window: int, initial: int, every: int = 2) -> None:
        self.clock = clock
        self.ends = FlowEnds("h1", clock), FlowEnds("h2", clock)
        self.window, self.initial, self.every = window, initial, every
        self.free_ns = [0, 0]
        self.in_flight = self.most_in_flight = self.lost = 0
        self.sent: list[int] = []
        self.finished: list[int] = []
        self.acknowledgements = 0
        self.tally = PacketTally()

    def start(self, number: int, packets: int, urgency: float) -> None:
        key = flow_key(1, 7, number)

        def transmit(segment: DataSegment) -> None:
            self.sent.append(number)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._carry(0, key, replace(segment))

        def acknowledge(segment: AckSegment) -> None:
            self.acknowledgements += 1
            self._carry(1, key, segment)

        size = packets * PACKET
        receiver = FlowReceiver(size, PACKET, self.window, self.tally, every=self.every)
        self.ends[1].receive(key, receiver, acknowledge, lambda: self.finished.append(number), "s")
        sender = FlowSender(size, PACKET, self.window, RETRANSMIT_NS, self.tally, shares=True)
        place = StreamPlace("s", self.window, self.initial, lambda _now_ns: (urgency,))
        self.ends[0].send(key, sender, transmit, "a flow", place=place)

    def _carry(self, way: int, key: bytes, segment: DataSegment | AckSegment) -> None:
        start_ns = max(self.clock.now_ns, self.free_ns[way])
        self.free_ns[way] = start_ns + (MS if way == 0 else 1000)
        self.clock.call_at(self.free_ns[way], self._arrive, way, key, segment)

    def _arrive(self, way: int, key: bytes, segment: DataSegment | AckSegment) -> None:
        if way == 0:
            self.in_flight -= 1
        self.ends[1 - way].deliver(self.clock.now_ns, key, segment)


def test_places_go_to_the_most_urgent_and_the_window_is_one(clock: Any) -> None:
    pair = Pair(clock, window=4, initial=4)
    pair.start(1, 10, urgency=1.0)
    pair.start(2, 10, urgency=2.0)
    pair.start(3, 10, urgency=1.0)
    clock.run()
    # The first flow had the whole window when the second came. Equal flows go in order of start.
    assert pair.sent == [1] * 4 + [2] * 10 + [1] * 6 + [3] * 10
    assert pair.finished == [2, 1, 3]
    assert pair.most_in_flight == 4
    assert (pair.tally.retransmitted, pair.tally.reordered, pair.tally.duplicate) == (0, 0, 0)


@pytest.mark.parametrize("window", [2, 3, 5])
def test_flows_that_are_held_up_keep_no_places(clock: Any, window: int) -> None:
    """Each flow has sent one packet, which is not answered by itself, when a more urgent one comes.

    With a place lost to each, nothing would move until a time-out.
    """
    pair = Pair(clock, window, initial=window)
    flows = 12
    for number in range(flows):
        clock.call_at(number * MS, pair.start, number, 20, float(number))
    clock.run()
    assert sorted(pair.finished) == list(range(flows))
    assert pair.tally.retransmitted == 0
    # The link is never idle, but for the way of an acknowledgement where two packets are all.
    assert clock.now_ns < 20 * flows * MS * 1.1 + RETRANSMIT_NS


def test_who_waits_for_a_place_does_not_time_out(clock: Any) -> None:
    pair = Pair(clock, window=4, initial=4)
    pair.start(1, 300, urgency=2.0)
    pair.start(2, 3, urgency=1.0)
    clock.run()
    assert pair.finished == [1, 2]
    assert pair.tally.retransmitted == 0


def test_one_acknowledgement_answers_two_packets(clock: Any) -> None:
    pair = Pair(clock, window=6, initial=6)
    pair.start(1, 100, urgency=1.0)
    clock.run()
    assert pair.acknowledgements == 50


def test_the_window_opens_by_what_is_acknowledged(clock: Any) -> None:
    pair = Pair(clock, window=8, initial=1)
    pair.start(1, 40, urgency=1.0)
    assert pair.in_flight == 1
    clock.run(until_ns=2 * MS)
    assert pair.in_flight == 2
    clock.run()
    assert pair.most_in_flight == 8


def test_a_flow_of_the_next_iteration_takes_the_place_of_the_one_before(clock: Any) -> None:
    """The last acknowledgement of an iteration may be lost, and its sender still there."""
    pair = Pair(clock, window=4, initial=4)
    pair.start(1, 2, urgency=1.0)
    pair.start(1, 9, urgency=1.0)
    clock.run()
    assert pair.finished[-1] == 1
    assert pair.most_in_flight <= 6
