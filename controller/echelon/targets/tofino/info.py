"""The tables, actions and digests of a `bf-rt.json`, by the names that intents use.

p4c makes `bf-rt.json` and P4Info from the same objects. Intents name a table or an action by the last part of its name,
as P4Info's aliases do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

PRIORITY = "$MATCH_PRIORITY"
COUNTED_BYTES = "$COUNTER_SPEC_BYTES"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a key, of an action, of an entry or of a digest."""

    id: int
    name: str
    bits: int
    match_type: str = ""

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
    """A match-action table."""

    id: int
    name: str
    key: Mapping[str, Field]
    actions: Mapping[str, Action]
    data: Mapping[str, Field]
    """The fields of an entry besides those of its action."""
    is_constant: bool


@dataclass(frozen=True, slots=True)
class Digest:
    id: int
    name: str
    fields: Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class BfRtInfo:
    """The objects of a program that a controller writes and reads, in the order in which packets meet them."""

    tables: Mapping[str, BfRtTable]
    digests: Mapping[str, Digest]


def parse(text: bytes, place: str) -> BfRtInfo:
    """Return the description in `text`. Raise ValueError that begins with `place`."""
    try:
        document = json.loads(text)
        tables = [_table(raw) for raw in document["tables"] if raw["table_type"].startswith("MatchAction")]
        digests = [Digest(raw["id"], raw["name"], _fields(raw["fields"])) for raw in document["learn_filters"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{place}: not a bf-rt.json: {error!r}; compile the program again") from None
    return BfRtInfo(_by_alias(tables, place), _by_alias(digests, place))


def _by_alias(things: Iterable[Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for thing in things:
        alias = _last(thing.name)
        if alias in found:
            raise ValueError(f"{place}: {found[alias].name} and {thing.name} end alike; rename one of them")
        found[alias] = thing
    return found


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _table(raw: Mapping[str, Any]) -> BfRtTable:
    actions = [
        Action(action["id"], _last(action["name"]), _fields(action["data"])) for action in raw.get("action_specs", ())
    ]
    singles = [outer["singleton"] for outer in raw["data"] if "singleton" in outer]
    return BfRtTable(
        raw["id"],
        raw["name"],
        {_last(name): field for name, field in _fields(raw["key"]).items()},
        {action.name: action for action in actions},
        _fields(singles),
        "ConstTable" in raw.get("attributes", ()),
    )


def _fields(raw: Iterable[Mapping[str, Any]]) -> dict[str, Field]:
    widths = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1}
    return {
        field["name"]: Field(
            field["id"],
            field["name"],
            field["type"]["width"] if field["type"]["type"] == "bytes" else widths.get(field["type"]["type"], 0),
            field.get("match_type", ""),
        )
        for field in raw
    }
