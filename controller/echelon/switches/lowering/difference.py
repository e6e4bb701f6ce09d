"""The difference between two intents of a switch: what is written to bring it from one to the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from echelon.switches.lowering.intent import Intent, Part, QueueSetting, TableEntry

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
    """Return what changes from one intent of a switch to another, in time that grows with the parts
    that differ.
    """
    # A part that did not change is the same object.
    kept = {id(part) for part in before.parts} & {id(part) for part in after.parts}
    old = dict(_entries(part for part in before.parts if id(part) not in kept))
    new = dict(_entries(part for part in after.parts if id(part) not in kept))
    queues = {(queue.port, queue.queue): queue for queue in before.queues}
    return IntentDifference(
        after.switch,
        added=tuple(entry for key, entry in new.items() if key not in old),
        changed=tuple(
            entry
            for key, entry in new.items()
            if key in old and old[key][1].actions != entry[1].actions
        ),
        removed=tuple(entry for key, entry in old.items() if key not in new),
        queues=tuple(
            (was, now) for now in after.queues if (was := queues[now.port, now.queue]) != now
        ),
    )


def _entries(parts: Iterable[Part]) -> Iterator[tuple[tuple[object, ...], OwnedEntry]]:
    for part in parts:
        for entry in part.entries:
            yield (entry.table, frozenset(entry.match), entry.priority), (part.owner, entry)
