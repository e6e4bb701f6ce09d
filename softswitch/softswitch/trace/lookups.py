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


def applied(spec: ir.TableSpec, table: Table, key: Sequence[int], result: Any) -> events.Applied:
    """Return the event of a look-up; ``result`` is what it found, None for a miss."""
    entry = found_entry(spec, table, key, result)
    if entry is None:
        wanted: Sequence[KeyElement] = [None] * len(key)
    else:
        wanted = entry.key
    matches = tuple(
        events.Match(part.name, part.match, value, part.width, element)
        for part, value, element in zip(spec.keys, key, wanted, strict=True)
    )
    if entry is not None and table.by_priority:
        priority = entry.priority
    else:
        priority = None
    position = str(spec.origin) if spec.origin else None
    handle = None if entry is None else entry.handle
    return events.Applied(spec.name, matches, result is not None, handle, priority, position)


def chosen(
    spec: ir.TableSpec, table: Table, key: Sequence[int], result: Any, call: Any
) -> events.Chosen:
    """Return the event of the choice of a call in an action profile."""
    profile = table.profile
    entry = found_entry(spec, table, key, result)
    if profile is None or entry is None:
        return events.Chosen(spec.name, None, None)
    candidates: Iterable[int] = profile.members
    if entry.group is not None and entry.group in profile.groups:
        candidates = profile.groups[entry.group].members
    member = next((m for m in candidates if profile.members[m].cell[0] is call), None)
    return events.Chosen(spec.name, entry.group, member if entry.member is None else entry.member)


def found_entry(spec: ir.TableSpec, table: Table, key: Sequence[int], result: Any) -> Entry | None:
    """Return the entry that a look-up of ``key`` yielded: the best matching one among those with
    this very result.
    """
    if result is None:
        return None
    fields = match_fields(spec)
    found = [
        entry
        for entry in table.entries()
        if entry.result is result
        and all(_matches(f, e, v) for f, e, v in zip(fields, entry.key, key, strict=True))
    ]
    return max(found, key=lambda entry: (entry.priority, -entry.handle), default=None)


def _matches(field: MatchField, element: KeyElement, value: int) -> bool:
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
