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
"""The number of members that a group may have; those of group n have the numbers from 256 * n on.
"""
_GROUPS = 1 << 24


class BfrtCodec:
    """A codec of the entries of one program."""

    def __init__(self, info: BfRtInfo) -> None:
        self._tables = info.tables
        self._names = {table.id: name for name, table in info.tables.items()}
        self._by_id = {table.id: table for table in info.tables.values()}
        # What entries point to comes after them.
        from_last = reversed(list(info.tables))
        self.stages: Mapping[str, int] = {name: stage for stage, name in enumerate(from_last)}

    def spread(self, entry: TableEntry) -> tuple[TableEntry, ...]:
        """Return the entries that spread packets over an entry's actions.

        They are the actions as members, their group, and what points to the group.

        The group has the number that is the entry's key, so that it is the same in every session.
        """
        table = self._tables.get(entry.table)
        if table is None or table.kind != SPREADING:
            return (entry,)
        match entry.match:
            case ((_, int(number)),) if 0 < number < _GROUPS:
                pass
            case _:
                return (entry,)
        if len(entry.actions) > _GROUP_MEMBERS:
            return (entry,)

        # A table that spreads depends on its profile of actions and on its selector.
        names = {}
        for table_id in table.depends_on:
            kind = self._by_id[table_id].kind
            names[kind] = self._names[table_id]
        entries = []
        members = []
        for member, call in enumerate(entry.actions, number * _GROUP_MEMBERS):
            pointer = (MEMBER, member)
            member_entry = TableEntry(names[ACTION_PROFILE], (pointer,), (call,))
            entries.append(member_entry)
            members.append(pointer)

        pointer = (GROUP, number)
        group = ActionCall("", tuple(members))
        group_entry = TableEntry(names[SELECTOR], (pointer,), (group,))
        entries.append(group_entry)
        chosen = ActionCall("", (pointer,))
        entries.append(entry._replace(actions=(chosen,)))
        return tuple(entries)

    def encode(self, entry: TableEntry) -> EncodedEntry:
        """Return the bytes of `entry`.

        Raise ValueError, naming table and field, for what the program does not know or a value that
        does not fit.
        """
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

    def _write_key(
        self,
        table: BfRtTable,
        entry: TableEntry,
        key: bfrt.TableKey,
    ) -> None:
        values = dict(entry.match)
        if len(values) < len(entry.match):
            raise ValueError("a match field is given twice")
        if PRIORITY in table.key:
            if not 0 < entry.priority <= HIGHEST_PRIORITY:
                raise ValueError(
                    f"priority {entry.priority}: one from 1 to {HIGHEST_PRIORITY} is needed"
                )
            values[PRIORITY] = HIGHEST_PRIORITY - entry.priority
        elif entry.priority:
            raise ValueError(f"priority {entry.priority}: it has none")
        for name in values:
            if name not in table.key:
                raise ValueError(f"no match field {name!r}; there are: {', '.join(table.key)}")
        for name, field in table.key.items():
            write = _MATCHES.get(field.match_type)
            if write is None:
                raise ValueError(f"field {name}: its match type {field.match_type} is unknown")
            part = key.fields.add(field_id=field.id)
            try:
                write(field, values.get(name), part)
            except ValueError as error:
                raise ValueError(f"field {name}: {error}") from None

    def _write_data(
        self,
        table: BfRtTable,
        entry: TableEntry,
        data: bfrt.TableData,
    ) -> None:
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
        values = dict(call.arguments)
        wrong_names = values.keys() ^ action.fields.keys()
        if wrong_names:
            wrong = next(iter(wrong_names))
            fault = "is missing" if wrong in action.fields else "is unknown"
            raise ValueError(f"action {call.name}: parameter {wrong!r} {fault}")
        for name, field in action.fields.items():
            part = data.fields.add(field_id=field.id)
            try:
                part.stream = _number(field, values[name])
            except ValueError as error:
                raise ValueError(f"action {call.name}: parameter {name}: {error}") from None

    def _write_pointers(
        self,
        table: BfRtTable,
        call: ActionCall,
        data: bfrt.TableData,
    ) -> None:
        """Write the active members of a group, or the group to which an entry points."""
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
            states = data.fields.add(field_id=table.data[STATUS].id)
            states.bool_arr_val.val.extend([True] * len(values))

    def of_message(self, message: bfrt.TableEntry) -> EncodedEntry:
        """Return key and action of `message` in the canonical order.

        What the switch adds, such as counters, is left out.
        """
        table = self._tables[self._names[message.table_id]]
        key = bfrt.TableEntry(table_id=message.table_id)
        key.key.fields.extend(sorted(message.key.fields, key=_field_id))
        data = bfrt.TableData(action_id=message.data.action_id)
        # Ids of an action's parameters and of an entry's other fields differ.
        data_names = {field.id: name for name, field in table.data.items()}
        fields = []
        for part in message.data.fields:
            name = data_names.get(part.field_id)
            # An entry points to a group or to a member; the other one is read as 0.
            is_unset = name in (MEMBER, GROUP) and part.stream == bytes(4)
            if name in (None, MEMBER, GROUP, STATUS) and not is_unset:
                fields.append(part)
        data.fields.extend(sorted(fields, key=_field_id))
        wire = bfrt.TableEntry(data=data)
        wire.MergeFrom(key)
        stage = self.stages[self._names[message.table_id]]
        return EncodedEntry(_canonical(key), _canonical(data), _canonical(wire), stage)

    def knows(self, table_id: int) -> bool:
        """Return whether the table is one of the program's."""
        return table_id in self._names

    def queries(self) -> list[bfrt.Entity]:
        """Return the queries for all entries of the tables that can be written."""
        queries = []
        for table in self._tables.values():
            if not table.is_constant:
                entry = bfrt.TableEntry(table_id=table.id)
                queries.append(bfrt.Entity(table_entry=entry))
        return queries

    def describe(self, entry: EncodedEntry) -> EntryText:
        """Describe an entry for people."""
        message = bfrt.TableEntry.FromString(entry.wire)
        name = self._names[message.table_id]
        table = self._tables[name]
        aliases = {field.id: alias for alias, field in table.key.items()}
        match = {}
        priority = 0
        for part in message.key.fields:
            alias = aliases[part.field_id]
            field = table.key[alias]
            if alias == PRIORITY:
                priority = HIGHEST_PRIORITY - _integer(part.exact.value)
                continue
            text = _text(part, field)
            if text is not None:
                match[alias] = text
        return EntryText(name, match, _data_text(table, message.data), priority)


def _data_text(table: BfRtTable, data: bfrt.TableData) -> str:
    """Return the action of an entry with its arguments, or what the entry points to."""
    for action in table.actions.values():
        if action.id == data.action_id:
            names = {field.id: name for name, field in action.fields.items()}
            arguments = []
            for part in data.fields:
                name = names.get(part.field_id, part.field_id)
                arguments.append(f"{name}={_integer(part.stream)}")
            return f"{action.name}({', '.join(arguments)})"

    names = {field.id: name for name, field in table.data.items()}
    pointers = []
    for part in data.fields:
        name = names[part.field_id]
        if name in (MEMBER, GROUP):
            numbers = list(part.int_arr_val.val) or _integer(part.stream)
            pointers.append(f"{name}={numbers}")
    return ", ".join(pointers)


def _canonical(message: bfrt.TableEntry | bfrt.TableData) -> bytes:
    raw: bytes = message.SerializeToString(deterministic=True)
    return raw


def _field_id(part: bfrt.KeyField | bfrt.DataField) -> int:
    return part.field_id


def _integer(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _number(field: Field, value: Match | None) -> bytes:
    if value is None:
        raise ValueError("is missing")
    if not isinstance(value, int):
        raise ValueError(f"{value_text(value)} is not a single value")
    if value < 0 or value >> field.bits:
        raise ValueError(f"{value} does not fit {field.bits} bits")
    return value.to_bytes(field.length_bytes, "big")


def _exact(
    field: Field,
    value: Match | None,
    part: bfrt.KeyField,
) -> None:
    part.exact.value = _number(field, value)


def _lpm(
    field: Field,
    value: Match | None,
    part: bfrt.KeyField,
) -> None:
    prefix = _prefix(field, value)
    part.lpm.value = _number(field, prefix.value)
    part.lpm.prefix_len = prefix.length


def _ternary(
    field: Field,
    value: Match | None,
    part: bfrt.KeyField,
) -> None:
    prefix = _prefix(field, value)
    mask = (1 << field.bits) - (1 << field.bits - prefix.length)
    part.ternary.value = _number(field, prefix.value)
    part.ternary.mask = _number(field, mask)


def _range(
    field: Field,
    value: Match | None,
    part: bfrt.KeyField,
) -> None:
    if value is None:
        value = Interval(0, (1 << field.bits) - 1)
    interval = Interval(value, value) if isinstance(value, int) else value
    if not isinstance(interval, Interval):
        raise ValueError(f"{value_text(value)} is not a range")
    if interval.low > interval.high:
        raise ValueError(f"{value_text(interval)} is empty")
    part.range.low = _number(field, interval.low)
    part.range.high = _number(field, interval.high)


def _prefix(field: Field, value: Match | None) -> Prefix:
    if value is None:
        return Prefix(0, 0)
    prefix = Prefix(value, field.bits) if isinstance(value, int) else value
    if not isinstance(prefix, Prefix):
        raise ValueError(f"{value_text(prefix)} is not a prefix")
    if not 0 <= prefix.length <= field.bits:
        raise ValueError(f"{value_text(prefix)}: the length is not in 0..{field.bits}")
    rest = ((1 << field.bits) - 1) >> prefix.length
    if prefix.value & rest:
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
    match part.WhichOneof("match_type"):
        case "exact":
            return str(_integer(part.exact.value))
        case "lpm":
            if part.lpm.prefix_len:
                return value_text(Prefix(_integer(part.lpm.value), part.lpm.prefix_len))
            return None
        case "ternary":
            mask = _integer(part.ternary.mask)
            if mask:
                return f"{_integer(part.ternary.value)}&{mask:#x}"
            return None
        case "range":
            low = _integer(part.range.low)
            high = _integer(part.range.high)
            if (low, high) == (0, (1 << field.bits) - 1):
                return None
            return value_text(Interval(low, high))
        case _:
            return "?"
