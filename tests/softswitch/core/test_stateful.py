"""Counters, registers, meters, hashes, groups, random numbers and loops, through a program."""

from __future__ import annotations

import zlib
from collections import Counter as Tally
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import (
    BadEntry,
    DuplicateEntry,
    MeterCell,
    MeterConfig,
    NoSuchEntry,
    Switch,
    TableFull,
    hashes,
)
from tests.drawing import examples
from tests.faults import naming

(
    COUNT,
    WRITE,
    READ,
    BYTE_METER,
    PACKET_METER,
    POLICED,
    GROUP,
    ONE,
    RANDOM,
    SUM,
    BRANCHES,
    CRC32,
    CRC16,
) = range(13)
CSUM16, IDENTITY, XOR16, SIGNED = range(13, 17)
GREEN, YELLOW, RED = 0, 1, 2


def ask(
    switch: Switch, what: int, index: int = 0, value: int = 0, result: int = 0, now_ns: int = 0
) -> int:
    """Return the result field of the answer."""
    return answer(switch, what, index, value, result, now_ns)[2]


def answer(
    switch: Switch, what: int, index: int = 0, value: int = 0, result: int = 0, now_ns: int = 0
) -> tuple[int, int, int]:
    """Return (port, value, result)."""
    data = (
        bytes([what])
        + index.to_bytes(4, "big")
        + value.to_bytes(4, "big")
        + result.to_bytes(8, "big")
    )
    ((port, packet),) = switch.process(2, data, now_ns)
    return port, int.from_bytes(packet[5:9], "big"), int.from_bytes(packet[9:17], "big")


@pytest.fixture
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    return new_switch("stateful")


# -- arrays ----------------------------------------------------------------------------------------


def test_counters(switch: Switch) -> None:
    for index in (0, 9, 9):
        ask(switch, COUNT, index)
    counter = switch.counters["I.seen"]
    assert counter.size == 10
    assert [counter.read(i) for i in (0, 5, 9)] == [(1, 17), (0, 0), (2, 34)]
    counter.write(9, 100, 200)
    ask(switch, COUNT, 9)
    assert counter.read(9) == (101, 217)
    with pytest.raises(BadEntry, check=naming("I.seen", 10, "0..9")):
        counter.read(10)


def test_registers(switch: Switch) -> None:
    ask(switch, WRITE, 3, 0xFFFFFFFF)
    memory = switch.registers["I.memory"]
    assert (memory.size, memory.width) == (10, 32)
    assert memory.read(3) == 0xFFFFFFFF
    assert ask(switch, READ, 3) == 0xFFFFFFFF
    memory.write(4, 12)
    assert ask(switch, READ, 4) == 12
    with pytest.raises(BadEntry, check=naming("I.memory", 1 << 32, 32)):
        memory.write(4, 1 << 32)
    with pytest.raises(BadEntry, check=naming("I.memory", -1, "0..9")):
        memory.read(-1)


@pytest.mark.parametrize("index", [10, 11, 0xFFFFFFFF])
def test_an_index_out_of_range_changes_nothing_and_is_counted(switch: Switch, index: int) -> None:
    ask(switch, COUNT, index)
    ask(switch, WRITE, index, 5)
    # The destination of the read keeps its value, that of a variable not yet assigned.
    assert ask(switch, READ, index) == 0
    ask(switch, BYTE_METER, index)
    assert switch.stats.overruns == {
        "counter I.seen": 1,
        "register I.memory": 2,
        "meter I.byte_meter": 1,
    }
    assert all(switch.counters["I.seen"].read(i) == (0, 0) for i in range(10))
    assert all(switch.registers["I.memory"].read(i) == 0 for i in range(10))


@pytest.mark.parametrize(("value", "negative"), [(0x7FFF, 0), (0x8000, 1), (0xFFFF, 1), (1, 0)])
def test_signed_cells(switch: Switch, value: int, negative: int) -> None:
    assert ask(switch, SIGNED, 0, value) == negative
    assert switch.registers["I.signed_memory"].read(1) == value


# -- meters ----------------------------------------------------------------------------------------


class Buckets:
    """RFC 2698, colour-blind mode, in exact arithmetic."""

    def __init__(self, config: MeterConfig) -> None:
        self.config = config
        self.committed = Fraction(config.committed_burst)
        self.peak = Fraction(config.peak_burst)
        self.last_ns: int | None = None

    def colour(self, amount: int, now_ns: int) -> int:
        config = self.config
        seconds = Fraction(0 if self.last_ns is None else now_ns - self.last_ns, 10**9)
        self.last_ns = now_ns
        self.committed = min(
            self.committed + seconds * config.committed_rate, Fraction(config.committed_burst)
        )
        self.peak = min(self.peak + seconds * config.peak_rate, Fraction(config.peak_burst))
        if self.peak < amount:
            return RED
        self.peak -= amount
        if self.committed < amount:
            return YELLOW
        self.committed -= amount
        return GREEN


@settings(max_examples=examples(100))
@given(
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 1500)), max_size=40),
)
def test_a_meter_marks_as_rfc_2698_says(
    rate: int, more: int, committed_burst: int, peak_burst: int, packets: list[tuple[int, int]]
) -> None:
    config = MeterConfig(rate, committed_burst, rate + more, peak_burst)
    cell, reference = MeterCell(), Buckets(config)
    cell.configure(config)
    now_ns = 0
    for gap_ns, size in packets:
        now_ns += gap_ns
        assert cell.execute(size, now_ns) == reference.colour(size, now_ns)


def test_meters_of_a_program(switch: Switch) -> None:
    assert [ask(switch, BYTE_METER, 1) for _ in range(3)] == [GREEN] * 3
    switch.meters["I.byte_meter"].configure(1, MeterConfig(17, 17, 34, 34))
    assert [ask(switch, BYTE_METER, 1, now_ns=t * 10**9) for t in (0, 0, 0, 1, 1)] == [
        GREEN,
        YELLOW,
        RED,
        GREEN,
        YELLOW,
    ]
    switch.meters["I.packet_meter"].configure(2, MeterConfig(1, 1, 2, 2))
    assert [ask(switch, PACKET_METER, 2) for _ in range(3)] == [GREEN, YELLOW, RED]
    assert [ask(switch, PACKET_METER, 1) for _ in range(3)] == [GREEN] * 3
    assert switch.meters["I.packet_meter"].read(2) == MeterConfig(1, 1, 2, 2)
    switch.meters["I.packet_meter"].configure(2, None)
    assert switch.meters["I.packet_meter"].read(2) is None
    assert ask(switch, PACKET_METER, 2) == GREEN
    assert (switch.meters["I.byte_meter"].unit, switch.meters["I.packet_meter"].unit) == (
        "bytes",
        "packets",
    )
    with pytest.raises(BadEntry, check=naming("meter", "peak", 1, "committed", 2)):
        switch.meters["I.packet_meter"].configure(2, MeterConfig(2, 1, 1, 1))


def test_direct_meters_and_time_of_last_use(switch: Switch) -> None:
    table = switch.tables["I.policed"]
    assert table.meter_unit == "packets"
    handle = table.insert((5,), 0, "I.metered", ())
    entry = table.entry(handle)
    entry.meter.configure(MeterConfig(1, 1, 2, 2))
    assert [ask(switch, POLICED, 5, now_ns=7) for _ in range(3)] == [GREEN, YELLOW, RED]
    assert entry.hit_ns == 7
    assert ask(switch, POLICED, 6, now_ns=9) == GREEN
    assert entry.hit_ns == 7


# -- action profiles -------------------------------------------------------------------------------


def test_a_profile_shares_its_members(switch: Switch) -> None:
    table, profile = switch.tables["I.one"], switch.action_profiles["I.shared"]
    profile.insert_member(1, "I.to", (5,))
    table.insert_indirect((7,), 0, member=1)
    handle = table.insert_indirect((8,), 0, member=1)
    assert [answer(switch, ONE, i)[0] for i in (7, 8, 9)] == [5, 5, 1]
    profile.modify_member(1, "I.to", (6,))
    assert [answer(switch, ONE, i)[0] for i in (7, 8, 9)] == [6, 6, 1]
    profile.insert_member(2, "I.to", (2,))
    table.modify_indirect(handle, member=2)
    assert [answer(switch, ONE, i)[0] for i in (7, 8)] == [6, 2]
    with pytest.raises(BadEntry, check=naming("I.shared", "member", 1)):
        profile.delete_member(1)
    table.delete(table.find((7,)) or 0)
    profile.delete_member(1)
    with pytest.raises(NoSuchEntry, check=naming("I.shared", "member", 1)):
        table.insert_indirect((7,), 0, member=1)
    with pytest.raises(BadEntry, check=naming("I.shared", "selector")):
        profile.insert_group(1, {2: 1})
    with pytest.raises(DuplicateEntry):
        profile.insert_member(2, "I.to", (2,))
    for member in range(10, 17):
        profile.insert_member(member, "NoAction", ())
    with pytest.raises(TableFull, check=naming("I.shared", 8)):
        profile.insert_member(17, "NoAction", ())
    with pytest.raises(BadEntry, check=naming("I.one", "member", "group")):
        table.insert((9,), 0, "I.to", (1,))


def test_a_group_spreads_by_the_hash_of_the_selector(switch: Switch) -> None:
    table, profile = switch.tables["I.group"], switch.action_profiles["I.spread"]
    for member in range(4):
        profile.insert_member(member, "I.to", (10 + member,))
    profile.insert_group(1, {0: 1, 1: 2, 3: 1})
    table.insert_indirect((7,), 0, group=1)
    crc16 = hashes.make("crc16")
    choices = [10, 11, 11, 13]
    values = range(0, 1 << 20, 7919)
    wanted = [choices[crc16(v.to_bytes(4, "big")) % 4] for v in values]
    found = [answer(switch, GROUP, 7, v)[0] for v in values]
    assert found == wanted
    assert set(Tally(found)) == {10, 11, 13}
    profile.modify_group(1, {2: 1})
    assert {answer(switch, GROUP, 7, v)[0] for v in range(50)} == {12}
    profile.modify_group(1, {})
    assert answer(switch, GROUP, 7, 1)[0] == 1
    with pytest.raises(BadEntry, check=naming("I.spread", "member", 2, "weight", 0)):
        profile.modify_group(1, {2: 0})
    with pytest.raises(BadEntry, check=naming("I.spread", "group", 1)):
        profile.delete_group(1)
    table.clear()
    profile.delete_group(1)


# -- hashes and others -----------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_hashes_of_fields(new_switch: Callable[[str], Switch], index: int, value: int) -> None:
    switch = new_switch("stateful")
    both = index.to_bytes(4, "big") + value.to_bytes(4, "big")
    assert ask(switch, CRC32, index, value) == zlib.crc32(both)
    # Four more bits, filled up with zeros at the end.
    assert ask(switch, CRC16, index, value) == hashes.make("crc16")(
        index.to_bytes(4, "big") + b"\x50"
    )
    odd = index.to_bytes(4, "big") + bytes([CSUM16])
    assert ask(switch, CSUM16, index, value) == 100 + hashes.csum16(odd) % 1000
    assert ask(switch, IDENTITY, index, value) == int.from_bytes(both, "big") % (2**64 - 1)
    assert (
        ask(switch, XOR16, index, value)
        == index >> 16 ^ index & 0xFFFF ^ value >> 16 ^ value & 0xFFFF
    )


def test_random_numbers_are_in_range_and_the_same_for_the_same_seed(
    new_switch: Callable[[str], Switch],
) -> None:
    first, second = new_switch("stateful"), new_switch("stateful")
    drawn = [ask(first, RANDOM, value=13) for _ in range(100)]
    assert set(drawn) == {10, 11, 12, 13}
    assert [ask(second, RANDOM, value=13) for _ in range(100)] == drawn
    # From 10 to 9 there is nothing to draw from.
    assert ask(first, RANDOM, value=9, result=77) == 77


@pytest.mark.parametrize(("last", "skipped"), [(0, 0), (1, 9), (5, 3), (100, 50), (20, 20)])
def test_a_loop_with_continue(switch: Switch, last: int, skipped: int) -> None:
    assert ask(switch, SUM, last, skipped) == sum(i for i in range(1, last + 1) if i != skipped)


def test_an_endless_loop_ends(switch: Switch) -> None:
    data = bytes([SUM]) + b"\xff" * 4 + bytes(12)
    assert switch.process(2, data, 0) == []
    assert switch.stats.dropped == {"endless loop": 1}


@pytest.mark.parametrize(
    ("index", "value", "result"),
    [(11, 11, 1), (11, 10, 2), (10, 11, 3), (10, 10, 9), (0xFFFFFFFF, 0xFFFFFFFF, 1)],
)
def test_nested_conditions_in_an_action(
    switch: Switch, index: int, value: int, result: int
) -> None:
    assert answer(switch, BRANCHES, index, value, 9) == (1, (value + 1) % 2**32, result)
