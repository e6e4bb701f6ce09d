"""The pure difference of two sets of entries: what to write so that a switch holds what it
should.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from echelon.switches.lowering.intent import Part, TableEntry
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind

_CHUNK = 1000
"""Number of entries encoded at a time, while a switch is at work on those before."""


class Chunk(NamedTuple):
    """Updates of one kind, with different keys.

    Their order is free, as P4Runtime leaves it free within a batch.
    """

    stage: tuple[int, int]
    """Chunks of one stage may come in any order; all of them come before any of the next stage."""
    kind: UpdateKind
    entries: Sequence[EncodedEntry]


# Make before break: new entries come first, then changed ones, then those that go. What packets
# look up last is written first and deleted last, so that no packet finds an entry before what that
# entry leads to.
_AGAIN, _NEW, _CHANGED, _GONE = range(4)


def _staged(phase: int, kind: UpdateKind, entries: Iterable[EncodedEntry]) -> Iterator[Chunk]:
    stages: dict[int, list[EncodedEntry]] = defaultdict(list)
    for entry in entries:
        stages[entry.stage].append(entry)
    for stage in sorted(stages, reverse=kind is UpdateKind.DELETE):
        yield Chunk((phase, stage), kind, stages[stage])


@dataclass(frozen=True, slots=True)
class Difference:
    """Entries to insert, modify and delete, and those that cannot be installed because someone
    else's entry has their key."""

    inserts: tuple[EncodedEntry, ...] = ()
    modifies: tuple[EncodedEntry, ...] = ()
    deletes: tuple[EncodedEntry, ...] = ()
    blocked: tuple[EncodedEntry, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks in the order in which they must be written."""
        yield from _staged(_NEW, UpdateKind.INSERT, self.inserts)
        yield from _staged(_CHANGED, UpdateKind.MODIFY, self.modifies)
        yield from _staged(_GONE, UpdateKind.DELETE, self.deletes)


def difference(
    held: Mapping[bytes, EncodedEntry],
    wanted: Mapping[bytes, EncodedEntry],
    foreign: Collection[bytes] = (),
) -> Difference:
    """Return what brings `held` (our entries on the switch, by key) to `wanted`, beside others'
    entries with the keys `foreign`, in linear time."""
    inserts: list[EncodedEntry] = []
    modifies: list[EncodedEntry] = []
    blocked: list[EncodedEntry] = []
    for key, entry in wanted.items():
        there = held.get(key)
        if there is None:
            (blocked if key in foreign else inserts).append(entry)
        elif there.value != entry.value:
            modifies.append(entry)
    deletes = [entry for key, entry in held.items() if key not in wanted]
    return Difference(tuple(inserts), tuple(modifies), tuple(deletes), tuple(blocked))


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An entry of an intent that cannot be written anywhere."""

    owner: str
    entry: TableEntry
    reason: str


@dataclass(eq=False, slots=True)
class _Known:
    """A part of the intent, as far as it is encoded."""

    part: Part
    entries: list[EncodedEntry] = field(default_factory=list)
    """Its entries that can be installed, in the order in which they are encoded: by stage."""
    encoded: Mapping[int, tuple[TableEntry, EncodedEntry]] = field(default_factory=dict)
    """The entries of the part of the same owner before, by identity, and their encodings; until
    this one is.
    """
    invalid: list[InvalidEntry] = field(default_factory=list)


class WantedEntries:
    """The entries that an intent wants on the switch, as bytes.

    It is kept from intent to intent, so that parts that are the same object as before cost nothing.
    """

    def __init__(
        self,
        encode: Callable[[TableEntry], EncodedEntry],
        stages: Mapping[str, int],
        spread: Callable[[TableEntry], Sequence[TableEntry]] = lambda entry: (entry,),
    ) -> None:
        self._encode = encode
        self._spread = spread
        self._stages = stages
        self._parts: dict[int, _Known] = {}
        """Parts by identity; the reference keeps them alive."""
        self.by_key: dict[bytes, EncodedEntry] = {}

    def turn_to(self, parts: Sequence[Part]) -> Turn:
        """Replace the wanted parts by these.

        Their entries are known once the result has been iterated over.
        """
        new = {id(part): part for part in parts}
        # A part that was invalid may have been so because of a part that is gone.
        stale = [
            number for number, known in self._parts.items() if number not in new or known.invalid
        ]
        former = [self._parts.pop(number) for number in stale]
        of_owner = {known.part.owner: known for known in former if not known.invalid}
        gone = dict.fromkeys(entry.key for known in former for entry in known.entries).keys()
        for key in gone:
            del self.by_key[key]
        coming = {number: _Known(part) for number, part in new.items() if number not in self._parts}
        self._parts.update(coming)
        for known in coming.values():
            if (before := of_owner.get(known.part.owner)) is not None:
                known.encoded = self._encodings(before)
        return Turn(gone, self._encoded(list(coming.values())))

    def _encodings(self, known: _Known) -> dict[int, tuple[TableEntry, EncodedEntry]]:
        """Return the encoding of each entry of a part, by the entry's identity; the reference keeps
        it alive.
        """
        ordered = chain.from_iterable(
            entries for _, entries in sorted(self._by_stage(known.part), key=itemgetter(0))
        )
        return {
            id(entry): (entry, encoded)
            for entry, encoded in zip(ordered, known.entries, strict=False)
        }

    def _by_stage(self, part: Part) -> Iterator[tuple[int, list[TableEntry]]]:
        """Yield the entries of a part that can be encoded, table by table, with the stage of the
        table.
        """
        tables: dict[str, list[TableEntry]] = defaultdict(list)
        for entry in part.entries:
            for one in self._spread(entry):
                tables[one.table].append(one)
        for table, entries in tables.items():
            yield self._stages.get(table, 0), entries

    def _encoded(self, coming: Sequence[_Known]) -> Iterator[list[EncodedEntry]]:
        stages: dict[int, list[tuple[_Known, list[TableEntry]]]] = defaultdict(list)
        for known in coming:
            for stage, entries in self._by_stage(known.part):
                stages[stage].append((known, entries))
        for stage in sorted(stages):
            chunk: list[EncodedEntry] = []
            for known, entries in stages[stage]:
                for start in range(0, len(entries), _CHUNK):
                    chunk += self._take(known, entries[start : start + _CHUNK])
                    if len(chunk) >= _CHUNK:
                        yield chunk[:_CHUNK]
                        chunk = chunk[_CHUNK:]
            if chunk:
                yield chunk
        for known in coming:
            known.encoded = {}

    def _take(self, known: _Known, entries: Sequence[TableEntry]) -> list[EncodedEntry]:
        """Encode the entries that can be installed and record them."""
        try:
            if known.encoded:
                found = zip(entries, map(known.encoded.get, map(id, entries)), strict=True)
                encoded = [
                    self._encode(entry) if again is None else again[1] for entry, again in found
                ]
            else:
                encoded = list(map(self._encode, entries))
        except ValueError:
            return [good for entry in entries for good in self._take_one(known, entry)]
        by_key = {entry.key: entry for entry in encoded}
        if len(by_key) < len(encoded) or not self.by_key.keys().isdisjoint(by_key):
            return [good for entry in entries for good in self._take_one(known, entry)]
        self.by_key.update(by_key)
        known.entries += encoded
        return encoded

    def _take_one(self, known: _Known, entry: TableEntry) -> Iterator[EncodedEntry]:
        try:
            encoded = self._encode(entry)
            if encoded.key in self.by_key:
                raise ValueError(self._twice(known, encoded.key))
        except ValueError as error:
            known.invalid.append(InvalidEntry(known.part.owner, entry, str(error)))
        else:
            self.by_key[encoded.key] = encoded
            known.entries.append(encoded)
            yield encoded

    def _twice(self, known: _Known, key: bytes) -> str:
        first = next(
            k.part.owner
            for k in self._parts.values()
            if any(entry.key == key for entry in k.entries)
        )
        return f"wanted twice, by {first} and {known.part.owner}"

    @property
    def invalid(self) -> list[InvalidEntry]:
        """The invalid entries; collecting them takes time in proportion to the number of parts."""
        return [entry for known in self._parts.values() if known.invalid for entry in known.invalid]

    def owners(self, keys: Collection[bytes]) -> dict[bytes, str]:
        """Return the parts that want the entries of these keys, in time that grows with the whole
        intent.
        """
        return {
            entry.key: known.part.owner
            for known in self._parts.values()
            for entry in known.entries
            if entry.key in keys
        }


@dataclass(frozen=True, slots=True)
class Turn:
    """The step from one intent to the next: only the parts that are not the same object in both."""

    gone: AbstractSet[bytes]
    """The keys of entries of former parts, in a fixed order; new parts may want them too."""
    come: Iterator[list[EncodedEntry]]
    """Entries of new parts: each list of one stage, stages in ascending order.

    They are encoded on demand.
    """


def turned(
    turn: Turn,
    wanted: Mapping[bytes, EncodedEntry],
    held: Mapping[bytes, EncodedEntry],
    again: Collection[bytes] = (),
) -> Iterator[Chunk]:
    """Yield what brings a switch from the previous intent to that of `turn`, in the order in which
    it must be written.

    Args:
        wanted: by key; it holds what has been taken from `turn` so far.
        held: our entries on the switch, by key; changes while chunks are carried out.
        again: further keys, of entries that are not as they should be.
    """
    known = [wanted[key] for key in again if key in wanted]
    yield from _staged(
        _AGAIN, UpdateKind.INSERT, [entry for entry in known if entry.key not in held]
    )
    modifies = [entry for entry in known if entry.key in held]
    for entries in turn.come:
        inserts = []
        for entry in entries:
            there = held.get(entry.key)
            if there is None:
                inserts.append(entry)
            elif there.value != entry.value:
                modifies.append(entry)
        if inserts:
            yield Chunk((_NEW, inserts[0].stage), UpdateKind.INSERT, inserts)
    yield from _staged(_CHANGED, UpdateKind.MODIFY, modifies)
    deletes = [
        held[key]
        for key in dict.fromkeys((*turn.gone, *again))
        if key in held and key not in wanted
    ]
    yield from _staged(_GONE, UpdateKind.DELETE, deletes)
