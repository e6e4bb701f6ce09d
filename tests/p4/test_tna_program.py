"""What the TNA program means: its sources rewritten for v1model, beside the v1model program and by hand."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.frames import MACS, ipv4, shim, tcp, udp
from reference.tna_on_v1model import compiled as compile_tna

from echelon.p4program import constants, program
from softswitch import Program, Switch, load_program
from tests.drawing import examples

pytestmark = [
    pytest.mark.p4c,
    pytest.mark.skipif(
        shutil.which("p4c-bm2-ss") is None or shutil.which("cpp") is None, reason="p4c-bm2-ss or cpp is not installed"
    ),
]
HOSTS = [0x0A000001, 0x0A000002, 0x0A000003]
MAC = int.from_bytes(MACS[2], "big")
SIZES = constants("tna")
STEP_US = 100_000
"""Everything happens at multiples of this, and every threshold is in the middle between two of them."""
START_US = 1_000_000_000
WRAP_US = 4_397_600_000
"""Not half a second before the ticks wrap: 2^32 ticks are 4398.05 s."""
UNIT = 4
"""A rank is 2^UNIT ticks, so the job's unit is 2^20 ticks: 1.07 s."""


def ticks(us: int) -> int:
    return round(us / 1.024)


@dataclass(frozen=True)
class Programs:
    """Both programs."""

    tna: Program = field(repr=False)
    v1model: Program = field(repr=False)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return Programs(
        load_program(compile_tna(tmp_path_factory.mktemp("tna")), "tna"),
        load_program(program().binary.read_bytes(), "v1model"),
    )


@dataclass
class Seen:
    """What became of a packet."""

    port: int
    queue: int
    frame: bytes


class Both:
    """One of the two programs on a switch, with the tables of both."""

    def __init__(self, compiled: Program, is_tna: bool, hold_us: int = 1) -> None:
        self.switch = Switch(compiled)
        self.is_tna = is_tna
        self.hold_us = hold_us
        self.digests: list[tuple[int, ...]] = []
        self.switch.on_digest = lambda _now, _name, _list, values: self.digests.append(values)
        self.ingress, self.egress = ("I.tna.", "E.tna.") if is_tna else ("EchelonIngress.", "EchelonEgress.")

    def insert(self, table: str, key: tuple[Any, ...], action: str, args: list[int], priority: int = 0) -> None:
        self.switch.tables[table].insert(key, priority, action, args)

    def shim_flow(self, job: int, number: int, flow: int) -> None:
        at = self.ingress + "classifier."
        self.insert(at + "shim_flow", (job, number), at + "set_flow", [flow])

    def connection(self, ends: tuple[int, int, int, int], number: int, head_bytes: int, gap_us: int) -> None:
        at = self.ingress + "classifier."
        gap = ticks(gap_us) if self.is_tna else gap_us
        self.insert(at + "tcp_connection", ends, at + "set_connection", [number, number, 1, gap, head_bytes])

    def segment(self, connection: int, start: int, end: int, flow: int) -> None:
        """A segment from `start` to before `end`, both multiples of 4096."""
        at = self.ingress + ("position." if self.is_tna else "classifier.")
        if not self.is_tna:
            self.insert(at + "segment", (connection, (start, end - 1)), at + "set_segment", [flow, end], 1)
            return
        for low in range(start, end, 4096):
            key = (connection, (low, 0xFFFFF000))
            self.insert(at + "segment", key, at + "set_segment", [flow, end], 1)

    def flow(self, flow: int, action: str, *args: int) -> None:
        name = f"{self.ingress}flow.{action}" if self.is_tna else action
        name = name if name in self.switch.tables[self.ingress + "flow.flow"].actions else action
        self.insert(self.ingress + "flow.flow", (flow,), name, [2, MAC, *args])

    def levels(self, profile: int, lows: list[int], queues: list[int]) -> None:
        """Give each key from one of `lows` to before the next its queue."""
        bits = SIZES["LEVEL_KEY_BITS"] if self.is_tna else 32
        at = self.ingress + "level."
        for low, high, queue in zip(lows, [*(x - 1 for x in lows[1:]), (1 << bits) - 1], queues, strict=True):
            args = [queue] if self.is_tna else [queue, low]
            self.insert(at + "level", (profile, (low, high)), at + "set_queue", args, 1)

    def classes(self) -> None:
        for traffic_class, queue in enumerate((1, 7, 0)):
            self.insert(self.ingress + "traffic_class", (traffic_class,), self.ingress + "set_class_queue", [queue])
        at = self.egress + "marking." if self.is_tna else self.ingress + "marking."
        for queue in range(8):
            self.insert(at + "queue_to_dscp", (queue,), at + "set_dscp", [queue << 3])

    def routes(self) -> None:
        at = self.ingress + "forwarding."
        for host, port in ((HOSTS[0], 1), (HOSTS[1], 2)):
            self.insert(at + "ipv4_lpm", ((host, 32),), at + "route", [port, MAC])
        self.insert(at + "station", (MAC,), at + "forward", [2])
        if self.is_tna:
            for port in (1, 2, 3):
                hold = self.ingress + "pause."
                self.insert(hold + "promotion_hold", (port,), hold + "wait_after_last", [ticks(self.hold_us)])

    def period(self, profile: int, right: int, *, relative: bool, head_start: int = 0, alone: int = 0) -> None:
        at = self.ingress + "profile."
        args = [right, int(relative), head_start % (1 << 32), alone, 0]
        self.insert(at + "period", (profile,), at + "set_period", args)

    def send(self, frame: bytes, now_us: int) -> Seen | None:
        """Send a frame through an empty switch."""
        queued = self.switch.ingress(1, frame, now_us * 1000)
        if not queued:
            return None
        (gone,) = self.switch.egress(queued[0], now_us * 1000, now_us * 1000, 0, 0)
        assert gone.packet is not None
        return Seen(queued[0].port, queued[0].queue, gone.packet)


DEADLINES = 0
BYTES = 1


def configured(compiled: Program, is_tna: bool, hold_us: int = 1) -> Both:
    """Return a switch with flows by shim and by bytes, ranked by thresholds, by bytes and not at all."""
    both = Both(compiled, is_tna, hold_us)
    both.classes()
    both.routes()
    for number, flow in enumerate((1, 2, 3, 4)):
        both.shim_flow(1, number, flow)
    offset = ticks(2 * STEP_US) if is_tna else 2 * STEP_US
    both.flow(1, "deadline", 1, DEADLINES, 0)
    both.flow(2, "deadline", 1, DEADLINES, offset)
    both.flow(3, "fixed", 5)
    both.flow(4, "attained", 1, BYTES)
    both.connection((HOSTS[0], HOSTS[1], 100, 200), 7, 3 * 4096, STEP_US // 2)
    both.segment(7, 0, 4096, 5)
    both.segment(7, 4096, 4 * 4096, 6)
    both.flow(5, "fixed", 3)
    both.flow(6, "fixed", 6)
    edges = [STEP_US * k + STEP_US // 2 for k in range(7, 0, -1)]
    if is_tna:
        both.period(DEADLINES, 8, relative=False)
        both.period(BYTES, 0, relative=False)
        lows = [0, *(SIZES["LEVEL_KEY_BIAS"] - (ticks(edge) >> 8) for edge in edges)]
    else:
        lows = [0, *((1 << 31) - edge for edge in edges)]
    both.levels(DEADLINES, lows, list(range(7, -1, -1)))
    both.levels(BYTES, [0, 5, 11] if is_tna else [0, 5 * 4096, 11 * 4096], [7, 4, 2])
    return both


def frames(epochs: tuple[int, ...] = (1, 2, 3, 4)) -> st.SearchStrategy[bytes]:
    shims = st.builds(
        # A straggler of a ranking that looks at no epoch counts as a first packet on Tofino: there is none.
        lambda flow, epoch, flags, version: (
            17, shim(1, flow, 1 if flow == 2 else epoch, 0, flags=flags, version=version)
        ),
        st.integers(0, 4), st.sampled_from(epochs), st.sampled_from([0, 0, 0, 2, 4]), st.sampled_from([2, 2, 2, 9]),
    )  # fmt: skip
    large = st.just((17, shim(1, 3, 1, 0, payload=bytes(8000))))
    tcps = st.sampled_from([0, 512, 1024, 2048, 4096, 8192]).map(lambda size: (6, tcp(100, 200, bytes(size))))
    others = st.sampled_from([
        (17, udp(1, 2, b"x")), (17, udp(4000, 0xEF10, b"short")), (6, tcp(1, 2, b"x")[:12] + b"\x40" + bytes(8)),
        (6, tcp(1, 2, b"")[:12] + b"\xf0" + bytes(8)), (1, b"ping"), (6, b"short"),
    ])  # fmt: skip
    return st.builds(
        lambda l4, dst, ttl, options, tos, ethertype: ipv4(
            HOSTS[0], dst, *l4, ttl=ttl, options=options, tos=tos, ethertype=ethertype
        ),
        st.one_of(shims, shims, shims, large, tcps, tcps, others),
        st.sampled_from([HOSTS[1], HOSTS[1], HOSTS[1], HOSTS[2]]),
        st.sampled_from([64, 64, 64, 2, 1]),
        st.sampled_from([b"", b"", b"", b"\x01\x01\x01\x00"]),
        st.sampled_from([0, 2]),
        st.sampled_from([b"\x08\x00"] * 5 + [b"\x86\xdd"]),
    )


@dataclass(frozen=True)
class Step:
    """A packet that comes `wait` steps after the one before."""

    wait: int
    frame: bytes = field(repr=False)


def sequences(epochs: tuple[int, ...]) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.builds(Step, st.sampled_from([1, 1, 1, 2, 3, 9]), frames(epochs)), min_size=5, max_size=40)


def compare(programs: Programs, start_us: int, sequence: list[Step]) -> None:
    mine, theirs = configured(programs.tna, True), configured(programs.v1model, False)
    now_us = start_us
    for place, step in enumerate(sequence):
        now_us += step.wait * STEP_US
        found, expected = mine.send(step.frame, now_us), theirs.send(step.frame, now_us)
        assert found == expected, f"packet {place}"
    drops = mine.switch.counters["I.dropped"], theirs.switch.counters["EchelonIngress.dropped"]
    assert [drops[0].read(i)[0] for i in range(4)] == [drops[1].read(i)[0] for i in range(4)]
    # The parts of a TNA event are bits of the v1model's; a time there is in ticks.
    events = [(last << 1 | first, flow, epoch & 0xFF) for last, first, flow, epoch, _, _ in mine.digests]
    assert events == [tuple(values[:3]) for values in theirs.digests]


@given(sequences((1, 2, 3, 4)))
@settings(max_examples=examples(200), deadline=None)
def test_same_packets_same_fate(programs: Programs, sequence: list[Step]) -> None:
    compare(programs, START_US, sequence)


@given(sequences((254, 255, 0, 1)))
@settings(max_examples=examples(100), deadline=None)
def test_same_fate_where_time_and_epochs_wrap(programs: Programs, sequence: list[Step]) -> None:
    compare(programs, WRAP_US, sequence)


RELATIVE = 2
WINDOW = 3
RANK_PER_STEP = ticks(STEP_US) >> UNIT


@pytest.fixture
def relative(programs: Programs) -> Both:
    """Return a switch with three flows of three jobs that are ranked relative to each other at port 2.

    A packet is one queue lower for each step of time by which it is behind the most urgent.
    """
    both = Both(programs.tna, True)
    both.classes()
    both.routes()
    for job in (1, 2, 3):
        both.shim_flow(job, 0, job)
        both.flow(job, "deadline", job, RELATIVE, 0)
    both.period(RELATIVE, UNIT, relative=True)
    lows = [0, *(k * RANK_PER_STEP - RANK_PER_STEP // 2 for k in range(1, 8))]
    both.levels(RELATIVE, lows, list(range(7, -1, -1)))
    return both


def packet(job: int, epoch: int, *, flags: int = 0, age_us: int = 0, memory: int = 0) -> bytes:
    return ipv4(HOSTS[0], HOSTS[1], 17, shim(job, 0, epoch, 0, flags=flags, age_us=age_us, memory=memory))


def told(seen: Seen | None) -> tuple[int, int, int]:
    """Return flags, age in microseconds and memory of the shim of a packet that was sent."""
    assert seen is not None
    head = seen.frame[42:62]
    return head[0] & 15, int.from_bytes(head[12:16], "big"), int.from_bytes(head[16:18], "big")


LAST, ALONE, DRAIN = (constants()[f"SHIM_FLAG_{name}"] for name in ("LAST", "ALONE", "DRAIN"))


@pytest.mark.parametrize("start_us", [START_US, WRAP_US])
def test_flows_rank_behind_the_most_urgent_at_the_port(relative: Both, start_us: int) -> None:
    microseconds = count(0, 2)

    def queue(job: int, step: int, flags: int = 0) -> int:
        seen = relative.send(packet(job, 1, flags=flags), start_us + step * STEP_US + next(microseconds))
        assert seen is not None
        return seen.queue

    # Alone, then as late as job 1, then later by the steps between their starts.
    assert queue(1, 0) == 7
    assert (queue(1, 2), queue(2, 2)) == (7, 5)
    # What is known of job 1 is how late it was when it sent last.
    assert (queue(3, 5), queue(1, 5), queue(2, 5), queue(3, 5)) == (5, 7, 5, 2)
    # Job 1 leaves with its last packet, so job 2 is the most urgent.
    assert queue(1, 6, LAST) == 7
    assert (queue(2, 6), queue(3, 6)) == (7, 4)


def test_who_is_silent_does_not_hold_the_port_for_ever(relative: Both) -> None:
    relative.send(packet(1, 1), START_US)
    relative.send(packet(1, 1), START_US + STEP_US)
    found = [relative.send(packet(2, 1), START_US + STEP_US + 2 * k) for k in range(RANK_PER_STEP)]
    queues = [seen.queue for seen in found if seen is not None]
    assert queues[0] == 6
    assert queues[-1] == 7
    assert queues == sorted(queues)


def test_memory_is_three_quarters_of_it_and_of_the_delay(relative: Both) -> None:
    expected = 0.0
    now_us = START_US
    for epoch, late_steps in enumerate([4, 2, 0, 1, 0], start=1):
        opened = told(relative.send(packet(1, epoch), now_us))
        assert opened[2] == pytest.approx(expected, abs=1.5)
        now_us += late_steps * STEP_US
        relative.send(packet(1, epoch, flags=LAST), now_us)
        now_us += STEP_US
        # In 1/MEMORY_UNIT of the job's unit, which is 2^16 ranks of 2^UNIT ticks.
        delay = late_steps * STEP_US / 1.024 / (1 << 16 + UNIT) * constants()["MEMORY_UNIT"]
        expected = 0.75 * (expected + delay)


def test_a_larger_memory_and_an_earlier_reference_are_taken_over(relative: Both) -> None:
    relative.send(packet(1, 1), START_US)
    flags, age_us, memory = told(relative.send(packet(1, 1), START_US + 3 * STEP_US))
    assert (flags & DRAIN, memory) == (0, 0)
    assert 0.999 * 3 * STEP_US <= age_us <= 3 * STEP_US
    # A sender knows more of both, and another less.
    relative.send(packet(1, 1, age_us=7 * STEP_US, memory=300), START_US + 4 * STEP_US)
    _, age_us, memory = told(relative.send(packet(1, 1, age_us=1, memory=100), START_US + 5 * STEP_US))
    assert 0.999 * 8 * STEP_US <= age_us <= 8 * STEP_US
    assert memory == 300
    # Another iteration begins with what its first packet says.
    _, age_us, _ = told(relative.send(packet(1, 2, age_us=2 * STEP_US), START_US + 6 * STEP_US))
    assert 0.999 * 2 * STEP_US <= age_us <= 2 * STEP_US


def test_a_flow_moves_alone_or_after_the_hold_time(programs: Programs) -> None:
    both = configured(programs.tna, True, hold_us=STEP_US // 2)

    def send(now_us: int, flags: int = 0) -> tuple[int, int]:
        seen = both.send(packet_of(1, flags), START_US + now_us)
        assert seen is not None
        return seen.queue, told(seen)[0] & DRAIN

    assert send(0) == (0, 0)
    # Thresholds are passed at one step and a half, and from there at every step.
    assert send(3 * STEP_US) == (2, 0)
    # A packet each fifth of a step keeps the flow where it is, and asks the sender to drain if it should be higher.
    assert [send(3 * STEP_US + k * STEP_US // 5) for k in range(1, 11)] == [(2, 0)] * 2 + [(2, DRAIN)] * 8
    assert send(5 * STEP_US + STEP_US // 5, ALONE) == (4, 0)
    assert send(5 * STEP_US + 7 * STEP_US // 10) == (5, 0)
    assert send(5 * STEP_US + 9 * STEP_US // 10) == (5, 0)
    assert send(6 * STEP_US + 3 * STEP_US // 10) == (5, 0)
    assert send(6 * STEP_US + 7 * STEP_US // 10) == (5, DRAIN)
    assert send(7 * STEP_US + 3 * STEP_US // 10) == (6, 0)


def packet_of(epoch: int, flags: int) -> bytes:
    return ipv4(HOSTS[0], HOSTS[1], 17, shim(1, 0, epoch, 0, flags=flags))


def test_a_window_is_ranked_by_the_time_left_in_its_period(programs: Programs) -> None:
    both = Both(programs.tna, True)
    both.classes()
    both.routes()
    both.shim_flow(1, 0, 1)
    period_us = 10 * STEP_US
    both.flow(1, "window", 5, WINDOW, ticks(period_us))
    both.period(WINDOW, 0, relative=False)
    # One queue for each step that is left, up to seven.
    both.levels(WINDOW, [0, *(ticks(k * STEP_US - STEP_US // 2) for k in range(1, 8))], list(range(8)))

    microseconds = count(0, 2)

    def queue(steps: int) -> int:
        seen = both.send(packet_of(1, 0), START_US + steps * STEP_US + next(microseconds))
        assert seen is not None
        return seen.queue

    left = [10, 8, 5, 1, 9, 3, 10]
    times = [0, 2, 5, 9, 11, 17, 20]
    assert [queue(at) for at in times] == [min(steps, 7) for steps in left]
    # Three periods are missed: as many packets catch up, and periods stay where they were.
    assert [queue(54) for _ in range(5)] == [0, 0, 6, 6, 6]
    # After more than eight a period begins with the packet.
    assert [queue(200), queue(203), queue(206)] == [7, 7, 4]
