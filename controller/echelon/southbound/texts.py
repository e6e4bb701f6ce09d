"""Table entries for people, in the words of P4Info, for messages and for the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from finsy import P4Schema
from finsy.p4schema import P4MatchField
from finsy.proto import p4r

_LONGEST_DECIMAL_BITS = 32


@dataclass(frozen=True, slots=True)
class EntryText:
    """A table entry in words. Fields that match every value are left out."""

    table: str
    match: Mapping[str, str]
    action: str
    """The action as `name(parameter=value, ...)`; several for an action set, joined by `+`; empty if unknown."""
    priority: int = 0
    owner: str = ""
    """The part of the intent that wants it; empty if none does, or if that was not asked."""

    @property
    def key(self) -> str:
        """Match and priority in one line."""
        fields = ", ".join(f"{name}={value}" for name, value in self.match.items())
        return f"{fields or 'any packet'}{f', priority {self.priority}' if self.priority > 1 else ''}"

    def __str__(self) -> str:
        """Return what tells the entry from others."""
        return f"table {self.table}, {self.key}"


def describe(message: p4r.TableEntry, schema: P4Schema) -> EntryText:
    """Return what `message` says. Ids that are not in the P4Info are shown as numbers."""
    table = schema.tables.get(message.table_id)
    if table is None:
        return EntryText(f"{message.table_id:#x}", {}, "", message.priority)
    match = {}
    for part in sorted(message.match, key=lambda part: part.field_id):
        field = table.match_fields.get(part.field_id)
        match[str(part.field_id) if field is None else field.alias] = _match(part, field)
    return EntryText(table.alias, match, _actions(message.action, schema), message.priority)


def _number(value: bytes, bits: int) -> str:
    number = int.from_bytes(value, "big")
    return str(number) if bits <= _LONGEST_DECIMAL_BITS else f"{number:#x}"


def _address(value: bytes) -> str:
    return ".".join(map(str, int.from_bytes(value, "big").to_bytes(4, "big")))


def _match(part: p4r.FieldMatch, field: P4MatchField | None) -> str:
    bits = 0 if field is None else field.bitwidth
    match part.WhichOneof("field_match_type"):
        case "exact":
            return _number(part.exact.value, bits)
        case "lpm":
            # A prefix of 32 bits is an IPv4 network, or at least reads most easily as one.
            value = _address(part.lpm.value) if bits == 32 else _number(part.lpm.value, bits)
            return f"{value}/{part.lpm.prefix_len}"
        case "range":
            return f"{_number(part.range.low, bits)}...{_number(part.range.high, bits)}"
        case "ternary":
            return f"{_number(part.ternary.value, bits)}&{int.from_bytes(part.ternary.mask, 'big'):#x}"
        case "optional":
            return _number(part.optional.value, bits)
        case _:
            return "?"


def _actions(action: p4r.TableAction, schema: P4Schema) -> str:
    match action.WhichOneof("type"):
        case "action":
            return _call(action.action, schema)
        case "action_profile_action_set":
            members = action.action_profile_action_set.action_profile_actions
            return " + ".join(
                _call(member.action, schema)
                if member.weight == 1
                else f"{member.weight}*{_call(member.action, schema)}"
                for member in members
            )
        case "action_profile_member_id":
            return f"member {action.action_profile_member_id}"
        case "action_profile_group_id":
            return f"group {action.action_profile_group_id}"
        case _:
            return ""


def _call(action: p4r.Action, schema: P4Schema) -> str:
    known = schema.actions.get(action.action_id)
    if known is None:
        return f"action {action.action_id:#x}"
    arguments = []
    for given in sorted(action.params, key=lambda given: given.param_id):
        param = known.params.get(given.param_id)
        name = str(given.param_id) if param is None else param.name
        arguments.append(f"{name}={_number(given.value, 0 if param is None else param.bitwidth)}")
    return f"{known.alias}({', '.join(arguments)})"
