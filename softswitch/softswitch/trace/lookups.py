"""Look-ups explained: which entry a result comes from.

All entries are searched, because tracing is not for speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from softswitch import ir
from softswitch.lookup import Entry, KeyElement, MatchField, match_fields
from softswitch.tables import Table

from . import events


def applied(
    spec: ir.TableSpec,
    table: Table,
    key: Sequence[int],
    result: Any,
) -> events.Applied:
    """Return the event of a look-up; ``result`` is what it found, None for a miss."""
    entry = found_entry(spec, table, key, result)
    wanted: Sequence[KeyElement] = [None] * len(key)
    handle = priority = None
    if entry is not None:
        wanted = entry.key
        handle = entry.handle
        if table.by_priority:
            priority = entry.priority

    matches: list[events.Match] = []
    for part, value, element in zip(spec.keys, key, wanted, strict=True):
        matches.append(events.Match(part.name, part.match, value, part.width, element))
    position = str(spec.origin) if spec.origin else None
    is_hit = result is not None
    return events.Applied(spec.name, tuple(matches), is_hit, handle, priority, position)


def chosen(
    spec: ir.TableSpec,
    table: Table,
    key: Sequence[int],
    result: Any,
    call: Any,
) -> events.Chosen:
    """Return the event of the choice of a call in an action profile."""
    profile = table.profile
    entry = found_entry(spec, table, key, result)
    if profile is None or entry is None:
        return events.Chosen(spec.name, None, None)
    if entry.member is not None:
        return events.Chosen(spec.name, entry.group, entry.member)
    candidates: Iterable[int] = profile.members
    if entry.group is not None and entry.group in profile.groups:
        candidates = profile.groups[entry.group].members
    for member in candidates:
        if profile.members[member].cell[0] is call:
            return events.Chosen(spec.name, entry.group, member)
    return events.Chosen(spec.name, entry.group, None)


def found_entry(
    spec: ir.TableSpec,
    table: Table,
    key: Sequence[int],
    result: Any,
) -> Entry | None:
    """Return the entry that a look-up of ``key`` yielded.

    It is the best match among the entries with this very result.
    """
    if result is None:
        return None
    fields = match_fields(spec)
    candidates: list[Entry] = []
    for entry in table.entries():
        if entry.result is result and all(map(_matches, fields, entry.key, key)):
            candidates.append(entry)
    return max(candidates, key=_rank, default=None)


def _rank(entry: Entry) -> tuple[int, int]:
    """Return what is largest for the entry that comes first: of equals, the oldest."""
    return entry.priority, -entry.handle


def _matches(
    field: MatchField,
    element: KeyElement,
    value: int,
) -> bool:
    if element is None:
        return True
    if isinstance(element, int):
        return value == element
    first, second = element
    if field.kind == "range":
        return first <= value <= second
    if field.kind == "lpm":
        mask = field.full ^ (field.full >> second)
    else:
        mask = second
    return value & mask == first & mask
