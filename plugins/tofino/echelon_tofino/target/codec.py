"""An intent's entries as BF Runtime's messages, and back.

P4Runtime and BF Runtime say the same things of an entry, by the same names, in three different
ways. Ids come from `bf-rt.json`. A Tofino looks at the entry with the *lowest* `$MATCH_PRIORITY`
first. And an entry always has all fields of its key, here with the value that matches everything
where an intent has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from echelon.switches.lowering.intent import ActionCall, Interval, Match, Prefix, TableEntry
from echelon.switches.southbound.codec import EntryText
from echelon.switches.southbound.encoding import EncodedEntry, value_text
from echelon_tofino.bfrt_proto import bfruntime_pb2 as bfrt
from echelon_tofino.target.info import (
    ACTION_PROFILE,
    GROUP,
    MEMBER,
    PRIORITY,
    SELECTOR,
    SPREADING,
    STATUS,
    BfRtInfo,
    BfRtTable,
    Field,
)

HIGHEST_PRIORITY = (1 << 24) - 1
"""The largest `$MATCH_PRIORITY`, which is looked at last."""


_GROUP_MEMBERS = 256
"""The number of members that a group may have; those of group n have the numbers from 256 * n
on.
"""
_GROUPS = 1 << 24


class BfrtCodec:
    """A codec of the entries of one program."""

    def __init__(self, info: BfRtInfo) -> None:
        self._tables = info.tables
        self._names = {table.id: name for name, table in info.tables.items()}
        self._by_id = {table.id: table for table in info.tables.values()}
        # What entries point to comes after them.
        self.stages: Mapping[str, int] = {
            name: stage for stage, name in enumerate(reversed(list(info.tables)))
        }

    def spread(self, entry: TableEntry) -> tuple[TableEntry, ...]:
        """Return an entry whose actions packets are spread over as members, their group, and what
        points to the group.

        The group has the number that is the entry's key, so that it is the same in every session.
        """
        table = self._tables.get(entry.table)
        if table is None or table.kind != SPREADING:
            return (entry,)
        kinds = {self._by_id[number].kind: self._names[number] for number in table.depends_on}
        match entry.match:
            case ((_, int(number)),) if (
                0 < number < _GROUPS and len(entry.actions) <= _GROUP_MEMBERS
            ):
                members = {
                    number * _GROUP_MEMBERS + place: call
                    for place, call in enumerate(entry.actions)
                }
            case _:
                return (entry,)
        group = ActionCall("", tuple((MEMBER, member) for member in members))
        return (
            *(
                TableEntry(kinds[ACTION_PROFILE], ((MEMBER, member),), (call,))
                for member, call in members.items()
            ),
            TableEntry(kinds[SELECTOR], ((GROUP, number),), (group,)),
            entry._replace(actions=(ActionCall("", ((GROUP, number),)),)),
        )

    def encode(self, entry: TableEntry) -> EncodedEntry:
        """Return the bytes of `entry`. Raise ValueError, naming table and field, for what the
        program does not know or a value that does not fit."""
        table = self._tables.get(entry.table)
        try:
            if table is None:
                raise ValueError(f"not in the P4 program; there are: {', '.join(self._tables)}")
            message = bfrt.TableEntry(table_id=table.id)
            self._write_key(table, entry, message.key)
            self._write_data(table, entry, message.data)
        except ValueError as error:
            raise ValueError(f"table {entry.table}: {error}") from None
        return self.of_message(message)

    def _write_key(self, table: BfRtTable, entry: TableEntry, key: bfrt.TableKey) -> None:
        given = dict(entry.match)
        if len(given) < len(entry.match):
            raise ValueError("a match field is given twice")
        if PRIORITY in table.key:
            if not 0 < entry.priority <= HIGHEST_PRIORITY:
                raise ValueError(
                    f"priority {entry.priority}: one from 1 to {HIGHEST_PRIORITY} is needed"
                )
            given[PRIORITY] = HIGHEST_PRIORITY - entry.priority
        elif entry.priority:
            raise ValueError(f"priority {entry.priority}: it has none")
        for name in given:
            if name not in table.key:
                raise ValueError(f"no match field {name!r}; there are: {', '.join(table.key)}")
        for name, field in table.key.items():
            try:
                _MATCHES[field.match_type](
                    field, given.get(name), key.fields.add(field_id=field.id)
                )
            except KeyError:
                raise ValueError(
                    f"field {name}: its match type {field.match_type} is unknown"
                ) from None
            except ValueError as error:
                raise ValueError(f"field {name}: {error}") from None

    def _write_data(self, table: BfRtTable, entry: TableEntry, data: bfrt.TableData) -> None:
        if len(entry.actions) != 1:
            raise ValueError(
                f"{len(entry.actions)} actions are given; over BF Runtime an entry has one"
            )
        (call,) = entry.actions
        if not table.actions:
            self._write_pointers(table, call, data)
            return
        action = table.actions.get(call.name)
        if action is None:
            raise ValueError(
                f"no action {call.name!r}; there are: {', '.join(table.actions) or 'none'}"
            )
        data.action_id = action.id
        given = dict(call.arguments)
        if given.keys() != action.fields.keys():
            wrong = next(iter(given.keys() ^ action.fields.keys()))
            if wrong in action.fields:
                what = "is missing"
            else:
                what = "is unknown"
            raise ValueError(f"action {call.name}: parameter {wrong!r} {what}")
        for name, field in action.fields.items():
            try:
                data.fields.add(field_id=field.id, stream=_number(field, given[name]))
            except ValueError as error:
                raise ValueError(f"action {call.name}: parameter {name}: {error}") from None

    def _write_pointers(self, table: BfRtTable, call: ActionCall, data: bfrt.TableData) -> None:
        """Write the members of a group, all of them active, or the group to which an entry
        points.
        """
        numbers: dict[str, list[int]] = {}
        for name, value in call.arguments:
            numbers.setdefault(name, []).append(value)
        if call.name or not numbers or numbers.keys() - {MEMBER, GROUP}:
            raise ValueError(
                f"no action {call.name!r}; its entries point to groups, which have up to"
                f" {_GROUP_MEMBERS}"
            )
        for name, values in numbers.items():
            field = table.data[name]
            part = data.fields.add(field_id=field.id)
            if not field.repeated:
                (value,) = values
                part.stream = _number(field, value)
                continue
            part.int_arr_val.val.extend(values)
            data.fields.add(field_id=table.data[STATUS].id).bool_arr_val.val.extend(
                [True] * len(values)
            )

    def of_message(self, message: bfrt.TableEntry) -> EncodedEntry:
        """Return key and action of `message` in the canonical order, without what the switch adds,
        such as counters.
        """
        table = self._tables[self._names[message.table_id]]
        key = bfrt.TableEntry(table_id=message.table_id)
        key.key.fields.extend(sorted(message.key.fields, key=lambda part: part.field_id))
        data = bfrt.TableData(action_id=message.data.action_id)
        common = {
            field.id for name, field in table.data.items() if name not in (MEMBER, GROUP, STATUS)
        }
        # An entry points to a group or to a member; the other one is read as 0.
        unset = {(table.data[name].id, bytes(4)) for name in (MEMBER, GROUP) if name in table.data}
        # Ids of an action's parameters and of an entry's other fields differ.
        own = [
            part
            for part in message.data.fields
            if part.field_id not in common and (part.field_id, part.stream) not in unset
        ]
        data.fields.extend(sorted(own, key=lambda part: part.field_id))
        wire = bfrt.TableEntry(data=data)
        wire.MergeFrom(key)
        return EncodedEntry(
            key.SerializeToString(deterministic=True),
            data.SerializeToString(deterministic=True),
            wire.SerializeToString(deterministic=True),
            self.stages[self._names[message.table_id]],
        )

    def knows(self, table_id: int) -> bool:
        """Return whether the table is one of the program's."""
        return table_id in self._names

    def queries(self) -> list[bfrt.Entity]:
        """Return the queries for all entries of all tables that have entries which can be
        written.
        """
        return [
            bfrt.Entity(table_entry=bfrt.TableEntry(table_id=table.id))
            for table in self._tables.values()
            if not table.is_constant
        ]

    def describe(self, entry: EncodedEntry) -> EntryText:
        """Describe an entry for people."""
        message = bfrt.TableEntry.FromString(entry.wire)
        name = self._names[message.table_id]
        table = self._tables[name]
        fields = {field.id: (alias, field) for alias, field in table.key.items()}
        match = {}
        priority = 0
        for part in message.key.fields:
            alias, field = fields[part.field_id]
            if alias == PRIORITY:
                priority = HIGHEST_PRIORITY - int.from_bytes(part.exact.value, "big")
            elif (text := _text(part, field)) is not None:
                match[alias] = text
        action = next(
            (one for one in table.actions.values() if one.id == message.data.action_id), None
        )
        if action is None:
            names = {field.id: alias for alias, field in table.data.items()}
            pointers = [
                f"{names[part.field_id]}={list(part.int_arr_val.val) or int.from_bytes(part.stream, 'big')}"
                for part in message.data.fields
                if names[part.field_id] in (MEMBER, GROUP)
            ]
            return EntryText(name, match, ", ".join(pointers), priority)
        names = {field.id: alias for alias, field in action.fields.items()}
        arguments = [
            f"{names.get(part.field_id, part.field_id)}={int.from_bytes(part.stream, 'big')}"
            for part in message.data.fields
        ]
        return EntryText(name, match, f"{action.name}({', '.join(arguments)})", priority)


def _number(field: Field, value: Match | None) -> bytes:
    if not isinstance(value, int):
        raise ValueError(
            "is missing" if value is None else f"{value_text(value)} is not a single value"
        )
    if value < 0 or value >> field.bits:
        raise ValueError(f"{value} does not fit {field.bits} bits")
    return value.to_bytes(field.length_bytes, "big")


def _exact(field: Field, value: Match | None, part: bfrt.KeyField) -> None:
    part.exact.value = _number(field, value)


def _lpm(field: Field, value: Match | None, part: bfrt.KeyField) -> None:
    prefix = _prefix(field, value)
    part.lpm.value, part.lpm.prefix_len = _number(field, prefix.value), prefix.length


def _ternary(field: Field, value: Match | None, part: bfrt.KeyField) -> None:
    prefix = _prefix(field, value)
    mask = (1 << field.bits) - (1 << field.bits - prefix.length)
    part.ternary.value, part.ternary.mask = _number(field, prefix.value), _number(field, mask)


def _range(field: Field, value: Match | None, part: bfrt.KeyField) -> None:
    if value is None:
        value = Interval(0, (1 << field.bits) - 1)
    interval = Interval(value, value) if isinstance(value, int) else value
    if not isinstance(interval, Interval):
        raise ValueError(f"{value_text(value)} is not a range")
    if interval.low > interval.high:
        raise ValueError(f"{value_text(interval)} is empty")
    part.range.low, part.range.high = _number(field, interval.low), _number(field, interval.high)


def _prefix(field: Field, value: Match | None) -> Prefix:
    prefix = (
        Prefix(0, 0)
        if value is None
        else Prefix(value, field.bits)
        if isinstance(value, int)
        else value
    )
    if not isinstance(prefix, Prefix):
        raise ValueError(f"{value_text(prefix)} is not a prefix")
    if not 0 <= prefix.length <= field.bits:
        raise ValueError(f"{value_text(prefix)}: the length is not in 0..{field.bits}")
    if prefix.value & ((1 << field.bits) - 1) >> prefix.length:
        raise ValueError(f"{value_text(prefix)} has bits set behind the prefix")
    return prefix


_MATCHES: Mapping[str, Callable[[Field, Match | None, bfrt.KeyField], None]] = {
    "Exact": _exact,
    "ATCAM": _exact,
    "LPM": _lpm,
    "Ternary": _ternary,
    "Range": _range,
}


def _text(part: bfrt.KeyField, field: Field) -> str | None:
    """Return a match for people; None if it matches every value."""

    def number(raw: bytes) -> int:
        return int.from_bytes(raw, "big")

    match part.WhichOneof("match_type"):
        case "exact":
            return str(number(part.exact.value))
        case "lpm":
            if part.lpm.prefix_len:
                return value_text(Prefix(number(part.lpm.value), part.lpm.prefix_len))
            return None
        case "ternary":
            mask = number(part.ternary.mask)
            if mask:
                return f"{number(part.ternary.value)}&{mask:#x}"
            return None
        case "range":
            low = number(part.range.low)
            high = number(part.range.high)
            if (low, high) == (0, (1 << field.bits) - 1):
                return None
            return value_text(Interval(low, high))
        case _:
            return "?"
