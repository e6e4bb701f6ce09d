"""Updates as bytes: whatever a request holds, the outcome is that of its messages."""

from __future__ import annotations

import gc
import random
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from finsy.proto import p4r
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ctoolchain import compilers
from softswitch.native.choice import Choice
from softswitch.p4runtime.device import Device
from softswitch.p4runtime.p4info import (
    ActionInfo,
    ActionScope,
    MatchInfo,
    MatchKind,
    ParamInfo,
    TableInfo,
)
from softswitch.p4runtime.wire import WireRequest, WireUpdates, learn
from softswitch.rpc.status import Code
from tests.engines import ENGINES
from tests.reference.table_updates import updates

TABLES = [
    "exact_table",
    "lpm_table",
    "ternary_table",
    "meter_table",
    "idle_table",
    "selector_table",
    "profile_table",
]


ELECTION_ID = p4r.Uint128(low=1)
EVERYTHING = [
    p4r.Entity(
        table_entry=p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
    ),
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
]
UNSUITABLE = ("idle_table", "profile_table")
"""The tables whose entries have more than templates know."""


@pytest.fixture(params=ENGINES)
def twins(program: Any, request: pytest.FixtureRequest) -> tuple[Device, Device]:
    """Return two devices with the program, and room in its tables.

    The second one takes bytes, by either engine.
    """
    devices = (
        Device(cpu_port=510),
        Device(cpu_port=510, engines=Choice(request.param, compilers()[-1:])),
    )
    for device in devices:
        device.install(program.config())
        claim = p4r.MasterArbitrationUpdate(device_id=1, election_id=ELECTION_ID)
        device.open_stream(lambda _: None, lambda _: None).receive(
            p4r.StreamMessageRequest(arbitration=claim)
        )
    return devices


def both(
    twins: tuple[Device, Device], batch: list[p4r.Update], raw: bytes | None = None
) -> list[int]:
    """Write a batch to both devices, to one as messages, to the other as bytes; return the codes,
    which must agree.
    """
    request = p4r.WriteRequest(device_id=1, election_id=ELECTION_ID, updates=batch)
    found = []
    for device, wanted in zip(
        twins, (request, WireRequest.parse(raw or request.SerializeToString())), strict=True
    ):
        found.append([(status.code, status.message) for status in device.write(wanted)])
    assert found[0] == found[1]
    return [int(code) for code, _ in found[0]]


def contents(device: Device) -> list[str]:
    return [
        str(response) for response in device.read(p4r.ReadRequest(device_id=1, entities=EVERYTHING))
    ]


def spoilt(update: p4r.Update, random_: random.Random) -> p4r.Update:
    """Return an update that differs in what templates must not overlook."""
    copy = p4r.Update()
    copy.CopyFrom(update)
    entry = copy.entity.table_entry
    match = entry.match[0] if entry.match else p4r.FieldMatch()
    change = random_.choice(
        [
            "type",
            "metadata",
            "value",
            "wide",
            "zero",
            "order",
            "twice",
            "table",
            "prefix",
            "counter",
        ]
    )
    if change == "type":
        copy.type = random_.choice([0, 2, 3])
    elif change == "metadata":
        entry.metadata = random_.choice([b"", b"m", b"othermark", b"\0" * 130])
    elif change == "value" and match.HasField("exact"):
        match.exact.value = b"\0" * random_.randint(0, 3) + match.exact.value
    elif change == "wide":
        for field in entry.match:
            kind = field.WhichOneof("field_match_type")
            if kind == "exact":
                field.exact.value = b"\xff" * 7
            elif kind == "ternary":
                field.ternary.value = b"\xff" * len(field.ternary.value)
    elif change == "zero" and entry.action.HasField("action") and entry.action.action.params:
        entry.action.action.params[0].value = b"\xff" * len(entry.action.action.params[0].value)
    elif change == "order" and len(entry.match) > 1:
        entry.match.reverse()
    elif change == "twice" and entry.match:
        entry.match.add().CopyFrom(entry.match[0])
    elif change == "table":
        entry.table_id ^= 1
    elif change == "prefix" and match.HasField("lpm"):
        match.lpm.prefix_len = random_.choice([0, 1, 48, 49, 127, -1])
    elif change == "counter":
        entry.counter_data.packet_count = 1
    return copy


@pytest.mark.parametrize("mark", [b"", b"somemark"], ids=["unmarked", "marked"])
@pytest.mark.parametrize("table", TABLES)
def test_bytes_and_messages_come_to_the_same(
    twins: tuple[Device, Device], program: Any, table: str, mark: bytes
) -> None:
    random_ = random.Random(table)
    seen: set[int] = set()
    for _ in range(6):
        batch = list(updates(program.p4info, table, 120))
        for update in batch:
            update.entity.table_entry.metadata = mark
        random_.shuffle(batch)
        mixed = [
            spoilt(update, random_) if random_.random() < 0.3 else update for update in batch[:90]
        ]
        seen.update(both(twins, mixed))
        both(
            twins,
            [p4r.Update(type=p4r.Update.MODIFY, entity=update.entity) for update in batch[40:70]],
        )
        deletions = [
            p4r.Update(type=p4r.Update.DELETE, entity=update.entity) for update in batch[:60]
        ]
        both(twins, deletions)
        assert contents(twins[0]) == contents(twins[1])
    assert contents(twins[0]) == contents(twins[1])
    if table != "profile_table":
        assert seen >= {Code.OK, Code.INVALID_ARGUMENT}
    with mock.patch.object(
        WireUpdates, "__getitem__", autospec=True, side_effect=WireUpdates.__getitem__
    ) as taken:
        both(twins, list(updates(program.p4info, table, 120)))
    messages = sum(isinstance(call.args[1], int) for call in taken.call_args_list)
    assert (messages < 120) == (table not in UNSUITABLE), "templates are used where they can be"


def test_a_malformed_update_does_not_stop_the_others(
    twins: tuple[Device, Device], program: Any
) -> None:
    good = [update.SerializeToString() for update in updates(program.p4info, "exact_table", 3)]
    parts = [good[0], b"\x12\x03\x0a\x7f\x01", good[1]]
    header = p4r.WriteRequest(device_id=1, election_id=ELECTION_ID).SerializeToString()
    data = header + b"".join(b"\x22" + bytes([len(part)]) + part for part in parts)
    with pytest.raises(DecodeError):
        p4r.WriteRequest.FromString(data)
    statuses = twins[1].write(WireRequest.parse(data))
    assert [status.code for status in statuses] == [Code.OK, Code.INVALID_ARGUMENT, Code.OK]


def test_any_order_of_fields_is_read(program: Any) -> None:
    """Protocol buffers allow every order; the last of a field that is given twice counts."""
    batch = list(updates(program.p4info, "exact_table", 2))
    parts = [
        p4r.WriteRequest(device_id=7).SerializeToString(),
        p4r.WriteRequest(updates=batch[:1]).SerializeToString(),
        p4r.WriteRequest(
            role="r", atomicity=p4r.WriteRequest.ROLLBACK_ON_ERROR
        ).SerializeToString(),
        p4r.WriteRequest(updates=batch[1:]).SerializeToString(),
        p4r.WriteRequest(device_id=9, election_id=p4r.Uint128(low=3)).SerializeToString(),
    ]
    for order in (
        parts,
        parts[::-1],
        [parts[1], parts[3], parts[0], parts[2]],
        [parts[0], parts[2]],
        [],
    ):
        data = b"".join(order)
        expected, found = p4r.WriteRequest.FromString(data), WireRequest.parse(data)
        assert list(found.updates) == list(expected.updates)
        for name in ("device_id", "role", "atomicity", "election_id"):
            assert getattr(found.header, name) == getattr(expected, name)


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b"\x22", b"\x02", b"\x08\x01", b"\xff", b""])).map(b"".join)
)
def test_arbitrary_bytes(data: bytes) -> None:
    """Bytes that Protocol buffers refuse are refused, at once or update by update; those that they
    accept are read alike.
    """
    try:
        expected = p4r.WriteRequest.FromString(data)
    except DecodeError:
        expected = None
    try:
        request = WireRequest.parse(data)
        found = list(request.updates)
    except DecodeError:
        assert expected is None
        return
    assert expected is not None
    assert found == list(expected.updates)
    assert request.header.device_id == expected.device_id


def test_slices(program: Any) -> None:
    batch = list(updates(program.p4info, "ternary_table", 10))
    whole = WireRequest.parse(p4r.WriteRequest(updates=batch).SerializeToString()).updates
    assert isinstance(whole, WireUpdates)
    assert list(whole[3:7]) == batch[3:7]
    assert whole[-1] == batch[-1]


@pytest.mark.parametrize(
    ("table", "room"),
    [("exact_table", 300), ("lpm_table", 300), ("ternary_table", 300), ("selector_table", 6)],
)
def test_refusals_amid_updates_that_look_alike(
    twins: tuple[Device, Device], program: Any, table: str, room: int
) -> None:
    """The refusals are of entries that exist already, and then of a full table."""
    random_ = random.Random(table)
    for device in twins:
        assert device.switch is not None
        held = next(held for name, held in device.switch.tables.items() if name.endswith(table))
        held.max_size = room
    some = list(updates(program.p4info, table, room + 100))
    few = some[: room * 2 // 3]
    codes = both(twins, [random_.choice(few) for _ in range(100)] + few)
    assert set(codes) == {Code.OK, Code.ALREADY_EXISTS}
    codes = both(twins, some)
    assert set(codes) == {Code.OK, Code.ALREADY_EXISTS, Code.RESOURCE_EXHAUSTED}
    assert contents(twins[0]) == contents(twins[1])


@given(
    st.integers(1, 11),
    st.integers(1, 11),
    st.integers(1, (1 << 31) - 1),
    st.integers(1, 40),
    st.randoms(),
)
def test_numbers_of_every_length(
    first: int, second: int, weight: int, count: int, random_: random.Random
) -> None:
    """A template reads from updates what was written into them."""
    fields = (
        MatchInfo(1, "a", 8 * first, MatchKind.TERNARY),
        MatchInfo(2, "b", 8 * second, MatchKind.EXACT),
    )
    table = TableInfo(5, "t", fields, {7: ActionScope.TABLE_AND_DEFAULT}, 9, False, False, False, 0)
    actions = {
        7: ActionInfo(7, "act", (ParamInfo(1, "x", 8 * second), ParamInfo(2, "y", 8 * first)))
    }

    def number(octets: int) -> int:
        return random_.randrange(1 << 8 * octets - 8, 1 << 8 * octets)

    def data(value: int, octets: int) -> bytes:
        return value.to_bytes(octets, "big")

    raws, plain, sets = [], [], []
    lowest = 1 << (weight.bit_length() - 1) // 7 * 7
    for _ in range(count):
        mask, b, x, y = number(first), number(second), number(second), number(first)
        priority = random_.randrange(lowest, min(lowest << 7, 1 << 31))
        a = mask & number(first)
        call = p4r.Action(action_id=7)
        call.params.add(param_id=1, value=data(x, second))
        call.params.add(param_id=2, value=data(y, first))
        entry = p4r.TableEntry(table_id=5, priority=priority)
        entry.match.add(
            field_id=1, ternary=p4r.FieldMatch.Ternary(value=data(a, first), mask=data(mask, first))
        )
        entry.match.add(field_id=2, exact=p4r.FieldMatch.Exact(value=data(b, second)))
        one_shot = p4r.TableEntry()
        one_shot.CopyFrom(entry)
        entry.action.action.CopyFrom(call)
        chosen = one_shot.action.action_profile_action_set
        chosen.action_profile_actions.add(action=call, weight=priority)
        chosen.action_profile_actions.add(action=call, weight=priority)
        raws.append((entry, one_shot))
        plain.append((((a, mask), b), priority, "act", (x, y)))
        calls = ((3, x, y), (3, x, y))
        sets.append(
            (((a, mask), b), priority, calls, (priority, priority), chosen.SerializeToString())
        )
    for kind, expected in enumerate((plain, sets)):
        batch = [
            p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=raw[kind]))
            for raw in raws
        ]
        alike = [p4r.WriteRequest(updates=[update]).SerializeToString() for update in batch]
        assert len({len(raw) for raw in alike}) == 1
        template = learn(alike[0], batch[0], table, actions, {7: 3})
        assert template is not None
        whole = b"".join(alike)
        found = template.match(whole + b"\x22", 0, len(whole) + 1)
        assert found is not None
        assert found.end() == len(whole)
        assert list(template.decode(whole)) == expected


def test_marks_that_never_recur_take_no_memory(twins: tuple[Device, Device], program: Any) -> None:
    """Entries come and go, each with metadata of its own."""
    _, device = twins
    batch = list(updates(program.p4info, "exact_table", 100))

    def turn(number: int) -> int:
        for kind in (p4r.Update.INSERT, p4r.Update.DELETE):
            for place, update in enumerate(batch):
                update.type = kind
                update.entity.table_entry.metadata = (100 * number + place).to_bytes(8, "big")
            request = p4r.WriteRequest(device_id=1, election_id=ELECTION_ID, updates=batch)
            assert not any(
                int(status.code)
                for status in device.write(WireRequest.parse(request.SerializeToString()))
            )
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        for number in range(10):
            before = turn(number)
        for number in range(10, 30):
            after = turn(number)
    finally:
        tracemalloc.stop()
    assert after - before < 50 * 20 * 100, "more than 50 bytes for each entry that has gone"
