"""The compiled pipeline on softswitch and the hand-written twin do the same to the same packets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.echelon_twin import (
    ATTAINED,
    DEADLINE,
    FIXED,
    WINDOW,
    Connection,
    Period,
    Queued,
    Rank,
    Twin,
)
from reference.frames import MACS, ipv4, shim, tcp, udp

from echelon.model.p4program import program
from softswitch import Program, Switch, load_program
from tests.drawing import examples
from tests.engines import fast_switch

HOSTS = [0x0A000001, 0x0A000002, 0x0A000003]
C = "EchelonIngress.classifier."
D = "EchelonIngress.by_deadline."
L = "EchelonIngress.level."


@pytest.fixture(scope="module")
def compiled() -> Program:
    return load_program(program().binary.read_bytes(), "echelon.json")


def insert(
    switch: Switch,
    table: str,
    key: tuple[object, ...],
    action: str,
    args: list[int],
    priority: int = 0,
) -> None:
    switch.tables[table].insert(key, priority, action, args)


def configure(switch: Switch) -> Twin:
    """Configure the switch, and return a twin with the same flows of every ranking by shim, three
    connections by 5-tuple, and three hosts.
    """
    twin = Twin()
    twin.shim_flow = {
        (1, 0): 1, (1, 1): 2, (2, 0): 3, (2, 1): 4, (1, 2): 9, (2, 2): 10, (3, 0): 11, (3, 1): 12, (3, 2): 13,
        (4, 2): 15, (5, 2): 16, (6, 2): 17
    }  # fmt: skip
    twin.flow = {
        1: Rank(DEADLINE, 2, MACS[2], echelonflow=1, profile=0),
        2: Rank(DEADLINE, 3, MACS[9], echelonflow=1, profile=0, offset_us=1000, due_us=1200),
        3: Rank(DEADLINE, 3, MACS[3], echelonflow=2, profile=1, offset_us=0),
        4: Rank(FIXED, 2, MACS[2], queue=5),
        5: Rank(DEADLINE, 3, MACS[2], echelonflow=3, profile=1),
        6: Rank(DEADLINE, 3, MACS[2], echelonflow=3, profile=1, offset_us=700, due_us=400),
        7: Rank(FIXED, 1, MACS[1], queue=2),
        9: Rank(
            DEADLINE,
            2,
            MACS[2],
            echelonflow=4,
            profile=2,
            due_us=50,
            left_us_of_byte=Fraction(1, 8),
        ),
        10: Rank(
            DEADLINE,
            2,
            MACS[2],
            echelonflow=5,
            profile=3,
            offset_us=300,
            left_us_of_byte=Fraction(4),
        ),
        11: Rank(ATTAINED, 3, MACS[3], group=1, profile=4),
        12: Rank(WINDOW, 2, MACS[2], group=2, profile=5, period_us=1000),
        # Nothing is known of flow 13.
        15: Rank(DEADLINE, 2, MACS[2], echelonflow=5, profile=3, offset_us=900),
        16: Rank(DEADLINE, 3, MACS[2], echelonflow=7, profile=2, left_us_of_byte=Fraction(1, 2)),
        17: Rank(DEADLINE, 3, MACS[2], echelonflow=8, profile=3, offset_us=200),
        14: Rank(
            DEADLINE,
            2,
            MACS[2],
            echelonflow=6,
            profile=2,
            due_us=20,
            left_us_of_byte=Fraction(1, 4),
        ),
    }
    twin.segment = {
        7: [(0, 999, 5, 1000), (1000, 2999, 6, 3000)],
        8: [(0, 499, 7, 500)],
        9: [(0, 4999, 11, 5000)],
        10: [(0, 3999, 14, 4000)],
        11: [(0, 1199, 5, 1200), (1200, 2999, 6, 3000)],
        12: [(0, 1499, 7, 1500)],
    }
    twin.pairs = {10: 1, 15: 1, 16: 2}
    for key, flow in twin.shim_flow.items():
        if flow in twin.pairs:
            insert(switch, C + "shim_flow", key, C + "set_flow_of", [flow, twin.pairs[flow]])
        else:
            insert(switch, C + "shim_flow", key, C + "set_flow", [flow])
    for flow, rank in twin.flow.items():
        action, args = arguments(rank)
        insert(switch, "EchelonIngress.flow.flow", (flow,), action, args)
    for connection, entries in twin.segment.items():
        for low, high, flow, end_bytes in entries:
            insert(
                switch,
                C + "segment",
                (connection, (low, high)),
                C + "set_segment",
                [flow, end_bytes],
                1,
            )
    connections = [
        ("tcp", (HOSTS[0], HOSTS[1], 100, 200), Connection(7, 3, True, 500, 2850)),
        ("udp", (HOSTS[1], HOSTS[0], 100, 200), Connection(8, 3, False, 500, 475)),
        # What came to the shim's port without a shim that the program knows.
        ("udp", (HOSTS[0], 0x0A0B0C0D, 4000, 0xEF10), Connection(9, 4, True, 1 << 31, 5000)),
        ("udp", (HOSTS[0], HOSTS[1], 300, 400), Connection(10, 5, True, 1500, 3800)),
        # Two connections of a job whose iterations follow each other without a silence.
        ("udp", (HOSTS[0], HOSTS[1], 100, 200), Connection(11, 6, True, 400, 2850, 3000)),
        ("tcp", (HOSTS[1], HOSTS[0], 100, 200), Connection(12, 6, False, 400, 1425, 1500)),
    ]
    for kind, key4, c in connections:
        getattr(twin, f"{kind}_connection")[key4] = c
        values = [c.number, c.job, int(c.is_head), c.gap_us, c.head_bytes, c.whole_bytes, 0]
        insert(switch, f"{C}{kind}_connection", key4, C + "set_connection", values)
    falling, rising = list(range(7, -1, -1)), list(range(8))
    # Slacks, bytes, and time left.
    twin.profiles = {
        0: ([0, *((1 << 31) - k * 100 + 1 for k in range(7, 0, -1))], falling),
        1: ([0, *((1 << 31) - k * 333 + 1 for k in range(7, 0, -1))], falling),
        4: ([0, *(k * 1500 for k in range(1, 8))], rising),
        5: ([0, 250, 600], [1, 6, 3]),
    }
    for profile, (lows, queues) in twin.profiles.items():
        for low, high, queue in zip(
            lows, [*(x - 1 for x in lows[1:]), (1 << 32) - 1], queues, strict=True
        ):
            insert(switch, L + "level", (profile, (low, high)), L + "set_queue", [queue, low], 1)
    # A period of about 2 ms, and one of 0.7 ms.
    twin.periods = {
        2: Period(0x8637BD05, 26, -(((1 << 31) - 1) * 0x8637BD05 >> 26) - 777, 400, 90),
        3: Period(0xBB9ECBDB, 25, -(((1 << 31) - 1) * 0xBB9ECBDB >> 25), 0, 2000, 2, 6),
    }
    for profile, each in twin.periods.items():
        args = [each.factor, each.shift, each.zero % (1 << 48), each.alone_us, each.idle_us]
        args += [each.lowest, each.highest]
        insert(switch, D + "period", (profile,), D + "set_period", args)
    f = "EchelonIngress.forwarding."
    twin.ipv4_lpm = {32: {HOSTS[0]: (1, MACS[1]), HOSTS[1]: (2, MACS[2])}, 8: {10: (3, MACS[3])}}
    for bits, routes in twin.ipv4_lpm.items():
        for prefix, (port, mac) in routes.items():
            key = ((prefix << (32 - bits), bits),)
            insert(switch, f + "ipv4_lpm", key, f + "route", [port, int.from_bytes(mac, "big")])
    twin.station[int.from_bytes(MACS[2], "big")] = 2
    insert(switch, f + "station", (int.from_bytes(MACS[2], "big"),), f + "forward", [2])
    twin.class_queue = {0: 1, 1: 7, 2: 0}
    for traffic_class, queue in twin.class_queue.items():
        insert(
            switch,
            "EchelonIngress.traffic_class",
            (traffic_class,),
            "EchelonIngress.set_class_queue",
            [queue],
        )
    for queue in range(8):
        twin.dscp[queue] = queue << 3
        insert(
            switch,
            "EchelonIngress.marking.queue_to_dscp",
            (queue,),
            "EchelonIngress.marking.set_dscp",
            [queue << 3],
        )
    twin.ecn_threshold[2, 3] = 2
    insert(
        switch,
        "EchelonEgress.queue_depth.ecn_threshold",
        (2, 3),
        "EchelonEgress.queue_depth.mark_from",
        [2],
    )
    twin.virtual_queue[3] = (5000, 2000)
    insert(
        switch,
        "EchelonIngress.virtual_queue.virtual_queue",
        (3,),
        "EchelonIngress.virtual_queue.drain",
        [5000, 2000],
    )
    # Hosts 1 and 2 are at ports with queues of the switch, port 3 has queues behind it: all but
    # queue 5.
    twin.promotion_hold = {
        (3, queue): us
        for queue, us in enumerate((0, 1, 100, 700, 1 << 20, None, 90, (1 << 32) - 1))
        if us is not None
    }
    for key, us in twin.promotion_hold.items():
        p = "EchelonIngress.promotion."
        insert(switch, p + "promotion_hold", key, p + "wait_after_last", [us])
    switch.on_digest = lambda now_ns, name, list_id, values: twin_digests(switch).append(values)
    return twin


def arguments(rank: Rank) -> tuple[str, list[int]]:
    path = [rank.port, int.from_bytes(rank.mac, "big")]
    return {
        FIXED: ("fixed", [*path, rank.queue]),
        DEADLINE: (
            "deadline",
            [*path, rank.echelonflow, rank.profile, rank.offset_us, rank.due_us, left_shift(rank)],
        ),
        ATTAINED: ("attained", [*path, rank.group, rank.profile]),
        WINDOW: ("window", [*path, rank.group, rank.profile, rank.period_us]),
    }[rank.kind]


def left_shift(rank: Rank) -> int:
    """Return the argument by which a byte counts the nearest power of two of microseconds; 63:
    nothing.
    """
    return 63 if rank.left_us_of_byte == 0 else 16 - round(log2(rank.left_us_of_byte))


_DIGESTS: dict[int, list[tuple[int, ...]]] = {}


def twin_digests(switch: Switch) -> list[tuple[int, ...]]:
    return _DIGESTS.setdefault(id(switch), [])


@dataclass(frozen=True)
class Step:
    wait_us: int
    frame: bytes
    leave: int
    """The number of waiting packets that leave first."""
    has_room: bool = True
    """Whether there is room for it in its queue."""


def frames() -> st.SearchStrategy[bytes]:
    host = st.sampled_from(HOSTS)
    flags = st.sampled_from([0, 0, 0, 1, 2, 4, 5, 8, 8, 12])
    tos = st.sampled_from([0, 1, 2, 3, 0xB8 | 2])
    body = st.sampled_from([0, 1, 30, 500, 1200]).map(bytes)
    told = st.one_of(
        st.just((0, 0)),
        st.tuples(st.integers(0, 5000), st.integers(0, 3000)),
        st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 16) - 1)),
    )
    shims = st.builds(
        lambda job, flow, epoch, remaining, fl, version, told, payload: shim(
            job, flow, epoch, remaining, flags=fl, version=version, age_us=told[0], memory=told[1], payload=payload
        ),
        st.integers(1, 3), st.integers(0, 2), st.sampled_from([0, 1, 1, 1, 2, 2, 127, 128, 200, 255]),
        st.one_of(st.integers(0, 1 << 14), st.integers(0, (1 << 32) - 1)),
        flags, st.sampled_from([2, 2, 2, 2, 1]), told, body,
    )  # fmt: skip
    tcps = st.builds(lambda p, o: tcp(100, 200, p, options=bytes(4 * o)), body, st.integers(0, 3))
    udps = st.builds(lambda p: udp(100, 200, p), body)
    ttl = st.sampled_from([64, 64, 64, 2, 1, 0])
    good = st.builds(
        lambda l4, s, d, t, o, fragment: ipv4(
            s, d, l4[0], l4[1], ttl=t, tos=o, fragment=fragment
        ),
        st.one_of(shims.map(lambda x: (17, x)), tcps.map(lambda x: (6, x)), udps.map(lambda x: (17, x))),
        host, st.one_of(host, st.sampled_from([0x0A0B0C0D, 0xC0000001])), ttl, tos, st.sampled_from([0, 0, 0, 0, 5]),
    )  # fmt: skip
    odd = st.one_of(
        st.builds(
            lambda s, d, o: ipv4(s, d, 17, bytes(40), options=bytes(4 * o)),
            host,
            host,
            st.integers(1, 10),
        ),
        st.builds(lambda s, d: ipv4(s, d, 17, bytes(40), checksum=1), host, host),
        st.builds(
            lambda s, d, v: ipv4(s, d, 17, bytes(40), version=v),
            host,
            host,
            st.sampled_from([0, 5, 6, 15]),
        ),
        st.just(MACS[2] + MACS[1] + b"\x08\x06" + bytes(46)),
        st.just(MACS[7] + MACS[1] + b"\x08\x06" + bytes(46)),
        st.binary(max_size=60),
        st.builds(lambda f, n: f[: max(len(f) - n, 0)], good, st.integers(1, 1300)),
    )
    return st.one_of(good, good, good, odd)


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 0, 1, 50, 100, 333, 501, 2000, 1 << 33, 1 << 47]),
        frames(),
        st.integers(0, 3),
    ),
    max_size=60,
)


def compare(compiled: Program, sequence: list[Step]) -> Iterator[str]:
    switch = fast_switch(compiled)
    twin = configure(switch)
    now_us = 0
    waiting: dict[tuple[int, int], list[tuple[object, Queued, int]]] = {}
    for number, step in enumerate(sequence):
        now_us = (now_us + step.wait_us) % (1 << 48)
        for pairs in list(waiting.values()):
            for _ in range(min(step.leave, len(pairs))):
                mine, theirs, since_us = pairs.pop(0)
                depth = len(pairs)
                waited_us = (now_us - since_us) % (1 << 32)
                # Time goes on where the 48-bit clock wraps.
                enq_ns = since_us * 1000
                (gone,) = switch.egress(mine, enq_ns, enq_ns + waited_us * 1000, depth, depth)  # type: ignore[arg-type]
                expected_frame = twin.egress(
                    theirs, depth, waited_us, (since_us + waited_us) % (1 << 48), depth
                )
                assert gone.packet == expected_frame, f"step {number}"
        queued = switch.ingress(1, step.frame, now_us * 1000)
        expected = twin.ingress(step.frame, now_us)
        assert len(queued) == (expected is not None), f"step {number}: {step.frame.hex()}"
        if expected is not None:
            assert (queued[0].port, queued[0].queue) == (
                expected.port,
                expected.queue,
            ), f"step {number}"
            packets = waiting.setdefault((expected.port, expected.queue), [])
            if step.has_room:
                packets.append((queued[0], expected, now_us))
            yield "forwarded"
        else:
            yield "dropped"
    digests = [(e, f, ep, k, t) for e, f, ep, k, t in twin.digests]
    assert [tuple(d) for d in twin_digests(switch)] == digests
    _DIGESTS.pop(id(switch), None)
    counter = switch.counters["EchelonIngress.dropped"]
    assert [counter.read(i)[0] for i in range(4)] == twin.dropped


@given(steps)
@settings(max_examples=examples(200), deadline=None)
def test_same_packets_same_fate(compiled: Program, sequence: list[Step]) -> None:
    for _ in compare(compiled, sequence):
        pass


def few_flows() -> st.SearchStrategy[bytes]:
    """Return a strategy for packets that wait for promotion.

    They are of few flows in one iteration, by shim and by bytes, to a port with queues of the
    switch and to one with queues behind it.
    """
    flags = st.sampled_from([0, 0, 0, 8, 12])
    body = st.sampled_from([30, 500]).map(bytes)
    shims = st.builds(
        lambda flow, fl, version, payload: (17, shim(1, flow, 1, 0, flags=fl, version=version, payload=payload)),
        st.integers(0, 1), flags, st.sampled_from([2, 2, 2, 2, 2, 9]), body,
    )  # fmt: skip
    tcps = body.map(lambda payload: (6, tcp(100, 200, payload)))
    ends = st.sampled_from([(HOSTS[0], HOSTS[1]), (HOSTS[0], 0x0A0B0C0D)])
    return st.builds(lambda l4, at: ipv4(*at, *l4), st.one_of(shims, shims, shims, tcps), ends)


promotions = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 1, 50, 89, 90, 91, 99, 100, 101, 699, 700, 1 << 33, (1 << 47) + 5]),
        few_flows(),
        st.integers(0, 3),
    ),
    min_size=10,
    max_size=40,
)


@given(promotions)
@settings(max_examples=examples(200), deadline=None)
def test_same_packets_same_queue(compiled: Program, sequence: list[Step]) -> None:
    for _ in compare(compiled, sequence):
        pass


def competing_flows() -> st.SearchStrategy[bytes]:
    """Return a strategy for packets of jobs that are ranked relative to each other, over a few
    iterations, to a port with queues of the switch and to one with queues behind it. One job is
    known by its bytes.
    """
    told = st.one_of(st.just((0, 0)), st.tuples(st.integers(0, 4000), st.integers(0, 2000)))
    shims = st.builds(
        lambda job, epoch, left, fl, heard: shim(job, 2, epoch, left, flags=fl, age_us=heard[0], memory=heard[1]),
        st.integers(1, 6), st.integers(1, 4), st.integers(0, 4000), st.sampled_from([0, 0, 4, 8]), told,
    )  # fmt: skip
    by_bytes = st.sampled_from([1, 500, 1200]).map(lambda size: udp(300, 400, bytes(size)))
    return st.one_of(shims, shims, by_bytes).map(lambda l4: ipv4(HOSTS[0], HOSTS[1], 17, l4))


competitions = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 1, 20, 89, 90, 91, 300, 1999, 2001]),
        competing_flows(),
        st.integers(0, 3),
        st.sampled_from([True, True, True, False]),
    ),
    min_size=10,
    max_size=40,
)


@given(competitions)
@settings(max_examples=examples(200), deadline=None)
def test_same_packets_same_rank(compiled: Program, sequence: list[Step]) -> None:
    for _ in compare(compiled, sequence):
        pass


@pytest.mark.parametrize(("left_us", "epochs"), [(2000, {1}), (10, {1, 2})])
def test_what_waits_in_a_queue_is_no_silence_of_its_job(
    compiled: Program, left_us: int, epochs: set[int]
) -> None:
    """The last 100 of 3000 bytes come 2100 us behind those before, which the queue has held until
    `left_us`.

    The connections count as one, without their sequence numbers, and 500 us are a silence.
    """
    switch = fast_switch(compiled)
    configure(switch)
    frame = [
        ipv4(HOSTS[0], HOSTS[1], 6, tcp(100, 200, bytes(size))) for size in (1000, 1000, 900, 100)
    ]
    held = [queued for each in frame[:3] for queued in switch.ingress(1, each, 1_000_000_000)]
    for queued in held:
        switch.egress(queued, 1_000_000_000, (1_000_000 + left_us) * 1000, 0, 0)
    assert len(switch.ingress(1, frame[3], 1_002_100_000)) == 1
    assert {epoch for _, _, epoch, *_ in twin_digests(switch)} == epochs
    _DIGESTS.pop(id(switch), None)


def test_several_connections_count_as_one_but_for_what_is_sent_again(compiled: Program) -> None:
    """Two connections bring 1500 of 3000 bytes each.

    Their positions add up, and what is sent again moves neither.
    """
    switch = fast_switch(compiled)
    configure(switch)
    for number, port in ((20, 1), (21, 2)):
        values = [7, 3, 1, 500, 2850, 0, number]
        insert(
            switch, C + "tcp_connection", (HOSTS[0], HOSTS[1], port, 9), C + "set_one_of", values
        )
    now_ns = 1_000_000_000
    # Twice 500 bytes of flow 5, which is 1000 long, then four times of flow 6; the rest was sent
    # before.
    for port, sequence in (
        (1, 0),
        (1, 0),
        (2, 5000),
        (1, 500),
        (2, 5000),
        (2, 5500),
        (1, 500),
        (2, 5500),
        (1, 1000),
    ):
        now_ns += 1000
        frame = ipv4(HOSTS[0], HOSTS[1], 6, tcp(port, 9, bytes(500), seq=sequence))
        assert len(switch.ingress(1, frame, now_ns)) == 1
    assert [(flow, epoch) for _, flow, epoch, *_ in twin_digests(switch)].count((6, 1)) == 1, (
        "its first packet alone"
    )
    now_ns += 1000
    switch.ingress(1, ipv4(HOSTS[0], HOSTS[1], 6, tcp(2, 9, bytes(500), seq=6000)), now_ns)
    last, flow, epoch, *_ = twin_digests(switch)[-1]
    assert (last, flow, epoch) == (2, 6, 1), "the 3000 bytes are there"
    _DIGESTS.pop(id(switch), None)
