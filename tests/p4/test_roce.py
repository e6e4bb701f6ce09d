"""RoCE v2 in the v1model program, and in the TNA program as p4c compiled it.

Flows are told by where packets leave, beside positions that follow from what the sender does:
whatever is lost and sent again, a packet's place in its iteration is that which it was first sent
with.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.frames import bth, ipv4, tcp

from echelon.model.p4program import constants, program
from tests.drawing import examples
from tests.p4.planes import HOSTS, STEP_US, DataPlane, TnaCompiled, v1model

FIRST, MIDDLE, LAST, ONLY = 0x06, 0x07, 0x08, 0x0A
PAIR, OTHER_PAIR = 0x123456, 0xFFFFFF
CONNECTION = 9
BEST_EFFORT, CONTROL = 1, 7
NUMBERS = 1 << 24
GAP_US = STEP_US // 2
START_US = 1_000_000_000
MIDDLES = {1, 2, 3, 7, 8, 9, 14, 15, 22}
"""The opcodes of packets that continue a message (table 38 of the specification)."""
_ASSEMBLY = program("tna").binary.read_text()


def make(kind: str) -> DataPlane:
    return v1model() if kind == "v1model" else TnaCompiled(_ASSEMBLY)


def placed(
    plane: DataPlane,
    mtu: int,
    ends: list[int],
    pairs: tuple[int, ...] = (PAIR,),
    queues: tuple[int, ...] = (),
) -> DataPlane:
    """Give a switch flows that end behind these packets of a connection, which leave by ports 2 and
    3 in turn.
    """
    plane.classes()
    plane.routes()
    for place, pair in enumerate(pairs):
        plane.queue_pair(
            (HOSTS[1], pair), CONNECTION, mtu, ends[-1] * mtu * 19 // 20, GAP_US, CONNECTION + place
        )
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        plane.flow(
            number, "fixed", queues[number] if queues else 5, port=2 if queues else 2 + number % 2
        )
        segment(plane, start * mtu, end * mtu, number)
    return plane


def segment(plane: DataPlane, start: int, end: int, flow: int) -> None:
    """Add a segment; for TNA as prefixes of multiples of 256."""
    at = plane.ingress + ("position." if plane.is_tna else "classifier.")
    ranges = (
        [(low, 0xFFFFFF00) for low in range(start, end, 256)]
        if plane.is_tna
        else [(start, end - 1)]
    )
    for position in ranges:
        plane.insert(at + "segment", (CONNECTION, position), at + "set_segment", [flow, end], 1)


def frame(psn: int, opcode: int = MIDDLE, pair: int = PAIR, tos: int = 106) -> bytes:
    return ipv4(HOSTS[0], HOSTS[1], 17, bth(opcode, pair, psn % NUMBERS | 1 << 31), tos=tos)


def left_by(plane: DataPlane, data: bytes, now_us: int) -> tuple[int, int]:
    seen = plane.send(data, now_us)
    assert seen is not None
    return seen.port, seen.queue


def go_back_n(random: Random, packets: int, window: int, lose: float) -> Iterator[int]:
    """Yield the places of packets in the order in which a switch sees them.

    Some are lost before it, and some behind it, and the sender goes back to each. The first is not
    lost before it.
    """
    acked = 0
    while acked < packets:
        expected = acked
        for place in range(acked, min(packets, acked + window)):
            before = place and random.random() < lose
            if not before:
                yield place
            if place == expected and not before and random.random() >= lose:
                expected += 1
        acked = expected


@pytest.mark.parametrize("kind", ["v1model", "tna"])
@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(
    mtu=st.sampled_from([256, 512, 1024, 2048, 4096]),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    psn=st.one_of(st.integers(0, NUMBERS - 1), st.integers(NUMBERS - 60, NUMBERS - 1)),
    window=st.integers(1, 8),
    lose=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 2**16),
)
def test_what_is_lost_and_sent_again_moves_no_position(
    kind: str, mtu: int, sizes: list[int], psn: int, window: int, lose: float, seed: int
) -> None:
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    plane, random, now_us = placed(make(kind), mtu, ends), Random(seed), START_US
    for _ in range(4):
        now_us += STEP_US
        for place in go_back_n(random, ends[-1], window, lose):
            now_us += 1000
            flow = next(number for number, end in enumerate(ends) if place < end)
            seen = left_by(plane, frame(psn + place, MIDDLE if place else FIRST), now_us)
            assert seen == (2 + flow % 2, 5), (place, flow)
        psn += ends[-1]
    # Each flow began once in an iteration, and ended with its last packet.
    begun = [event.flow for event in plane.events if event.first]
    assert begun == list(range(len(ends))) * 4


@pytest.mark.parametrize("kind", ["v1model", "tna"])
def test_answers_and_notifications_are_control_and_move_nothing(kind: str) -> None:
    plane = placed(make(kind), 1024, [2, 4])
    assert left_by(plane, frame(10, FIRST), START_US) == (2, 5)
    for opcode in (constants()["BTH_ACKNOWLEDGE"], constants()["BTH_CONGESTION"], 0xB1):
        assert left_by(plane, frame(1000, opcode), START_US + 1000) == (2, CONTROL)
    assert [left_by(plane, frame(psn), START_US + 2000 + psn)[0] for psn in (11, 12, 13)] == [
        2,
        3,
        3,
    ]


@pytest.mark.parametrize("kind", ["v1model", "tna"])
def test_other_queue_pairs_hosts_and_ports_are_nobodys(kind: str) -> None:
    plane = placed(make(kind), 1024, [2, 4])
    others = [
        frame(10, FIRST, PAIR + 1),
        ipv4(HOSTS[1], HOSTS[0], 17, bth(FIRST, PAIR, 10)),
        ipv4(HOSTS[0], HOSTS[1], 17, bth(ONLY, PAIR, 10, b"")),
        ipv4(HOSTS[0], HOSTS[1], 6, tcp(0xC000, 4791, bytes(40))),
    ]
    assert {left_by(plane, other, START_US)[1] for other in others} == {BEST_EFFORT}


@pytest.mark.parametrize("kind", ["v1model", "tna"])
def test_queue_pairs_of_one_connection_are_counted_together(kind: str) -> None:
    """Each with packet numbers of its own, one of which wraps, and one of which goes back."""
    plane = placed(make(kind), 1024, [4, 8], (PAIR, OTHER_PAIR))
    one, other = NUMBERS - 2, 5_000_000
    for iteration in range(3):
        now_us = START_US + iteration * 10 * STEP_US
        # Of the first pair, of the second one, and so on; the position is the number of packets
        # before.
        places = [(PAIR, one), (OTHER_PAIR, other), (PAIR, one + 1), (OTHER_PAIR, other + 1)]
        places += [
            (PAIR, one + 2),
            (PAIR, one + 2),
            (OTHER_PAIR, other + 2),
            (PAIR, one + 3),
            (OTHER_PAIR, other + 3),
        ]
        seen = [
            left_by(plane, frame(psn, FIRST, pair), now_us + 1000 * at)[0]
            for at, (pair, psn) in enumerate(places)
        ]
        # Known from the second iteration on, since the number before the first packet of a pair is
        # not.
        assert iteration == 0 or seen == [2] * 4 + [3] * 5
        one, other = one + 4, other + 4


@pytest.mark.parametrize("kind", ["v1model", "tna"])
def test_time_outs_open_no_iteration(kind: str) -> None:
    """The last packet is lost behind the switch, and sent again after a gap that would open an
    iteration.
    """
    plane = placed(make(kind), 1024, [20, 40])
    now_us = START_US
    for psn in range(40):
        now_us += 1000
        left_by(plane, frame(psn, FIRST if psn == 0 else MIDDLE), now_us)
    # 39 of 40 packets are more than 95 %. A Tofino knows the last packet, and not the newest one.
    for psn in (39, 38) if kind == "tna" else (39, 38, 39):
        now_us += STEP_US
        assert left_by(plane, frame(psn), now_us)[0] == 3
    assert left_by(plane, frame(40, FIRST), now_us + STEP_US)[0] == 2
    assert [event.flow for event in plane.events if event.first] == [0, 1, 0]


@pytest.mark.parametrize("kind", ["v1model", "tna"])
def test_code_points_stay_unless_they_are_configured(kind: str) -> None:
    plane = placed(make(kind), 1024, [2, 4])
    at = plane.egress + "marking." if plane.is_tna else plane.ingress + "marking."
    for configured, expected in ((False, 26), (True, 34)):
        if configured:
            plane.insert(at + "roce_to_dscp", (5,), at + "set_dscp", [34])
        seen = plane.send(frame(10, FIRST), START_US)
        assert seen is not None
        assert seen.frame[15] == expected << 2 | 2
        # Other traffic is marked with its queue.
        other = plane.send(ipv4(HOSTS[0], HOSTS[1], 6, tcp(1, 2, b"x"), tos=106), START_US)
        assert other is not None
        assert other.frame[15] >> 2 == BEST_EFFORT << 3


@pytest.mark.parametrize("opcode", range(32))
def test_a_queue_pair_rises_with_the_first_packet_of_a_message(opcode: int) -> None:
    """Whatever the service, which the upper three bits of an opcode are."""
    if opcode == constants()["BTH_ACKNOWLEDGE"]:
        return
    plane = placed(v1model(), 1024, [1, 2, 3], queues=(2, 5, 1))
    for psn, service in ((NUMBERS - 1, 0), (2, 0xA0)):
        now_us = START_US + service * STEP_US
        assert left_by(plane, frame(psn, FIRST), now_us) == (2, 2)
        assert left_by(plane, frame(psn + 1, service | opcode), now_us + 1000)[1] == (
            2 if opcode in MIDDLES else 5
        )
        # It falls with any packet.
        assert left_by(plane, frame(psn + 2, service | opcode), now_us + 2000)[1] == 1
