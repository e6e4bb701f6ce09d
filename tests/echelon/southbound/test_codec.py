"""Entries as P4Runtime messages, against an encoder written from the specification and the P4Info
text alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from finsy import P4Schema
from finsy.p4schema import P4MatchType, P4Table
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.model.p4program import program
from echelon.switches.lowering.intent import (
    ActionCall,
    Intent,
    Interval,
    Match,
    Part,
    Prefix,
    TableEntry,
)
from echelon.switches.southbound.codec import OWNER, Codec, encode_entry
from tests.drawing import examples

EVERY_KIND = Path(__file__).parents[2] / "softswitch" / "p4runtime" / "everything.p4info.txtpb"


class Specification:
    """P4Runtime's encoding: shortest byte strings, don't-care matches left out, one action set of
    weight 1.
    """

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
                out.action.action_profile_action_set.action_profile_actions.add(
                    action=self.action(call), weight=1
                )
        else:
            (call,) = entry.actions
            out.action.action.CopyFrom(self.action(call))
        return out


EXTREMES = (
    TableEntry(
        "segment",
        (("connection", 9), ("position", Interval(0, (1 << 32) - 1))),
        (ActionCall("set_segment", (("flow", 0), ("end_bytes", (1 << 32) - 1))),),
        1,
    ),
    TableEntry("ipv4_lpm", (("dst", Prefix(0, 0)),), (ActionCall("spread", (("group", 1),)),)),
    TableEntry(
        "ipv4_lpm", (("dst", Prefix(0x0A000100, 24)),), (ActionCall("spread", (("group", 256),)),)
    ),
    TableEntry(
        "promotion_hold",
        (("port", 511), ("queue", 7)),
        (ActionCall("wait_after_last", (("us", (1 << 32) - 1),)),),
    ),
    TableEntry(
        "period",
        (("profile", 0),),
        (
            ActionCall(
                "set_period",
                (
                    ("factor", (1 << 32) - 1),
                    ("factor_shift", 0),
                    ("rank_at_zero", (1 << 48) - 1),
                    ("alone_tardiness_us", 0),
                    ("idle", 1),
                    ("lowest", 0),
                    ("highest", 7),
                ),
            ),
        ),
    ),
    TableEntry(
        "tcp_answer",
        (("src", (1 << 32) - 1), ("dst", 0), ("src_port", 65535), ("dst_port", 0)),
        (ActionCall("set_answered", (("answered", (1 << 14) - 1), ("closes", 1))),),
    ),
    TableEntry(
        "roce_connection",
        (("dst", (1 << 32) - 1), ("queue_pair", (1 << 24) - 1)),
        (
            ActionCall(
                "set_queue_pair_4096",
                (
                    ("connection", (1 << 14) - 1),
                    ("job", 0),
                    ("is_head", 1),
                    ("gap_us", (1 << 32) - 1),
                    ("head_bytes", 0),
                    ("whole_bytes", (1 << 32) - 1),
                    ("queue_pair", (1 << 14) - 1),
                ),
            ),
        ),
    ),
    TableEntry("roce_to_dscp", (("queue", 7),), (ActionCall("set_dscp", (("dscp", 63),)),)),
    TableEntry(
        "shim_flow", (("job", 0), ("flow", 65535)), (ActionCall("set_flow", (("flow", 0),)),)
    ),
    TableEntry(
        "shim_flow",
        (("job", 0), ("flow", 65534)),
        (ActionCall("set_flow_of", (("flow", 0), ("pair", (1 << 14) - 1))),),
    ),
)


def raw(entries: list[p4r.TableEntry]) -> list[bytes]:
    for entry in entries:
        fields = sorted(entry.match, key=lambda field: field.field_id)
        entry.ClearField("match")
        entry.match.extend(fields)
        entry.metadata = OWNER
    return sorted(entry.SerializeToString(deterministic=True) for entry in entries)


async def test_every_kind_of_entry_arrives_as_the_specification_writes_it(
    rig: Any, make_intent: Callable[..., Intent]
) -> None:
    intent = make_intent()
    intent = replace(intent, parts=(*intent.parts, Part("extremes", EXTREMES)))
    tables = {entry.table for entry in intent.entries}
    assert tables == set(Specification().tables) - {"virtual_queue"}, (
        "a kind of entry is not tested"
    )
    assert any(len(entry.actions) == 2 for entry in intent.entries)
    async with rig.session() as session:
        await session.reconcile(intent)
        assert not await session.compare(intent)
    held = rig.held()
    assert len(held) == len(intent.entries)
    assert {entry.metadata for entry in held} == {OWNER}
    specification = Specification()
    assert raw(held) == raw([specification.entry(entry) for entry in intent.entries])


# -- random entries of whole programs --------------------------------------------------------------

SCHEMAS = [P4Schema(program().p4info), P4Schema(EVERY_KIND)]
CODECS = [Codec(schema) for schema in SCHEMAS]


def numbers(bits: int) -> st.SearchStrategy[int]:
    top = (1 << bits) - 1
    return st.one_of(
        st.integers(0, top),
        st.sampled_from(sorted({0, 1, top, top >> 1, min(255, top), min(256, top)})),
    )


def prefixes(bits: int) -> st.SearchStrategy[Match]:
    def cut(value: int, length: int) -> Prefix:
        return Prefix(value >> bits - length << bits - length, length)

    return st.one_of(numbers(bits), st.builds(cut, numbers(bits), st.integers(0, bits)))


def intervals(bits: int) -> st.SearchStrategy[Match]:
    pairs = st.tuples(numbers(bits), numbers(bits))
    return st.one_of(
        pairs.map(lambda pair: Interval(min(pair), max(pair))),
        st.just(Interval(0, (1 << bits) - 1)),
    )


VALUES: dict[Any, Callable[[int], st.SearchStrategy[Any]]] = {
    P4MatchType.EXACT: numbers,
    P4MatchType.LPM: prefixes,
    P4MatchType.RANGE: intervals,
    P4MatchType.TERNARY: numbers,
    P4MatchType.OPTIONAL: numbers,
}


def usable(table: P4Table) -> bool:
    translated = any(
        field.bitwidth == 0 or field.match_type not in VALUES for field in table.match_fields
    )
    return not translated and not table.is_const and bool(table.match_fields)


@st.composite
def entries_of(draw: st.DrawFn, schema: P4Schema) -> TableEntry:
    """Draw an entry of any table, with fields and parameters in any order, and optional ones
    present or not.
    """
    table = draw(st.sampled_from([table for table in schema.tables if usable(table)]))
    fields = draw(st.permutations(list(table.match_fields)))
    match = tuple(
        (field.alias, draw(VALUES[field.match_type](field.bitwidth)))
        for field in fields
        if field.match_type is P4MatchType.EXACT or draw(st.booleans())
    )

    def call() -> ActionCall:
        ref = draw(
            st.sampled_from([ref for ref in table.actions if ref.scope.name != "DEFAULT_ONLY"])
        )
        params = draw(st.permutations(list(schema.actions[ref.id].params)))
        return ActionCall(
            ref.alias, tuple((param.name, draw(numbers(param.bitwidth))) for param in params)
        )

    count = draw(st.integers(1, 4)) if table.action_profile is not None else 1
    needs_priority = any(
        field.match_type in (P4MatchType.TERNARY, P4MatchType.RANGE, P4MatchType.OPTIONAL)
        for field in table.match_fields
    )
    priority = draw(st.integers(1, (1 << 31) - 1)) if needs_priority else 0
    return TableEntry(table.alias, match, tuple(call() for _ in range(count)), priority)


@pytest.mark.parametrize("which", [0, 1], ids=["echelon", "every kind of match"])
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_bytes_by_template_are_what_finsy_makes_of_the_entry(
    which: int, data: st.DataObject
) -> None:
    schema, codec = SCHEMAS[which], CODECS[which]
    entry = data.draw(entries_of(schema))
    encoded = codec.encode(entry)
    expected = encode_entry(entry, schema)
    expected.metadata = OWNER
    # finsy leaves fields and parameters in the order in which they are given.
    expected.match.sort(key=lambda field: field.field_id)
    members = expected.action.action_profile_action_set.action_profile_actions
    for action in [member.action for member in members] or [expected.action.action]:
        action.params.sort(key=lambda param: param.param_id)
    message = p4r.TableEntry.FromString(encoded.wire)
    assert message == expected
    assert message.SerializeToString(deterministic=True) == encoded.wire, (
        "as Protocol buffers writes it"
    )
    # Of the key: the same without action and metadata.
    message.ClearField("action")
    message.ClearField("metadata")
    assert p4r.TableEntry.FromString(encoded.key) == message


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), which=st.integers(0, 1))
def test_what_comes_back_in_any_order_and_padded_is_recognised(
    data: st.DataObject, which: int
) -> None:
    """P4Runtime leaves the order of fields, parameters and members open, and older servers padded
    numbers.
    """
    schema, codec = SCHEMAS[which], CODECS[which]
    entry = data.draw(entries_of(schema))
    encoded = codec.encode(entry)
    message = p4r.TableEntry.FromString(encoded.wire)
    pad = b"\0" * data.draw(st.integers(0, 2))

    def shuffled(parts: Any) -> list[Any]:
        return data.draw(st.permutations(list(parts)))

    match = shuffled(message.match)
    for field in match:
        kind = getattr(field, field.WhichOneof("field_match_type"))
        for name in ("value", "mask", "low", "high"):
            if hasattr(kind, name):
                setattr(kind, name, pad + getattr(kind, name))
    members = shuffled(message.action.action_profile_action_set.action_profile_actions)
    for action in (
        [message.action.action]
        if message.action.HasField("action")
        else [m.action for m in members]
    ):
        params = shuffled(action.params)
        for param in params:
            param.value = pad + param.value
        del action.params[:]
        action.params.extend(params)
    if members:
        del message.action.action_profile_action_set.action_profile_actions[:]
        message.action.action_profile_action_set.action_profile_actions.extend(members)
    del message.match[:]
    message.match.extend(match)
    message.counter_data.byte_count = 77
    found = codec.decode(message.SerializeToString())
    assert found is not None
    decoded, ours = found
    assert ours
    assert (decoded.key, decoded.value, decoded.stage) == (
        encoded.key,
        encoded.value,
        encoded.stage,
    )
    message.metadata = b"another"
    found = codec.decode(message.SerializeToString())
    assert found is not None
    assert found[1] is False


async def test_random_entries_make_the_round_trip_through_a_switch(rig: Any) -> None:
    found: dict[bytes, TableEntry] = {}
    codec = CODECS[0]
    room = {"queue_to_dscp": 8, "traffic_class": 4}

    @settings(
        max_examples=200,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(entries_of(SCHEMAS[0]))
    def collect(entry: TableEntry) -> None:
        found.setdefault(codec.encode(entry).key, entry)

    collect()
    # A range entry without a field for it is one of any value: not the same key, but overlapping,
    # which is allowed.
    wanted = Intent("s1", (Part("random", tuple(found.values())),))
    async with rig.session() as session:
        applied = await session.reconcile(wanted)
        assert applied.refused == ()
        assert applied.inserts == len(found)
        assert not await session.reconcile(wanted)
        assert session.entries == len(found)
    assert len(found) > 100
    assert all(
        sum(e.table == table for e in found.values()) <= size for table, size in room.items()
    )


def test_programs_own_entries_are_nobodys() -> None:
    constant = p4r.TableEntry(table_id=1, is_const=True)
    default = p4r.TableEntry(table_id=1, is_default_action=True)
    assert CODECS[0].decode(constant.SerializeToString()) is None
    assert CODECS[0].decode(default.SerializeToString()) is None


def routes(*ports: int, turned: bool = False) -> TableEntry:
    arguments = [(("port", port), ("dst_mac", 5)) for port in ports]
    calls = tuple(ActionCall("route", pair[::-1] if turned else pair) for pair in arguments)
    return TableEntry("ecmp", (("group", 1),), calls)


def test_the_order_of_parameters_and_members_means_nothing_to_a_comparison() -> None:
    def value(entry: TableEntry) -> bytes:
        return CODECS[0].encode(entry).value

    assert value(routes(1, 2)) == value(routes(2, 1, turned=True))
    assert value(routes(1, 2)) != value(routes(1, 3))
    assert value(routes(1, 2)) != value(routes(1, 2, 2))
    assert value(routes(1)) != value(routes(1, 1))
    # It does to the switch, which counts members as they were given.
    assert CODECS[0].encode(routes(2, 1)).wire != CODECS[0].encode(routes(1, 2)).wire


@pytest.mark.parametrize("change", ["weight", "watch_port", "mode"])
def test_an_action_set_that_was_changed_in_what_is_never_written_here_differs(change: str) -> None:
    encoded = CODECS[0].encode(routes(1, 2))
    message = p4r.TableEntry.FromString(encoded.wire)
    chosen = message.action.action_profile_action_set
    if change == "weight":
        chosen.action_profile_actions[0].weight = 2
    elif change == "watch_port":
        chosen.action_profile_actions[0].watch_port = b"\1"
    else:
        chosen.action_selection_mode = p4r.ActionProfileActionSet.RANDOM
    found = CODECS[0].decode(message.SerializeToString())
    assert found is not None
    assert (found[0].key, found[0].value == encoded.value) == (encoded.key, False)


def by_hand(
    table: str, action: str, *arguments: tuple[str, int], priority: int = 0, **match: Match
) -> TableEntry:
    return TableEntry(table, tuple(match.items()), (ActionCall(action, arguments),), priority)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            by_hand("shim_flow", "NoAction", job=1 << 16, flow=0),
            ["table shim_flow", "field job", "65536", "16 bits"],
        ),
        (by_hand("shim_flow", "NoAction", job=-1, flow=0), ["field job", "-1"]),
        (
            by_hand("shim_flow", "NoAction", jib=1, flow=0),
            ["table shim_flow", "'jib'", "job, flow"],
        ),
        (by_hand("shim_flow", "NoAction", job=1), ["table shim_flow", "match field 'flow'"]),
        (
            by_hand("shim_flow", "NoAction", job=Interval(1, 2), flow=0),
            ["field job", "1...2"],
        ),
        (by_hand("shim_flaw", "NoAction", job=1), ["table shim_flaw", "shim_flow"]),
        (by_hand("shim_flow", "set_dscp", job=1, flow=0), ["action 'set_dscp'", "set_flow"]),
        (by_hand("shim_flow", "NoAction", job=1, flow=0, priority=1), ["priority 1"]),
        (
            by_hand("queue_to_dscp", "set_dscp", ("dscp", 64), queue=1),
            ["queue_to_dscp", "set_dscp", "dscp", "64"],
        ),
        (
            by_hand("queue_to_dscp", "set_dscp", queue=1),
            ["action set_dscp", "parameter 'dscp'"],
        ),
        (
            by_hand("ipv4_lpm", "spread", ("group", 1), dst=Prefix(0x0A000001, 24)),
            ["field dst", "167772161/24"],
        ),
        (
            by_hand("ipv4_lpm", "spread", ("group", 1), dst=Prefix(0, 33)),
            ["field dst", "0/33", "0..32"],
        ),
        (
            by_hand("ipv4_lpm", "spread", ("group", 1), dst=Interval(0, 1)),
            ["field dst", "0...1"],
        ),
        (
            by_hand("level", "NoAction", priority=1, profile=1, key=Interval(2, 1)),
            ["field key", "2...1"],
        ),
        (by_hand("level", "NoAction", profile=1, key=Interval(1, 2)), ["priority 0"]),
        (TableEntry("shim_flow", (("job", 1), ("flow", 2)), ()), ["0 actions"]),
        (
            TableEntry(
                "shim_flow", (("job", 1), ("job", 2), ("flow", 2)), (ActionCall("NoAction"),)
            ),
            ["match field 'job'"],
        ),
        (
            TableEntry(
                "shim_flow",
                (("job", 1), ("flow", 2)),
                (ActionCall("NoAction"), ActionCall("NoAction")),
            ),
            ["2 actions"],
        ),
    ],
)
def test_what_the_program_does_not_know_is_named(entry: TableEntry, words: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(ValueError) as caught:
            CODECS[0].encode(entry)
        text = str(caught.value)
        assert [word for word in words if word not in text] == []
        assert "\n" not in text


def test_entries_for_people() -> None:
    def text(entry: TableEntry) -> tuple[str, str]:
        found = CODECS[0].describe(CODECS[0].encode(entry))
        return str(found), found.action

    assert text(by_hand("ipv4_lpm", "spread", ("group", 7), dst=Prefix(0x0A000100, 24))) == (
        "table ipv4_lpm, dst=10.0.1.0/24",
        "spread(group=7)",
    )
    assert (
        text(by_hand("ipv4_lpm", "spread", ("group", 7), dst=Prefix(0, 0)))[0]
        == "table ipv4_lpm, any packet"
    )
    assert text(routes(2, 1)) == (
        "table ecmp, group=1",
        "route(port=2, dst_mac=0x5) + route(port=1, dst_mac=0x5)",
    )
    entry = by_hand(
        "level",
        "set_queue",
        ("queue", 3),
        ("lowest", 9),
        priority=4,
        profile=1,
        key=Interval(9, 12),
    )
    assert text(entry) == (
        "table level, profile=1, key=9...12, priority 4",
        "set_queue(queue=3, lowest=9)",
    )


def test_tables_are_staged_against_the_order_of_their_lookup() -> None:
    order = [table.alias for table in SCHEMAS[0].tables]
    assert order.index("shim_flow") < order.index("flow") < order.index("level")
    first = CODECS[0].encode(by_hand("shim_flow", "NoAction", job=1, flow=0))
    last = CODECS[0].encode(by_hand("queue_to_dscp", "set_dscp", ("dscp", 1), queue=1))
    assert first.stage == len(order) - 1
    assert last.stage < first.stage
