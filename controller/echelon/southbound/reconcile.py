"""What must be written so that a switch holds what it should: a pure difference of two sets of entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from echelon.lowering.intent import Part, TableEntry
from echelon.southbound.codec import EncodedEntry
from echelon.southbound.wire import Kind


class Update(NamedTuple):
    kind: Kind
    entry: EncodedEntry
    tries: int = 0
    """How often it was sent before."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Entries to insert, modify and delete, and those that cannot be had: somebody else's entry has their key."""

    inserts: tuple[EncodedEntry, ...] = ()
    modifies: tuple[EncodedEntry, ...] = ()
    deletes: tuple[EncodedEntry, ...] = ()
    blocked: tuple[EncodedEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inserts or self.modifies or self.deletes)

    def __len__(self) -> int:
        return len(self.inserts) + len(self.modifies) + len(self.deletes)

    def stages(self) -> Iterator[list[Update]]:
        """Updates by what must be done before what: all of a stage before any of the next.

        Make before break: new entries come first, then changed ones, then those that go. What packets look up last is
        written first and deleted last, so that no packet finds an entry before what that entry leads to. Updates of one
        stage are of one kind and table, with different keys: their order is free, as P4Runtime leaves that in a batch.
        """
        yield from in_stages(Update(Kind.INSERT, entry) for entry in self.inserts)
        yield from in_stages(Update(Kind.MODIFY, entry) for entry in self.modifies)
        yield from reversed(in_stages(Update(Kind.DELETE, entry) for entry in self.deletes))


def in_stages(updates: Iterable[Update]) -> list[list[Update]]:
    """Updates of one kind, those of one table together, what packets look up last first."""
    stages: dict[int, list[Update]] = defaultdict(list)
    for update in updates:
        stages[update.entry.stage].append(update)
    return [stages[stage] for stage in sorted(stages)]


def difference(
    held: Mapping[bytes, EncodedEntry],
    wanted: Mapping[bytes, EncodedEntry],
    dropped: Iterable[bytes],
    foreign: Collection[bytes] = (),
) -> Difference:
    """What brings `held` to `wanted`; linear in the size of the last three.

    Args:
        held: our entries on the switch, by key.
        wanted: entries that must be there, by key. Held ones that are neither wanted nor dropped stay.
        dropped: keys of entries that must go, unless they are wanted.
        foreign: keys of others' entries on the switch.
    """
    inserts: list[EncodedEntry] = []
    modifies: list[EncodedEntry] = []
    blocked: list[EncodedEntry] = []
    for key, entry in wanted.items():
        there = held.get(key)
        if there is None:
            (blocked if key in foreign else inserts).append(entry)
        elif there.value != entry.value:
            modifies.append(entry)
    deletes = [held[key] for key in dropped if key in held and key not in wanted]
    return Difference(tuple(inserts), tuple(modifies), tuple(deletes), tuple(blocked))


class WantedTwiceError(ValueError):
    """Two entries of one key; `entry` is the second."""

    def __init__(self, entry: EncodedEntry, owners: Sequence[str]) -> None:
        super().__init__(f"wanted twice, by {' and '.join(owners)}")
        self.entry = entry
        self.owners = owners


@dataclass(frozen=True, slots=True)
class _EncodedPart:
    part: Part
    entries: tuple[EncodedEntry, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """From one intent to the next: only of parts that are not the same object in both."""

    come: Mapping[bytes, EncodedEntry]
    """Entries of new parts, by key."""
    gone: Collection[bytes]
    """Keys of entries of former parts; they may be in `come` too."""


class Wanted:
    """What an intent wants on the switch, as bytes. Kept from intent to intent, so that parts that are the same object
    as before cost nothing."""

    def __init__(self, encode: Callable[[TableEntry], EncodedEntry]) -> None:
        self._encode = encode
        self._parts: dict[int, _EncodedPart] = {}
        """By the identity of the part, which is kept alive here."""
        self.by_key: dict[bytes, EncodedEntry] = {}

    def turn_to(self, parts: Sequence[Part]) -> Turn:
        """Want these parts from now on.

        Raises `WantedTwiceError`, or ValueError for an entry that cannot be encoded; then nothing has changed.
        """
        new = {id(part): part for part in parts}
        former = [known for number, known in self._parts.items() if number not in new]
        coming = [
            _EncodedPart(part, tuple(map(self._encode, part.entries)))
            for number, part in new.items()
            if number not in self._parts
        ]
        gone = {entry.key for known in former for entry in known.entries}
        come: dict[bytes, EncodedEntry] = {}
        for part in coming:
            for entry in part.entries:
                if entry.key in come or (entry.key in self.by_key and entry.key not in gone):
                    kept = [known for number, known in self._parts.items() if number in new]
                    raise WantedTwiceError(entry, [p.part.owner for p in (*kept, *coming) if _has(p, entry)])
                come[entry.key] = entry
        for known in former:
            del self._parts[id(known.part)]
        for part in coming:
            self._parts[id(part.part)] = part
        for key in gone:
            if key not in come:
                del self.by_key[key]
        self.by_key.update(come)
        return Turn(come, gone)

    def owners(self, keys: Collection[bytes]) -> dict[bytes, str]:
        """The parts that want the entries of these keys. Linear in the whole intent."""
        return {
            entry.key: known.part.owner
            for known in self._parts.values()
            for entry in known.entries
            if entry.key in keys
        }


def _has(known: _EncodedPart, entry: EncodedEntry) -> bool:
    return any(other.key == entry.key for other in known.entries)
