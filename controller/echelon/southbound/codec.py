"""Intent <-> P4Runtime messages, by the names and widths of a P4Info."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy import P4DigestEntry, P4IndirectAction, P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import p4r

from echelon.lowering.intent import ActionCall, DigestSetting, Interval, Match, Prefix, TableEntry


def _match_value(match: Match) -> Any:
    match match:
        case Prefix(value, length):
            return f"{value}/{length}"
        case Interval(low, high):
            return f"{low}...{high}"
        case int():
            return match


def _is_any(match: Match, bits: int) -> bool:
    """Whether every value matches: P4Runtime wants such a field left out."""
    match match:
        case Prefix(_, length):
            return length == 0
        case Interval(low, high):
            return low == 0 and high == (1 << bits) - 1
        case int():
            return False


def _action(call: ActionCall) -> P4TableAction:
    return P4TableAction(call.name, **dict(call.arguments))


def encode_entry(entry: TableEntry, schema: P4Schema) -> p4r.TableEntry:
    """Raises ValueError, naming table and field, for what the P4Info does not know or a value that does not fit."""
    try:
        return _encode_entry(entry, schema)
    except ValueError as error:
        raise ValueError(f"table {entry.table}: {error}") from None


def _encode_entry(entry: TableEntry, schema: P4Schema) -> p4r.TableEntry:
    table = schema.tables[entry.table]
    action: P4TableAction | P4IndirectAction = _action(entry.actions[0])
    if table.action_profile is not None:
        action = P4IndirectAction([(1, _action(call)) for call in entry.actions])
    fields = table.match_fields
    return P4TableEntry(
        entry.table,
        match=P4TableMatch(
            {name: _match_value(value) for name, value in entry.match if not _is_any(value, fields[name].bitwidth)}
        ),
        action=action,
        priority=entry.priority,
    ).encode_entry(schema)


def encode_digest(setting: DigestSetting, schema: P4Schema) -> p4r.Entity:
    return P4DigestEntry(
        setting.name,
        max_list_size=setting.max_list_size,
        max_timeout_ns=setting.max_timeout_ns,
        ack_timeout_ns=setting.ack_timeout_ns,
    ).encode(schema)


EntryKey = tuple[int, int, tuple[bytes, ...]]
"""Table id, priority, match fields: what P4Runtime tells entries of one table apart by."""


def entry_key(entry: p4r.TableEntry) -> EntryKey:
    fields = tuple(sorted(field.SerializeToString(deterministic=True) for field in entry.match))
    return entry.table_id, entry.priority, fields


ActionValue = tuple[int, tuple[tuple[int, bytes], ...]]


def _action_value(action: p4r.Action) -> ActionValue:
    # P4Runtime leaves the order of parameters open.
    return action.action_id, tuple(sorted((param.param_id, param.value) for param in action.params))


def entry_value(entry: p4r.TableEntry) -> tuple[tuple[ActionValue, int], ...]:
    """Actions with their weights; equal for entries that do the same."""
    if entry.action.HasField("action_profile_action_set"):
        actions = entry.action.action_profile_action_set.action_profile_actions
        return tuple(sorted((_action_value(member.action), member.weight) for member in actions))
    return ((_action_value(entry.action.action), 1),)


def by_key(entries: Iterable[p4r.TableEntry]) -> dict[EntryKey, p4r.TableEntry]:
    return {entry_key(entry): entry for entry in entries}
