"""The entry points of what extends planning: policies and judges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint

from echelon.model.extras import origin
from echelon.planning.plan import PlanError


def entries_by_name(group: Iterable[EntryPoint], noun: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group, in alphabetical order of their names.

    Raises `PlanError` if two distributions register the same name; it calls entries a `noun`.
    """
    entries: dict[str, EntryPoint] = {}
    for entry in sorted(group):
        other = entries.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise PlanError(
                f"{noun} {entry.name} is registered by {origin(other)} and {origin(entry)};"
                " remove one",
                code="duplicate",
            )
    return entries
