"""The tables, actions and digests of a `bf-rt.json`, by the names that intents use.

p4c makes `bf-rt.json` and P4Info from the same objects. Intents name a table or an action by the
last part of its name, as P4Info's aliases do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PRIORITY = "$MATCH_PRIORITY"
COUNTED_BYTES = "$COUNTER_SPEC_BYTES"
MEMBER = "$ACTION_MEMBER_ID"
GROUP = "$SELECTOR_GROUP_ID"
STATUS = "$ACTION_MEMBER_STATUS"

ACTION_PROFILE, SELECTOR = "Action", "Selector"
SPREADING = "MatchAction_Indirect_Selector"
"""The kind of a table whose entries point to groups."""
_KINDS = ("MatchAction", SELECTOR, ACTION_PROFILE)
"""The kinds of tables. Entries may only point to entries of a kind further on."""
_TYPE = "_t"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a key, of an action, of an entry or of a digest."""

    id: int
    name: str
    bits: int
    match_type: str = ""
    repeated: bool = False

    @property
    def length_bytes(self) -> int:
        return (self.bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Action:
    id: int
    name: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class BfRtTable:
    """A match-action table, the members of an action profile, or the groups of a selector."""

    id: int
    name: str
    key: Mapping[str, Field]
    actions: Mapping[str, Action]
    data: Mapping[str, Field]
    """The fields of an entry besides those of its action."""
    is_constant: bool
    kind: str
    depends_on: tuple[int, ...] = ()
    """The ids of the tables to which entries point."""


@dataclass(frozen=True, slots=True)
class Digest:
    id: int
    name: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class BfRtInfo:
    """The tables and digests of a program, tables in the order in which packets meet them."""

    tables: Mapping[str, BfRtTable]
    digests: Mapping[str, Digest]


def parse(text: bytes, place: str) -> BfRtInfo:
    """Return the description in `text`. Raise ValueError that begins with `place`."""
    try:
        document = json.loads(text)
        # A description lists match-action tables in the order in which packets meet them.
        tables = []
        for kind in _KINDS:
            for raw in document["tables"]:
                if raw["table_type"].startswith(kind):
                    tables.append(_table(raw))
        digests = [_digest(raw) for raw in document["learn_filters"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place}: not a bf-rt.json: {error!r}; compile the program again"
        ) from None
    return BfRtInfo(_by_alias(tables, place), _by_alias(digests, place))


def _digest(raw: Mapping[str, Any]) -> Digest:
    """Return a digest under the name of its type, as P4Info of v1model has it.

    TNA names a digest by its instance, which the program calls after the type.
    """
    name = raw["name"]
    if not name.endswith(_TYPE):
        name += _TYPE
    return Digest(raw["id"], name, _fields(raw["fields"]))


def _by_alias(things: Iterable[Any], place: str) -> dict[str, Any]:
    by_alias: dict[str, Any] = {}
    for thing in things:
        alias = _last(thing.name)
        if alias in by_alias:
            raise ValueError(
                f"{place}: {by_alias[alias].name} and {thing.name} end alike; rename one of them"
            )
        by_alias[alias] = thing
    return by_alias


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _table(raw: Mapping[str, Any]) -> BfRtTable:
    key = {}
    for name, field in _fields(raw["key"]).items():
        key[_last(name)] = field

    actions = {}
    for described in raw.get("action_specs", ()):
        name = _last(described["name"])
        parameters = _fields(described["data"])
        actions[name] = Action(described["id"], name, parameters)

    singles: list[Mapping[str, Any]] = []
    for outer in raw["data"]:
        inner = outer.get("oneof", [outer.get("singleton")])
        singles += [field for field in inner if field]

    data = _fields(singles)
    is_constant = "ConstTable" in raw.get("attributes", ())
    depends_on = tuple(raw.get("depends_on", ()))
    return BfRtTable(
        raw["id"], raw["name"], key, actions, data, is_constant, raw["table_type"], depends_on
    )


def _fields(raw: Iterable[Mapping[str, Any]]) -> dict[str, Field]:
    widths = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
    fields = {}
    for field in raw:
        name = field["name"]
        field_type = field["type"]
        kind = field_type["type"]
        width = field_type["width"] if kind == "bytes" else widths.get(kind, 0)
        match_type = field.get("match_type", "")
        repeated = field.get("repeated", False)
        fields[name] = Field(field["id"], name, width, match_type, repeated)
    return fields
