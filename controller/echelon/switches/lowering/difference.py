"""The difference between two intents of a switch: the entries and settings to write."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from echelon.switches.lowering.intent import Intent, QueueSetting, TableEntry

OwnedEntry = tuple[str, TableEntry]
"""An entry, and the owner of the part of the intent that it belongs to."""


@dataclass(frozen=True, slots=True)
class IntentDifference:
    """The changes of one switch, in the order of its intents."""

    switch: str
    added: tuple[OwnedEntry, ...]
    changed: tuple[OwnedEntry, ...]
    """Entries whose key stays and whose action changes, as they will be."""
    removed: tuple[OwnedEntry, ...]
    queues: tuple[tuple[QueueSetting, QueueSetting], ...]
    """Queues before and after, where they differ."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.queues)


def difference(before: Intent, after: Intent) -> IntentDifference:
    """Return the changes from one intent of a switch to another.

    It takes time that grows with the parts that differ.
    """
    # A part that did not change is the same object.
    former = {id(part) for part in before.parts}
    kept = former.intersection(map(id, after.parts))
    old = _entries_by_key(before, kept)
    new = _entries_by_key(after, kept)

    added = []
    changed = []
    for key, owned in new.items():
        if key not in old:
            added.append(owned)
            continue
        _, old_entry = old[key]
        _, new_entry = owned
        if old_entry.actions != new_entry.actions:
            changed.append(owned)
    removed = [owned for key, owned in old.items() if key not in new]

    return IntentDifference(
        switch=after.switch,
        added=tuple(added),
        changed=tuple(changed),
        removed=tuple(removed),
        queues=_changed_queues(before, after),
    )


def _entries_by_key(intent: Intent, kept: Collection[int]) -> dict[Hashable, OwnedEntry]:
    """Return the entries of an intent's parts, without the parts that are `kept` (by identity)."""
    entries: dict[Hashable, OwnedEntry] = {}
    for part in intent.parts:
        if id(part) in kept:
            continue
        for entry in part.entries:
            key = (entry.table, frozenset(entry.match), entry.priority)
            entries[key] = (part.owner, entry)
    return entries


def _changed_queues(before: Intent, after: Intent) -> tuple[tuple[QueueSetting, QueueSetting], ...]:
    settings = {(setting.port, setting.queue): setting for setting in before.queues}
    changed = []
    for new in after.queues:
        old = settings[new.port, new.queue]
        if old != new:
            changed.append((old, new))
    return tuple(changed)
