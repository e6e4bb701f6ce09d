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
"""Entries of a kind may point to those of the kinds after it."""
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
    """The objects of a program that a controller writes and reads, in the order in which packets
    meet them.
    """

    tables: Mapping[str, BfRtTable]
    digests: Mapping[str, Digest]


def parse(text: bytes, place: str) -> BfRtInfo:
    """Return the description in `text`. Raise ValueError that begins with `place`."""
    try:
        document = json.loads(text)
        # A description lists match-action tables in the order in which packets meet them.
        tables = [
            _table(raw)
            for kind in _KINDS
            for raw in document["tables"]
            if raw["table_type"].startswith(kind)
        ]
        digests = [_digest(raw) for raw in document["learn_filters"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{place}: not a bf-rt.json: {error!r}; compile the program again"
        ) from None
    return BfRtInfo(_by_alias(tables, place), _by_alias(digests, place))


def _digest(raw: Mapping[str, Any]) -> Digest:
    """Return a digest under the name of its type, as P4Info of v1model has it. TNA names a digest
    by its instance, which the program calls after the type."""
    name = raw["name"]
    return Digest(raw["id"], name if name.endswith(_TYPE) else name + _TYPE, _fields(raw["fields"]))


def _by_alias(things: Iterable[Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for thing in things:
        alias = _last(thing.name)
        if alias in found:
            raise ValueError(
                f"{place}: {found[alias].name} and {thing.name} end alike; rename one of them"
            )
        found[alias] = thing
    return found


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _table(raw: Mapping[str, Any]) -> BfRtTable:
    actions = [
        Action(action["id"], _last(action["name"]), _fields(action["data"]))
        for action in raw.get("action_specs", ())
    ]
    singles = [
        inner
        for outer in raw["data"]
        for inner in outer.get("oneof", [outer.get("singleton")])
        if inner
    ]
    return BfRtTable(
        raw["id"],
        raw["name"],
        {_last(name): field for name, field in _fields(raw["key"]).items()},
        {action.name: action for action in actions},
        _fields(singles),
        "ConstTable" in raw.get("attributes", ()),
        raw["table_type"],
        tuple(raw.get("depends_on", ())),
    )


def _fields(raw: Iterable[Mapping[str, Any]]) -> dict[str, Field]:
    widths = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
    return {
        field["name"]: Field(
            field["id"],
            field["name"],
            field["type"]["width"]
            if field["type"]["type"] == "bytes"
            else widths.get(field["type"]["type"], 0),
            field.get("match_type", ""),
            field.get("repeated", False),
        )
        for field in raw
    }
