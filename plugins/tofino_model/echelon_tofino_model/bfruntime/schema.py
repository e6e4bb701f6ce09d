"""The tables, actions, fields and digests that a BF Runtime description (`bf-rt.json`) declares.

p4c's Tofino back end writes the format (`control-plane/bfruntime.cpp`), and the open SDE reads it.
Only what concerns clients is kept here; `Schema.text` is the description as it was given, for
clients that ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["BfrtAction", "BfrtField", "BfrtTable", "Digest", "Schema", "parse"]

_WIDTHS = {
    **{f"uint{bits}": bits for bits in (8, 16, 32, 64)},
    **{f"int{bits}": bits for bits in (8, 16, 32, 64)},
    "bool": 1,
    "float": 32,
    "string": 0,
}
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
        return {"bool": False, "float": 0.0, "string": self.choices[0] if self.choices else ""}.get(
            self.type, 0
        )


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
    for what, things in (("table", tables), ("learn filter", digests)):
        for attribute in ("name", "id"):
            seen = set()
            for thing in things:
                value = getattr(thing, attribute)
                if value in seen:
                    raise ValueError(f"{place}: two of {what}s have {attribute} {value}")
                seen.add(value)
    return Schema(
        text, {table.name: table for table in tables}, {digest.name: digest for digest in digests}
    )


class _Reader:
    """A reader of the parts of one description. Its errors name the part."""

    def __init__(self, place: str) -> None:
        self._place = place

    def members(self, owner: Any, key: str, where: str) -> Iterator[dict[str, Any]]:
        if isinstance(owner, dict):
            found = owner.get(key, [])
        else:
            found = None
        if not isinstance(found, list) or not all(isinstance(member, dict) for member in found):
            raise ValueError(f"{where}: {key} is not a list of objects; is this a bf-rt.json?")
        return iter(found)

    def table(self, raw: dict[str, Any]) -> BfrtTable:
        name = self._value(raw, "name", str, f"{self._place}: a table")
        where = f"{self._place}: table {name}"
        return BfrtTable(
            id=self._value(raw, "id", int, where),
            name=name,
            type=self._value(raw, "table_type", str, where),
            size=self._value(raw, "size", int, where),
            key=tuple(
                self._field(field, where, is_key=True) for field in self.members(raw, "key", where)
            ),
            data=tuple(self._singletons(raw, where)),
            actions=tuple(
                self._action(action, where) for action in self.members(raw, "action_specs", where)
            ),
            operations=tuple(raw.get("supported_operations", ())),
            attributes=tuple(raw.get("attributes", ())),
            has_constant_default=bool(raw.get("has_const_default_action", False)),
        )

    def digest(self, raw: dict[str, Any]) -> Digest:
        name = self._value(raw, "name", str, f"{self._place}: a learn filter")
        where = f"{self._place}: learn filter {name}"
        fields = tuple(self._field(field, where) for field in self.members(raw, "fields", where))
        return Digest(self._value(raw, "id", int, where), name, fields)

    def _action(self, raw: dict[str, Any], where: str) -> BfrtAction:
        name = self._value(raw, "name", str, f"{where}: an action")
        where = f"{where}: action {name}"
        # Fixed tables wrap an action's fields as they wrap an entry's; p4c does not.
        fields = tuple(
            self._field(field.get("singleton", field), where, outer=field)
            for field in self.members(raw, "data", where)
        )
        return BfrtAction(
            self._value(raw, "id", int, where),
            name,
            fields,
            raw.get("action_scope", "TableAndDefault"),
        )

    def _singletons(self, raw: dict[str, Any], where: str) -> Iterator[BfrtField]:
        for outer in self.members(raw, "data", where):
            # `oneof` lists fields of which an entry has one.
            for inner in (
                (outer["singleton"],)
                if "singleton" in outer
                else self.members(outer, "oneof", where)
            ):
                # A container holds lists of fields; only snapshots have them, and those cannot be
                # taken here.
                if "container" not in inner:
                    yield self._field(inner, where, outer=outer)

    def _field(
        self,
        raw: dict[str, Any],
        where: str,
        outer: Mapping[str, Any] | None = None,
        is_key: bool = False,
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
        if is_key:
            match_type = self._value(raw, "match_type", str, where)
        else:
            match_type = ""
        if is_key and match_type not in _MATCH_TYPES:
            raise ValueError(f"{where}: its match type {match_type!r} is unknown")
        default = described.get("default_value")
        return BfrtField(
            id=self._value(raw, "id", int, where),
            name=name,
            type=type_,
            bits=bits,
            match_type="Exact" if match_type == "ATCAM" else match_type,
            repeated=bool(raw.get("repeated", False)),
            mandatory=bool(outer.get("mandatory", False)),
            read_only=bool(outer.get("read_only", False)),
            choices=tuple(described.get("choices", ())),
            default=int(default)
            if isinstance(default, str) and type_.startswith("int")
            else default,
            is_register=any(
                annotation.get("value") == "register_data"
                for annotation in raw.get("annotations", ())
            ),
        )

    def _value(self, raw: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
        value = raw.get(key)
        if not isinstance(value, kind):
            raise ValueError(f"{where}: {key} is {json.dumps(value)[:60]}, not {kind.__name__}")
        return value
