"""Entries as P4Runtime messages, against an encoder written from the specification and the P4Info text alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from finsy import P4Schema
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from echelon.lowering.intent import ActionCall, Intent, Interval, Prefix, TableEntry
from echelon.p4program import program
from echelon.southbound.codec import encode_entry, entry_key, entry_value


class Specification:
    """P4Runtime's encoding: shortest byte strings, don't-care matches left out, one action set of weight 1."""

    def __init__(self) -> None:
        info = text_format.Parse(program().p4info.read_text(), p4i.P4Info())
        self.tables = {table.preamble.alias: table for table in info.tables}
        self.actions = {action.preamble.alias: action for action in info.actions}

    @staticmethod
    def number(value: int) -> bytes:
        return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")

    def action(self, call: ActionCall) -> p4r.Action:
        ids = {param.name: param.id for param in self.actions[call.name].params}
        params = sorted((ids[name], self.number(value)) for name, value in call.arguments)
        return p4r.Action(
            action_id=self.actions[call.name].preamble.id,
            params=[p4r.Action.Param(param_id=i, value=value) for i, value in params],
        )

    def entry(self, entry: TableEntry) -> p4r.TableEntry:
        table = self.tables[entry.table]
        fields = {field.name: field for field in table.match_fields}
        out = p4r.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        for name, match in sorted(entry.match, key=lambda pair: fields[pair[0]].id):
            message: Any = p4r.FieldMatch(field_id=fields[name].id)
            match match:
                case Prefix(value, length):
                    message.lpm.value, message.lpm.prefix_len = self.number(value), length
                    omitted = length == 0
                case Interval(low, high):
                    message.range.low, message.range.high = self.number(low), self.number(high)
                    omitted = (low, high) == (0, (1 << fields[name].bitwidth) - 1)
                case int():
                    message.exact.value = self.number(match)
                    omitted = False
            if not omitted:
                out.match.append(message)
        if table.implementation_id:
            for call in entry.actions:
                out.action.action_profile_action_set.action_profile_actions.add(action=self.action(call), weight=1)
        else:
            (call,) = entry.actions
            out.action.action.CopyFrom(self.action(call))
        return out


EXTREMES = (
    TableEntry(
        "segment",
        (("connection", 9), ("position", Interval(0, (1 << 32) - 1))),
        (ActionCall("segment_fixed", (("flow", 0), ("queue", 7), ("end_bytes", (1 << 32) - 1))),),
        1,
    ),
    TableEntry("ipv4_lpm", (("dst", Prefix(0, 0)),), (ActionCall("spread", (("group", 1),)),)),
    TableEntry("ipv4_lpm", (("dst", Prefix(0x0A000100, 24)),), (ActionCall("spread", (("group", 256),)),)),
    TableEntry("shim_flow", (("job", 0), ("flow", 65535)), (ActionCall("rank_fixed", (("flow", 0), ("queue", 0))),)),
)


def raw(entries: list[p4r.TableEntry]) -> list[bytes]:
    for entry in entries:
        fields = sorted(entry.match, key=lambda field: field.field_id)
        entry.ClearField("match")
        entry.match.extend(fields)
    return sorted(entry.SerializeToString(deterministic=True) for entry in entries)


def test_every_kind_of_entry_arrives_as_the_specification_writes_it(
    rig: Any, make_intent: Callable[..., Intent]
) -> None:
    intent = make_intent()
    intent = replace(intent, entries=(*intent.entries, *EXTREMES))
    tables = {entry.table for entry in intent.entries}
    assert tables == set(Specification().tables) - {"virtual_queue"}, "a kind of entry is not tested"
    assert any(len(entry.actions) == 2 for entry in intent.entries)

    async def write_and_read() -> tuple[set[object], set[object]]:
        async with rig.session() as session:
            await session.reconcile(intent)
            read = await session.read_entries()
            schema = session._schema
            wanted = [encode_entry(entry, schema) for entry in intent.entries]
            return (
                {(key, entry_value(entry)) for key, entry in read.items()},
                {(entry_key(entry), entry_value(entry)) for entry in wanted},
            )

    read, wanted = asyncio.run(write_and_read())
    assert read == wanted
    assert len(read) == len(intent.entries)
    specification = Specification()
    assert raw(rig.held()) == raw([specification.entry(entry) for entry in intent.entries])


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    return P4Schema(program().p4info, program().binary)


def test_the_order_of_parameters_and_members_means_nothing(schema: P4Schema) -> None:
    def routes(*ports: int, turned: bool = False) -> p4r.TableEntry:
        arguments = [(("port", port), ("dst_mac", 5)) for port in ports]
        calls = tuple(ActionCall("route", pair[::-1] if turned else pair) for pair in arguments)
        return encode_entry(TableEntry("ecmp", (("group", 1),), calls), schema)

    assert entry_value(routes(1, 2)) == entry_value(routes(2, 1, turned=True))
    assert entry_value(routes(1, 2)) != entry_value(routes(1, 3))
    assert entry_value(routes(1, 2)) != entry_value(routes(1, 2, 2))
    assert entry_value(routes(1)) != entry_value(routes(1, 1))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (TableEntry("shim_flow", (("job", 1 << 16), ("flow", 0)), (ActionCall("NoAction"),)), ["shim_flow", "job"]),
        (TableEntry("shim_flow", (("jib", 1), ("flow", 0)), (ActionCall("NoAction"),)), ["shim_flow", "jib"]),
        (TableEntry("shim_flaw", (("job", 1),), (ActionCall("NoAction"),)), ["shim_flaw"]),
        (
            TableEntry("queue_to_dscp", (("queue", 1),), (ActionCall("set_dscp", (("dscp", 64),)),)),
            ["queue_to_dscp", "set_dscp", "64"],
        ),
    ],
)
def test_what_the_program_does_not_know_is_named(schema: P4Schema, entry: TableEntry, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        encode_entry(entry, schema)
    assert [word for word in words if word not in str(caught.value)] == []
