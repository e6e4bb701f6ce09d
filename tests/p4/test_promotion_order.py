"""Queues behind the switch: a flow keeps its order, in whatever way they are served that keeps
their minimum rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from reference.frames import ipv4, shim, tcp

from echelon.model.p4program import constants, program
from echelon.switches.lowering.capabilities import OuterQueues
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.lowering.parts import hold_part, hold_us
from softswitch import Program, Switch, load_program
from tests.drawing import examples
from tests.engines import fast_switch

SRC, DST, PORT = 0x0A000001, 0x0A000002, 3
ALONE, DRAIN = constants()["SHIM_FLAG_ALONE"], constants()["SHIM_FLAG_DRAIN"]
BIAS = constants()["SLACK_BIAS"]
SHIM_FLAGS_AT = 42
OUTER = OuterQueues(depth_packets=3, frame_bytes=1000)
MIN_RATE_BPS = 100_000
FRAME_US = 80_000
"""The time of a frame at the minimum rate."""
SETTINGS = [
    QueueSetting(PORT, queue, queue, 1, MIN_RATE_BPS if queue < 7 else 0, None)
    for queue in range(8)
]
HOLD_US = hold_us(SETTINGS[0], OUTER)
STEP_US = 49_000
"""A flow rises by a queue each time that it is late by so much more."""
SHIM_FLOW, OTHER, TCP_FLOW = range(3)
"""The last: the first of several on one connection."""


@pytest.fixture(scope="module")
def compiled() -> Program:
    return load_program(program().binary.read_bytes(), "echelon.json")


def ranked(compiled: Program) -> Switch:
    """Return a switch with SHIM_FLOW and OTHER by shim, TCP_FLOW and more by bytes, all late from
    their start, to one port.
    """
    switch = fast_switch(compiled)
    i = "EchelonIngress."
    c = i + "classifier."

    def insert(
        table: str, key: tuple[object, ...], action: str, values: list[int], priority: int = 0
    ) -> None:
        switch.tables[table].insert(key, priority, action, values)

    for flow in (SHIM_FLOW, OTHER):
        insert(c + "shim_flow", (1, flow), c + "set_flow", [flow])
        insert(i + "flow.flow", (flow,), "deadline", [PORT, 2, flow, 0, 0, 0, 63])
    insert(
        c + "tcp_connection",
        (SRC, DST, 100, 200),
        c + "set_connection",
        [7, 2, 1, (1 << 32) - 1, 1 << 31, 0, 0],
    )
    # Flow after flow of five packets on one connection, each second one in a queue of its own.
    for place in range(10):
        flow, ends = TCP_FLOW + place, (4500 * place, 4500 * place + 4499)
        insert(c + "segment", (7, ends), c + "set_segment", [flow, ends[1] + 1], 1)
        if place % 2:
            insert(i + "flow.flow", (flow,), "fixed", [PORT, 2, 3 * place % 8])
        else:
            insert(i + "flow.flow", (flow,), "deadline", [PORT, 2, flow, 0, 0, 0, 63])
    lows = [0, *(BIAS - k * STEP_US + 1 for k in range(7, 0, -1))]
    highs = [*(low - 1 for low in lows[1:]), (1 << 32) - 1]
    for low, high, queue in zip(lows, highs, range(7, -1, -1), strict=True):
        insert(i + "level.level", (0, (low, high)), i + "level.set_queue", [queue, low], 1)
    for entry in hold_part(SETTINGS, OUTER).entries:
        key = tuple(value for _, value in entry.match)
        values = [value for _, value in entry.actions[0].arguments]
        insert(i + "promotion.promotion_hold", key, i + "promotion.wait_after_last", values)
    return switch


@dataclass
class OuterQueue:
    """A FIFO that serves each packet at any time up to what its minimum rate allows."""

    leaves_us: list[Fraction] = field(default_factory=list)

    def enter(self, now_us: int, lateness: Fraction) -> Fraction | None:
        """Return the time at which the packet leaves; None: the queue is full."""
        if sum(leaves > now_us for leaves in self.leaves_us) >= OUTER.depth_packets:
            return None
        earliest = max([Fraction(now_us), *self.leaves_us[-1:]])
        self.leaves_us.append(earliest + lateness * FRAME_US)
        return self.leaves_us[-1]


@dataclass(frozen=True)
class Sent:
    wait_us: int
    flow: int
    lateness: Fraction
    """The delay of its service, as a part of the longest time."""
    inside_us: int
    """The time in the switch."""


@dataclass(frozen=True)
class Arrival:
    flow: int
    queue: int
    entered_us: int
    """The time when it entered its queue behind the switch."""
    leaves_us: Fraction
    drain: bool


def carried(compiled: Program, packets: Sequence[Sent]) -> list[Arrival]:
    """Return the arrivals of the packets that were not dropped, in the order in which they were
    sent.
    """
    switch, queues = ranked(compiled), [OuterQueue() for _ in range(8)]
    out: list[Arrival] = []
    now_us = 1_000_000
    for packet in packets:
        now_us += packet.wait_us
        alone = all(arrival.leaves_us <= now_us for arrival in out if arrival.flow == packet.flow)
        if packet.flow == TCP_FLOW:
            frame = ipv4(SRC, DST, 6, tcp(100, 200, bytes(900)))
        else:
            frame = ipv4(
                SRC,
                DST,
                17,
                shim(1, packet.flow, 1, 0, flags=ALONE if alone else 0, payload=bytes(900)),
            )
        (queued,) = switch.ingress(1, frame, now_us * 1000)
        since_us, now_us = now_us, now_us + packet.inside_us
        (gone,) = switch.egress(queued, since_us * 1000, now_us * 1000, 0, 0)
        leaves_us = queues[queued.queue].enter(now_us, packet.lateness)
        if leaves_us is not None:
            drain = packet.flow != TCP_FLOW and bool(gone.packet[SHIM_FLAGS_AT] & DRAIN)
            out.append(Arrival(packet.flow, queued.queue, now_us, leaves_us, drain))
    return out


# What is a little too short after a full queue, and what is just enough.
waits = st.sampled_from(
    [0, 0, 0, 10, 40_000, FRAME_US, 3 * FRAME_US - 20, HOLD_US - 10, HOLD_US, HOLD_US + 10]
)
packets = st.builds(
    Sent,
    waits,
    st.sampled_from([SHIM_FLOW, TCP_FLOW, TCP_FLOW, OTHER]),
    st.sampled_from([Fraction(0), Fraction(1, 3), *[Fraction(1)] * 6]),
    st.sampled_from([0, 1, 20_000]),
)


@given(st.lists(packets, min_size=2, max_size=40))
@settings(max_examples=examples(150), deadline=None)
def test_no_packet_overtakes_an_earlier_one_of_its_flow(
    compiled: Program, sequence: list[Sent]
) -> None:
    arrivals = carried(compiled, sequence)
    for flow in (SHIM_FLOW, TCP_FLOW, OTHER):
        mine = [arrival for arrival in arrivals if arrival.flow == flow]
        for before, after in pairwise(mine):
            assert before.leaves_us <= after.leaves_us
            if before.queue != after.queue:
                event("promoted")
                assert before.leaves_us <= after.entered_us


def one(flow: int, wait_us: int, lateness: int = 1) -> Sent:
    return Sent(wait_us, flow, Fraction(lateness), 0)


@pytest.mark.parametrize("flow", [SHIM_FLOW, TCP_FLOW])
@pytest.mark.parametrize(("wait_us", "queue"), [(HOLD_US - 1, 0), (HOLD_US, 7)])
def test_a_flow_rises_when_its_last_packet_must_have_left(
    compiled: Program, flow: int, wait_us: int, queue: int
) -> None:
    # The second packet is not alone: it is sent again while nobody knows of the first.
    sequence = [one(flow, 0), one(flow, 0), one(flow, wait_us)]
    switch = ranked(compiled)
    frames = {
        TCP_FLOW: ipv4(SRC, DST, 6, tcp(100, 200, bytes(900))),
        SHIM_FLOW: ipv4(SRC, DST, 17, shim(1, flow, 1, 0, payload=bytes(900))),
    }
    now_us, seen = 1_000_000, []
    for packet in sequence:
        now_us += packet.wait_us
        (queued,) = switch.ingress(1, frames[flow], now_us * 1000)
        switch.egress(queued, now_us * 1000, now_us * 1000, 0, 0)
        seen.append(queued.queue)
    assert seen == [0, 0, queue]


def test_a_window_that_was_drained_rises_at_once(compiled: Program) -> None:
    # Three packets wait for the longest time; late, the fourth asks for the window to be drained;
    # the fifth is alone.
    burst = [
        one(SHIM_FLOW, 0),
        one(SHIM_FLOW, 0),
        one(SHIM_FLOW, STEP_US),
        one(SHIM_FLOW, FRAME_US),
    ]
    seen = carried(compiled, [*burst, one(SHIM_FLOW, 3 * FRAME_US)])
    assert [(arrival.queue, arrival.drain) for arrival in seen] == [
        (0, False), (0, False), (0, True), (0, True), (7, False),
    ]  # fmt: skip
    assert 3 * FRAME_US < HOLD_US


def test_a_queue_without_a_minimum_rate_is_never_left_but_alone(compiled: Program) -> None:
    switch = ranked(compiled)
    c = "EchelonIngress.classifier."
    switch.tables[c + "shim_flow"].insert((3, 9), 0, c + "set_flow", [99])
    table = switch.tables["EchelonIngress.flow.flow"]
    handle = table.insert((99,), 0, "fixed", [PORT, 2, 0])
    now_us, seen = 1_000_000, []
    for queue, wait_us, flags in ((7, 0, 0), (2, 1 << 40, 0), (2, 1, ALONE), (7, 1, 0)):
        table.modify(handle, "fixed", [PORT, 2, queue])
        now_us += wait_us
        frame = ipv4(SRC, DST, 17, shim(3, 9, 1, 0, flags=flags, payload=bytes(900)))
        (queued,) = switch.ingress(1, frame, now_us * 1000)
        switch.egress(queued, now_us * 1000, now_us * 1000, 0, 0)
        seen.append(queued.queue)
    assert seen == [7, 7, 2, 2]
