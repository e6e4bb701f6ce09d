"""A traced packet does what an untraced one does, and what is reported accounts for the bytes that
leave.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from softswitch import CloneSession, Entry, KeyElement, Program, Switch, load_program
from softswitch.ir import Header
from softswitch.trace import Event, events

PROGRAMS = Path(__file__).parent.parent / "programs"
ALL = ("arithmetic", "checksums", "matching", "parsing", "replication", "selected", "stateful")
ONE_WAY = ("arithmetic", "checksums", "matching", "parsing", "selected", "stateful")
"""The programs that neither copy packets nor bring them back."""


def loaded(name: str) -> Program:
    return load_program((PROGRAMS / f"{name}.json").read_bytes(), name)


def prepared(switch: Switch) -> Switch:
    """Return the switch with something in every table, group and set."""
    switch.multicast_groups[9] = [(2, 1), (3, 2)]
    switch.clone_sessions[7] = CloneSession([(4, 11)])
    for value_set in switch.value_sets.values():
        value_set.add((4,))
        value_set.add((range(200), None))
    for profile in switch.action_profiles.values():
        action = next(a for a in profile.actions if a != "NoAction")
        params = next(
            t.action_params[action] for t in switch.tables.values() if t.profile is profile
        )
        for member in (1, 2, 3):
            profile.insert_member(member, action, [member] * len(params))
        if profile.has_selector:
            profile.insert_group(1, {1: 1, 3: 2})
    for table in switch.tables.values():
        if not table.key_names or table.is_const:
            continue
        keys: list[list[KeyElement]] = []
        for value in (0, 1, 2, 4):
            some: dict[str, KeyElement] = {
                "lpm": (0, 0),
                "ternary": (value & 1, 1),
                "range": (0, value),
            }
            keys.append([some.get(kind, value) for kind in table.match_types])
        for priority, key in enumerate(keys, 1):
            if table.find(key, priority) is not None or len(table) == table.max_size:
                continue
            if table.profile is not None:
                table.insert_indirect(
                    key, priority, **({"group": 1} if table.profile.has_selector else {"member": 2})
                )
                continue
            action = table.actions[priority % len(table.actions)]
            table.insert(key, priority, action, [priority % 2] * len(table.action_params[action]))
    return switch


def packets(seed: int, count: int = 150) -> Iterator[bytes]:
    draw = random.Random(seed)
    for number in range(count):
        body = bytes(
            draw.choice([0, 1, 2, 4, 17, 255]) for _ in range(draw.choice([0, 3, 12, 24, 40]))
        )
        yield bytes([number % 14]) + body


@pytest.mark.parametrize("name", ALL)
def test_tracing_changes_nothing(name: str) -> None:
    program = loaded(name)
    seen: list[Event] = []
    plain, traced = prepared(Switch(program)), prepared(Switch(program, tracer=seen.append))
    assert (plain.traced, traced.traced) == (False, True)
    for now, data in enumerate(packets(3)):
        assert traced.process(1, data, now * 1_000) == plain.process(1, data, now * 1_000)
    assert traced.stats == plain.stats
    for register in plain.registers:
        assert traced.registers[register].cells == plain.registers[register].cells
    for counter in plain.counters:
        assert traced.counters[counter].packet_counts == plain.counters[counter].packet_counts
    for table in plain.tables:
        assert [e.packets for e in traced.tables[table].entries()] == [
            e.packets for e in plain.tables[table].entries()
        ]
    assert (
        sum(isinstance(event, events.Received) and event.repetition is None for event in seen)
        == 150
    )
    sent = sum(isinstance(event, events.Sent) for event in seen)
    assert sent == traced.stats.packets_out
    assert sum(isinstance(event, events.Dropped) for event in seen) == sum(
        traced.stats.dropped.values()
    )


class Replay:
    """The headers as the events tell of them."""

    def __init__(self, program: Program) -> None:
        self.types = program.ir.headers
        self.unions = [union.headers for union in program.ir.unions.values()]
        self.data = b""
        self.parsed = 0
        self.fields: dict[str, dict[str, int | bytes]] = {}
        self.valid: set[str] = set()
        self.sent = 0

    def __call__(self, event: Event) -> None:
        match event:
            case events.Received():
                self.data, self.valid = event.data, set()
                self.fields = {
                    n: blank(header) for n, header in self.types.items() if not header.metadata
                }
            case events.Extracted():
                self.fields[event.header] = {name: value for name, value, _ in event.fields}
                self.valid.add(event.header)
            case events.Parsed():
                self.parsed = event.parsed_bytes
                assert event.parsed_bytes + event.left_bytes == len(self.data)
            case events.Wrote():
                header, _, field = event.field.rpartition(".")
                for name in self.fields:
                    if event.field.startswith(f"{name}."):
                        header, field = name, event.field[len(name) + 1 :]
                        if field in self.fields[name]:
                            assert self.fields[header][field] == event.old
                            self.fields[header][field] = event.new
                            break
            case events.Validity():
                self.fields[event.header] = blank(self.types[event.header])
                (self.valid.add if event.valid else self.valid.discard)(event.header)
            case events.Copied():
                self.fields[event.target] = dict(self.fields[event.source])
                (self.valid.add if event.valid else self.valid.discard)(event.target)
            case events.Sent():
                self.sent += 1
                whole = (
                    b"".join(self.octets(name) for name in event.headers) + self.data[self.parsed :]
                )
                assert set(event.headers) <= self.valid
                assert event.data == whole[: len(event.data)]
                assert len(event.data) == len(whole) or len(event.data) == 13  # truncated

    def octets(self, name: str) -> bytes:
        """Return a header's bytes, put together bit by bit."""
        bits = ""
        for field in self.types[name].type.fields:
            value = self.fields[name][field.name]
            if isinstance(value, bytes):
                bits += "".join(f"{octet:08b}" for octet in value)
            else:
                bits += f"{value & ((1 << field.width) - 1):0{field.width}b}"
        return bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))


def blank(header: Header) -> dict[str, int | bytes]:
    return {field.name: b"" if field.varbit else 0 for field in header.type.fields}


@pytest.mark.parametrize("name", ONE_WAY)
def test_the_events_account_for_every_byte_that_leaves(name: str) -> None:
    """The bytes extracted, changed by what was written, copied, added and removed, are those that
    are sent.
    """
    program = loaded(name)
    replay = Replay(program)
    switch = prepared(Switch(program, tracer=replay))
    for now, data in enumerate(packets(7)):
        switch.process(1, data, now * 1_000)
    assert replay.sent == switch.stats.packets_out > 20


def matches(kind: str, element: KeyElement, value: int, width: int) -> bool:
    if not isinstance(element, tuple):
        return element is None or element == value
    first, second = element
    if kind == "range":
        return first <= value <= second
    mask = second if kind == "ternary" else ((1 << width) - 1) ^ ((1 << width - second) - 1)
    return value & mask == first & mask


def test_the_entry_that_is_named_is_the_best_of_those_that_match() -> None:
    program = loaded("matching")
    seen: list[Event] = []
    switch = prepared(Switch(program, tracer=seen.append))
    for now, data in enumerate(packets(11, 400)):
        switch.process(1, data, now)
    hits = 0
    for event in seen:
        if not isinstance(event, events.Applied):
            continue
        table = switch.tables[event.table]

        def covers(entry: Entry, event: events.Applied = event) -> bool:
            return all(
                matches(key.kind, element, key.value, key.width)
                for key, element in zip(event.keys, entry.key, strict=True)
            )

        found = [entry for entry in table.entries() if covers(entry)]
        assert event.hit == bool(found)
        if not event.hit:
            assert (event.handle, event.priority) == (None, None)
            continue
        hits += 1
        assert event.handle is not None
        chosen = table.entry(event.handle)
        assert chosen in found
        assert tuple(key.wanted for key in event.keys) == chosen.key
        if table.by_priority:
            assert chosen.priority == event.priority == max(entry.priority for entry in found)
    assert hits > 50


def test_actions_that_run_are_those_of_the_entry() -> None:
    seen: list[Event] = []
    switch = Switch(loaded("matching"), tracer=seen.append)
    switch.tables["I.exact_one"].insert((0x0A000001,), 0, "I.counted", [0x1111])
    switch.process(0, bytes.fromhex("000a0000010000000000"), 0)
    [applied] = [event for event in seen if isinstance(event, events.Applied)]
    [ran] = [event for event in seen if isinstance(event, events.Ran)]
    assert (applied.table, applied.hit, applied.handle) == ("I.exact_one", True, 0)
    assert ran == events.Ran("I.counted", (("value", 0x1111, 16),))


def test_a_member_of_a_group_is_named() -> None:
    seen: list[Event] = []
    switch = prepared(Switch(loaded("stateful"), tracer=seen.append))
    for kind in range(14):
        for value in range(20):
            switch.process(1, bytes([kind, 0, 0, 0, 1]) + value.to_bytes(4, "big") + bytes(16), 0)
    chosen = [event for event in seen if isinstance(event, events.Chosen)]
    assert {event.member for event in chosen if event.group == 1} == {1, 3}
    assert {event.member for event in chosen if event.group is None} == {2}
