"""The tables, actions, fields and digests that a BF Runtime description (`bf-rt.json`) declares.

p4c's Tofino back end writes the format (`control-plane/bfruntime.cpp`), and the open SDE reads it.
Only what concerns clients is kept here; `Schema.text` is the description as it was given, for
clients that ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

__all__ = ["BfrtAction", "BfrtField", "BfrtTable", "Digest", "Schema", "parse"]

_WIDTHS = {"bool": 1, "float": 32, "string": 0}
for _bits in (8, 16, 32, 64):
    _WIDTHS[f"uint{_bits}"] = _bits
    _WIDTHS[f"int{_bits}"] = _bits
_MATCH_TYPES = {"Exact", "Ternary", "LPM", "Range", "Optional", "ATCAM"}


@dataclass(frozen=True, slots=True)
class BfrtField:
    """A field of a key, of an entry's data, of an action or of a digest."""

    id: int
    name: str
    type: str
    """bytes, uint8 to uint64, int8 to int64, bool, float, or string."""
    bits: int
    """The width of a number; 0 for a string."""
    match_type: str = ""
    """Exact, Ternary, LPM, Range or Optional; empty outside a key."""
    repeated: bool = False
    mandatory: bool = False
    read_only: bool = False
    choices: tuple[str, ...] = ()
    """The choices of a string; empty if it may be anything."""
    default: int | float | bool | str | None = None
    is_register: bool = False
    """Whether the field is a register's: clients get a value for each pipe."""

    @property
    def is_number(self) -> bool:
        """Return whether the value travels as big-endian bytes."""
        return self.type not in ("bool", "float", "string")

    @property
    def length_bytes(self) -> int:
        """Return the length of a number as it travels."""
        return (self.bits + 7) // 8

    @property
    def initial(self) -> Any:
        """Return the value of a field that nobody has written."""
        if self.repeated:
            return ()
        if self.default is not None:
            return self.default
        match self.type:
            case "bool":
                return False
            case "float":
                return 0.0
            case "string":
                return self.choices[0] if self.choices else ""
        return 0


@dataclass(frozen=True, slots=True)
class BfrtAction:
    """An action that an entry may have."""

    id: int
    name: str
    fields: tuple[BfrtField, ...]
    scope: str = "TableAndDefault"
    """TableAndDefault, TableOnly or DefaultOnly."""


@dataclass(frozen=True)
class BfrtTable:
    """A table. Its names are those of the program; clients may leave out what precedes them."""

    id: int
    name: str
    type: str
    size: int
    key: tuple[BfrtField, ...]
    data: tuple[BfrtField, ...]
    """The fields of an entry besides those of its action."""
    actions: tuple[BfrtAction, ...] = ()
    operations: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    has_constant_default: bool = False

    @cached_property
    def key_by_id(self) -> Mapping[int, BfrtField]:
        return {field.id: field for field in self.key}

    @cached_property
    def action_by_id(self) -> Mapping[int, BfrtAction]:
        return {action.id: action for action in self.actions}

    @cached_property
    def action_by_name(self) -> Mapping[str, BfrtAction]:
        return {action.name: action for action in self.actions}

    def fields(self, action: str | None) -> Sequence[BfrtField]:
        """Return the fields of an entry with that action, the action's own first.

        Raise KeyError.
        """
        if action:
            return (*self.action_by_name[action].fields, *self.data)
        return self.data


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest, which BF Runtime calls a learn filter."""

    id: int
    name: str
    fields: tuple[BfrtField, ...]


@dataclass(frozen=True)
class Schema:
    """A description, and its tables and digests by name."""

    text: bytes = field(repr=False)
    tables: Mapping[str, BfrtTable]
    digests: Mapping[str, Digest]

    @cached_property
    def table_by_id(self) -> Mapping[int, BfrtTable]:
        return {table.id: table for table in self.tables.values()}


def parse(text: bytes, place: str) -> Schema:
    """Return the description in `text`.

    Raise ValueError that begins with `place`, the name of the file.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    reader = _Reader(place)
    tables = [reader.table(table) for table in reader.members(document, "tables", place)]
    digests = [reader.digest(digest) for digest in reader.members(document, "learn_filters", place)]
    _check_unique(f"{place}: two of tables", tables)
    _check_unique(f"{place}: two of learn filters", digests)
    tables_by_name = {table.name: table for table in tables}
    digests_by_name = {digest.name: digest for digest in digests}
    return Schema(text, tables_by_name, digests_by_name)


def _check_unique(message: str, described: Sequence[BfrtTable] | Sequence[Digest]) -> None:
    """Raise ValueError if two have the same name or id."""
    for attribute in ("name", "id"):
        seen = set()
        for item in described:
            value = getattr(item, attribute)
            if value in seen:
                raise ValueError(f"{message} have {attribute} {value}")
            seen.add(value)


class _Reader:
    """A reader of the parts of one description. Its errors name the part."""

    def __init__(self, place: str) -> None:
        self._place = place

    def members(
        self,
        owner: Any,
        key: str,
        where: str,
    ) -> Iterator[dict[str, Any]]:
        members = owner.get(key, []) if isinstance(owner, dict) else None
        if isinstance(members, list) and all(isinstance(member, dict) for member in members):
            return iter(members)
        raise ValueError(f"{where}: {key} is not a list of objects; is this a bf-rt.json?")

    def table(self, raw: dict[str, Any]) -> BfrtTable:
        name = self._value(raw, "name", str, f"{self._place}: a table")
        where = f"{self._place}: table {name}"
        number = self._value(raw, "id", int, where)
        kind = self._value(raw, "table_type", str, where)
        size = self._value(raw, "size", int, where)
        key_fields = self.members(raw, "key", where)
        key = [self._key_field(field, where) for field in key_fields]
        data = self._singletons(raw, where)
        action_specs = self.members(raw, "action_specs", where)
        actions = [self._action(action, where) for action in action_specs]
        return BfrtTable(
            id=number,
            name=name,
            type=kind,
            size=size,
            key=tuple(key),
            data=tuple(data),
            actions=tuple(actions),
            operations=tuple(raw.get("supported_operations", ())),
            attributes=tuple(raw.get("attributes", ())),
            has_constant_default=bool(raw.get("has_const_default_action", False)),
        )

    def digest(self, raw: dict[str, Any]) -> Digest:
        name = self._value(raw, "name", str, f"{self._place}: a learn filter")
        where = f"{self._place}: learn filter {name}"
        listed = self.members(raw, "fields", where)
        fields = [self._field(field, where) for field in listed]
        number = self._value(raw, "id", int, where)
        return Digest(number, name, tuple(fields))

    def _action(self, raw: dict[str, Any], where: str) -> BfrtAction:
        name = self._value(raw, "name", str, f"{where}: an action")
        where = f"{where}: action {name}"
        # Fixed tables wrap an action's fields as they wrap an entry's; p4c does not.
        fields = []
        for outer in self.members(raw, "data", where):
            fields.append(self._field(outer.get("singleton", outer), where, outer))
        number = self._value(raw, "id", int, where)
        scope = raw.get("action_scope", "TableAndDefault")
        return BfrtAction(number, name, tuple(fields), scope)

    def _singletons(self, raw: dict[str, Any], where: str) -> Iterator[BfrtField]:
        for outer in self.members(raw, "data", where):
            alternatives: Iterable[dict[str, Any]]
            if "singleton" in outer:
                alternatives = (outer["singleton"],)
            else:
                # An entry has one of the fields that `oneof` lists.
                alternatives = self.members(outer, "oneof", where)
            for inner in alternatives:
                # A container holds lists of fields; only snapshots have them, and those cannot be
                # taken here.
                if "container" not in inner:
                    yield self._field(inner, where, outer)

    def _key_field(self, raw: dict[str, Any], where: str) -> BfrtField:
        field = self._field(raw, where)
        where = f"{where}: field {field.name}"
        match_type = self._value(raw, "match_type", str, where)
        if match_type not in _MATCH_TYPES:
            raise ValueError(f"{where}: its match type {match_type!r} is unknown")
        # Clients write an algorithmic TCAM's exact match as any other.
        return replace(field, match_type="Exact" if match_type == "ATCAM" else match_type)

    def _field(
        self,
        raw: dict[str, Any],
        where: str,
        outer: Mapping[str, Any] | None = None,
    ) -> BfrtField:
        outer = raw if outer is None else outer
        name = self._value(raw, "name", str, f"{where}: a field")
        where = f"{where}: field {name}"
        described = self._value(raw, "type", dict, where)
        type_ = self._value(described, "type", str, where)
        if type_ == "bytes":
            bits = self._value(described, "width", int, where)
        elif type_ in _WIDTHS:
            bits = _WIDTHS[type_]
        else:
            raise ValueError(f"{where}: its type {type_!r} is unknown")
        default = described.get("default_value")
        if isinstance(default, str) and type_.startswith("int"):
            default = int(default)
        notes = [note.get("value") for note in raw.get("annotations", ())]
        number = self._value(raw, "id", int, where)
        return BfrtField(
            id=number,
            name=name,
            type=type_,
            bits=bits,
            repeated=bool(raw.get("repeated", False)),
            mandatory=bool(outer.get("mandatory", False)),
            read_only=bool(outer.get("read_only", False)),
            choices=tuple(described.get("choices", ())),
            default=default,
            is_register="register_data" in notes,
        )

    def _value(
        self,
        raw: Mapping[str, Any],
        key: str,
        kind: type,
        where: str,
    ) -> Any:
        value = raw.get(key)
        if not isinstance(value, kind):
            raise ValueError(f"{where}: {key} is {json.dumps(value)[:60]}, not {kind.__name__}")
        return value
