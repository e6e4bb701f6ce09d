"""Translation of an intent's entries to and from P4Runtime's bytes, by a P4Info.

Two entries have the same key, and do the same, if and only if their `key` and `value` here are
equal, whoever wrote them: fields, parameters and members have one order, and numbers are as short
as possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

from finsy import (
    P4DigestEntry,
    P4IndirectAction,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)
from finsy.p4schema import P4MatchField
from finsy.proto import p4i, p4r
from google.protobuf import text_format  # type: ignore[import-untyped]

from echelon.switches.lowering.intent import (
    ActionCall,
    DigestSetting,
    Interval,
    Match,
    Prefix,
    TableEntry,
)
from echelon.switches.protobuf_fields import counted, delimited
from echelon.switches.southbound.encoding import (
    ActionForm,
    EncodedEntry,
    TableForm,
    Tail,
    shape_of,
    shortest,
    value_text,
)

OWNER = b"echelon"
"""Metadata of entries that no service in particular owns.

They are those of runs, and of services before entries named theirs.
"""


def owner_of(service: str) -> bytes:
    """Return the metadata of a service's entries; all other entries belong to someone else."""
    return OWNER + b":" + service.encode()


@dataclass(frozen=True, slots=True)
class EntryText:
    """A table entry in words. Fields that match every value are left out."""

    table: str
    match: Mapping[str, str]
    action: str
    """The action as `name(parameter=value, ...)`; empty if unknown.

    An action set has several, joined by `+`.
    """
    priority: int = 0
    owner: str = ""
    """The part of the intent that wants it; empty if none does, or if that was not asked."""

    @property
    def key(self) -> str:
        """Match and priority in one line."""
        fields = [f"{name}={value}" for name, value in self.match.items()]
        packets = ", ".join(fields) or "any packet"
        if self.priority > 1:
            return f"{packets}, priority {self.priority}"
        return packets

    def __str__(self) -> str:
        """Return what tells the entry from others."""
        return f"table {self.table}, {self.key}"


class Codec:
    """A codec of the entries of one P4 program.

    Args:
        schema: the P4Info.
        owner: metadata that marks an entry as ours.
    """

    def __init__(self, schema: P4Schema, owner: bytes = OWNER) -> None:
        self._schema = schema
        self._owner = owner
        self._mark = delimited(11, owner)
        self._tails: dict[int, Tail] = {}
        # P4Info lists tables in the order in which packets meet them.
        tables = list(schema.tables)
        self._stages = {table.id: stage for stage, table in enumerate(reversed(tables))}
        self._highest: dict[tuple[int, int], bytes] = {}
        """The largest value of each match field, by the ids of table and field."""
        self._tables: dict[str, TableForm] = {}
        actions = {action.alias: ActionForm(action) for action in schema.actions}
        for table in tables:
            for field in table.match_fields:
                highest = (1 << field.bitwidth) - 1
                self._highest[table.id, field.id] = shortest(highest)
            table_actions = {ref.alias: actions[ref.alias] for ref in table.actions}
            stage = self._stages[table.id]
            self._tables[table.alias] = TableForm(table, stage, table_actions)

    @property
    def stages(self) -> dict[str, int]:
        """The stage of each table; see `EncodedEntry.stage`."""
        return {table.alias: self._stages[table.id] for table in self._schema.tables}

    def spread(self, entry: TableEntry) -> tuple[TableEntry, ...]:
        """Return the entry alone: P4Runtime takes an entry with several actions in one piece."""
        return (entry,)

    def encode(self, entry: TableEntry) -> EncodedEntry:
        """Return the bytes of `entry`.

        Raise ValueError, naming table and field, for what the P4Info does not know or a value that
        does not fit.
        """
        # Every new entry of every switch passes here, so the usual way makes few calls.
        table = self._tables.get(entry.table)
        calls = entry.actions
        try:
            if table is None:
                raise ValueError(f"not in the P4 program; there are: {', '.join(self._tables)}")
            tail = self._tails.get(entry.priority) or self._tail(entry.priority)
            if table.needs_priority is not (entry.priority > 0):
                need = "one above 0 is needed" if table.needs_priority else "it has none"
                raise ValueError(f"priority {entry.priority}: {need}")
            template = table.latest.get(calls[0].name) if calls else None
            encoded = template and template(entry.match, calls, tail)
            return encoded or self._another_shape(table, entry, tail)
        except ValueError as error:
            raise ValueError(f"table {entry.table}: {error}") from None

    def _another_shape(
        self,
        table: TableForm,
        entry: TableEntry,
        tail: Tail,
    ) -> EncodedEntry:
        """Encode by a template that was not the last one used, or by a new one."""
        shape = shape_of(entry)
        template = table.templates.get(shape)
        is_new = template is None
        if template is None:
            template = table.template(shape)
        encoded = template(entry.match, entry.actions, tail)
        assert encoded is not None
        if is_new:
            self._check_against_finsy(entry, encoded)
            table.templates[shape] = template
        table.latest[entry.actions[0].name] = template
        return encoded

    def _check_against_finsy(self, entry: TableEntry, encoded: EncodedEntry) -> None:
        # finsy leaves parameters in the order in which they are given.
        expected = self.of_message(encode_entry(entry, self._schema))
        same_bytes = (encoded.key, encoded.value) == (expected.key, expected.value)
        if not same_bytes or self.decode(encoded.wire) != (expected, True):
            raise ValueError("the P4Info asks for an unknown encoding")

    def _tail(self, priority: int) -> Tail:
        if priority < 0 or priority >> 31:
            raise ValueError(f"priority {priority} does not fit 31 bits")
        field = counted(4, priority) if priority else b""
        tail = (field, field + self._mark)
        self._tails[priority] = tail
        return tail

    def decode(self, raw: bytes) -> tuple[EncodedEntry, bool] | None:
        """Return an entry as a switch holds it, and whether it is ours.

        Entries that name no service are ours. Return None for what belongs to the program: constant
        entries and default actions.
        """
        message = p4r.TableEntry.FromString(raw)
        if message.is_const or message.is_default_action:
            return None
        entry = self.of_message(message)
        if message.metadata == OWNER != self._owner:
            # Adopt it: a value that no entry has makes the next change write it again, with the
            # owner's name.
            return entry._replace(value=b""), True
        return entry, message.metadata == self._owner

    def of_message(self, message: p4r.TableEntry) -> EncodedEntry:
        """Return key and actions of `message` in the canonical order; `wire` has nothing else."""
        table_id = message.table_id
        fields = sorted(message.match, key=_FIELD_ID)
        match = [self._field(table_id, field) for field in fields]
        head = counted(1, table_id) + b"".join(match)
        priority = counted(4, message.priority) if message.priority else b""
        value = b""
        if message.HasField("action"):
            value = delimited(3, _actions(message.action))
        stage = self._stages.get(table_id, 0)
        return EncodedEntry(head + priority, value, head + value + priority, stage)

    def _field(self, table_id: int, field: p4r.FieldMatch) -> bytes:
        """Return the bytes of a match field; nothing if every value matches."""
        start = counted(1, field.field_id)
        match field.WhichOneof("field_match_type"):
            case "exact":
                value = _stripped(field.exact.value)
                rest = delimited(2, delimited(1, value))
            case "lpm":
                if not field.lpm.prefix_len:
                    return b""
                value = delimited(1, _stripped(field.lpm.value))
                rest = delimited(4, value + counted(2, field.lpm.prefix_len))
            case "range":
                low = _stripped(field.range.low)
                high = _stripped(field.range.high)
                if low == b"\0" and high == self._highest.get((table_id, field.field_id)):
                    return b""
                rest = delimited(6, delimited(1, low) + delimited(2, high))
            case "ternary":
                value = _stripped(field.ternary.value)
                mask = _stripped(field.ternary.mask)
                if mask == b"\0":
                    return b""
                rest = delimited(3, delimited(1, value) + delimited(2, mask))
            case "optional":
                value = _stripped(field.optional.value)
                rest = delimited(7, delimited(1, value))
            case _:
                rest = field.SerializeToString()
                return delimited(2, rest)
        return delimited(2, start + rest)

    def describe(self, entry: EncodedEntry) -> EntryText:
        """Describe an entry for people. Ids that are not in the P4Info are shown as numbers."""
        message = p4r.TableEntry.FromString(entry.wire)
        table = self._schema.tables.get(message.table_id)
        if table is None:
            return EntryText(f"{message.table_id:#x}", {}, "", message.priority)
        match = {}
        for part in sorted(message.match, key=_FIELD_ID):
            field = table.match_fields.get(part.field_id)
            name = str(part.field_id) if field is None else field.alias
            match[name] = _match_text(part, field)
        action = _action_text(message.action, self._schema)
        return EntryText(table.alias, match, action, message.priority)


_FIELD_ID = attrgetter("field_id")


def _stripped(value: bytes) -> bytes:
    """Return the number as short as possible."""
    if value[:1] == b"\0":
        return value.lstrip(b"\0") or b"\0"
    return value


def _action(action: p4r.Action) -> bytes:
    params = sorted((param.param_id, _stripped(param.value)) for param in action.params)
    encoded = []
    for number, value in params:
        param = counted(2, number) + delimited(3, value)
        encoded.append(delimited(4, param))
    return counted(1, action.action_id) + b"".join(encoded)


def _watch(member: p4r.ActionProfileAction) -> bytes:
    kind = member.WhichOneof("watch_kind")
    if kind is None:
        return b""
    return f"{kind} {getattr(member, kind)}".encode()


def _actions(action: p4r.TableAction) -> bytes:
    match action.WhichOneof("type"):
        case "action":
            return delimited(1, _action(action.action))
        case "action_profile_action_set":
            chosen = action.action_profile_action_set
            if chosen.action_selection_mode or chosen.size_semantics:
                return bytes(action.SerializeToString())  # a field that is not written here
            members = []
            for member in chosen.action_profile_actions:
                call = delimited(1, _action(member.action))
                weighted = call + counted(2, member.weight) + _watch(member)
                members.append(delimited(1, weighted))
            return delimited(4, b"".join(sorted(members)))
        case _:
            return bytes(action.SerializeToString())


@lru_cache(maxsize=4)
def schema_of(p4info: str, binary: bytes) -> P4Schema:
    """Return the schema of a program, which all sessions share: parsing a P4Info takes 50 ms."""
    message = p4i.P4Info()
    text_format.Parse(p4info, message)
    return P4Schema(message, binary)


@lru_cache(maxsize=16)
def codec_of(schema: P4Schema, owner: bytes = OWNER) -> Codec:
    """Return the codec of a program and an owner.

    All sessions share it, so that each template is learnt once.
    """
    return Codec(schema, owner)


# -- by finsy --------------------------------------------------------------------------------------


def encode_entry(entry: TableEntry, schema: P4Schema) -> p4r.TableEntry:
    """Return what finsy makes of `entry`, without metadata. Raise ValueError."""
    table = schema.tables[entry.table]
    action: P4TableAction | P4IndirectAction = _finsy_action(entry.actions[0])
    if table.action_profile is not None:
        members = [(1, _finsy_action(call)) for call in entry.actions]
        action = P4IndirectAction(members)
    match = {}
    for name, value in entry.match:
        if not _is_any(value, table.match_fields[name].bitwidth):
            match[name] = value_text(value)
    finsy_entry = P4TableEntry(
        entry.table,
        match=P4TableMatch(match),
        action=action,
        priority=entry.priority,
    )
    return finsy_entry.encode_entry(schema)


def _finsy_action(call: ActionCall) -> P4TableAction:
    return P4TableAction(call.name, **dict(call.arguments))


def _is_any(match: Match, bits: int) -> bool:
    match match:
        case Prefix(_, length):
            return length == 0
        case Interval(low, high):
            return low == 0 and high == (1 << bits) - 1
        case int():
            return False


def encode_digest(setting: DigestSetting, schema: P4Schema) -> p4r.Entity:
    """Return the entity that configures a digest."""
    return P4DigestEntry(
        setting.name,
        max_list_size=setting.max_list_size,
        max_timeout_ns=setting.max_timeout_ns,
        ack_timeout_ns=setting.ack_timeout_ns,
    ).encode(schema)


# -- for people ------------------------------------------------------------------------------------

_MOST_DECIMAL_BITS = 32
"""Width of the widest numbers that are shown in decimal."""


def _number_text(value: bytes, bits: int) -> str:
    number = int.from_bytes(value, "big")
    if bits <= _MOST_DECIMAL_BITS:
        return str(number)
    return f"{number:#x}"


def _address(value: bytes) -> str:
    number = int.from_bytes(value, "big")
    return ".".join(map(str, number.to_bytes(4, "big")))


def _match_text(part: p4r.FieldMatch, field: P4MatchField | None) -> str:
    bits = 0 if field is None else field.bitwidth
    match part.WhichOneof("field_match_type"):
        case "exact":
            return _number_text(part.exact.value, bits)
        case "lpm":
            # A prefix of 32 bits is an IPv4 network, or at least reads most easily as one.
            value = _address(part.lpm.value) if bits == 32 else _number_text(part.lpm.value, bits)
            return f"{value}/{part.lpm.prefix_len}"
        case "range":
            return f"{_number_text(part.range.low, bits)}...{_number_text(part.range.high, bits)}"
        case "ternary":
            mask = int.from_bytes(part.ternary.mask, "big")
            return f"{_number_text(part.ternary.value, bits)}&{mask:#x}"
        case "optional":
            return _number_text(part.optional.value, bits)
        case _:
            return "?"


def _action_text(action: p4r.TableAction, schema: P4Schema) -> str:
    match action.WhichOneof("type"):
        case "action":
            return _call_text(action.action, schema)
        case "action_profile_action_set":
            members = []
            for member in action.action_profile_action_set.action_profile_actions:
                text = _call_text(member.action, schema)
                members.append(text if member.weight == 1 else f"{member.weight}*{text}")
            return " + ".join(members)
        case "action_profile_member_id":
            return f"member {action.action_profile_member_id}"
        case "action_profile_group_id":
            return f"group {action.action_profile_group_id}"
        case _:
            return ""


def _call_text(action: p4r.Action, schema: P4Schema) -> str:
    declared = schema.actions.get(action.action_id)
    if declared is None:
        return f"action {action.action_id:#x}"
    arguments = []
    for argument in sorted(action.params, key=attrgetter("param_id")):
        param = declared.params.get(argument.param_id)
        if param is None:
            text = f"{argument.param_id}={_number_text(argument.value, 0)}"
        else:
            text = f"{param.name}={_number_text(argument.value, param.bitwidth)}"
        arguments.append(text)
    return f"{declared.alias}({', '.join(arguments)})"
