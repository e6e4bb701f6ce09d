"""The difference of two sets of entries: what to write so that a switch holds what it should."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from echelon.switches.lowering.intent import FABRIC, Part, TableEntry
from echelon.switches.southbound.encoding import EncodedEntry, UpdateKind

_CHUNK = 1000
"""Number of entries encoded at a time, while a switch is at work on those before."""
_SHARED = 1 << 16
"""The number of shared entries whose encodings are kept: routes to some 10,000 hosts."""

Encode = Callable[[TableEntry], EncodedEntry]


@lru_cache(maxsize=16)
def _remembering(encode: Encode) -> Encode:
    """Return a function that does the same, and remembers what it has encoded last.

    All switches share it.
    """
    return lru_cache(_SHARED)(encode)


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
_RETRIED, _NEW, _CHANGED, _REMOVED = range(4)


def staged(
    phase: int,
    kind: UpdateKind,
    entries: Iterable[EncodedEntry],
) -> Iterator[Chunk]:
    """Yield entries stage by stage, those of later phases later."""
    stages: dict[int, list[EncodedEntry]] = defaultdict(list)
    for entry in entries:
        stages[entry.stage].append(entry)
    for stage in sorted(stages, reverse=kind is UpdateKind.DELETE):
        yield Chunk((phase, stage), kind, stages[stage])


@dataclass(frozen=True, slots=True)
class Difference:
    """Entries to insert, modify and delete, and those that others' entries block.

    The key of a blocked entry is that of someone else's.
    """

    inserts: tuple[EncodedEntry, ...] = ()
    modifies: tuple[EncodedEntry, ...] = ()
    deletes: tuple[EncodedEntry, ...] = ()
    blocked: tuple[EncodedEntry, ...] = ()

    def chunks(self) -> Iterator[Chunk]:
        """Yield chunks in the order in which they must be written."""
        yield from staged(_NEW, UpdateKind.INSERT, self.inserts)
        yield from staged(_CHANGED, UpdateKind.MODIFY, self.modifies)
        yield from staged(_REMOVED, UpdateKind.DELETE, self.deletes)


def difference(
    held: Mapping[bytes, EncodedEntry],
    wanted: Mapping[bytes, EncodedEntry],
    foreign: Collection[bytes] = (),
) -> Difference:
    """Return what brings `held` (our entries on the switch, by key) to `wanted`, in linear time.

    Others' entries, with the keys `foreign`, stay.
    """
    inserts: list[EncodedEntry] = []
    modifies: list[EncodedEntry] = []
    blocked: list[EncodedEntry] = []
    for key, entry in wanted.items():
        held_entry = held.get(key)
        if held_entry is None:
            if key in foreign:
                blocked.append(entry)
            else:
                inserts.append(entry)
        elif held_entry.value != entry.value:
            modifies.append(entry)
    deletes = [entry for key, entry in held.items() if key not in wanted]
    return Difference(
        inserts=tuple(inserts),
        modifies=tuple(modifies),
        deletes=tuple(deletes),
        blocked=tuple(blocked),
    )


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An entry of an intent that cannot be written anywhere."""

    owner: str
    entry: TableEntry
    reason: str
    job: str | None = None
    """The job that it is for; None: it is not for one job alone."""


@dataclass(eq=False, slots=True)
class _EncodedPart:
    """A part of the intent, as far as it is encoded."""

    part: Part
    sources: list[TableEntry] = field(default_factory=list)
    """Its entries that can be installed, in the order in which they are encoded: by stage."""
    entries: list[EncodedEntry] = field(default_factory=list)
    """The encodings of `sources`."""
    former: Mapping[int, tuple[TableEntry, EncodedEntry]] = field(default_factory=dict)
    """The entries of the owner's part before this one, by identity, and their encodings.

    It is empty once this part is encoded.
    """
    invalid: list[InvalidEntry] = field(default_factory=list)


class WantedEntries:
    """The entries that an intent wants on the switch, as bytes.

    It is kept from intent to intent, so that parts that are the same object as before cost nothing.
    """

    def __init__(
        self,
        encode: Encode,
        stages: Mapping[str, int],
        spread: Callable[[TableEntry], Sequence[TableEntry]] = lambda entry: (entry,),
    ) -> None:
        self._encode = encode
        self._encode_shared = _remembering(encode)
        self._spread = spread
        self._stages = stages
        self._parts: dict[int, _EncodedPart] = {}
        """Parts by identity; the reference keeps them alive."""
        self.by_key: dict[bytes, EncodedEntry] = {}

    def turn_to(self, parts: Sequence[Part]) -> Turn:
        """Replace the wanted parts by these.

        Their entries are known once the result has been iterated over.
        """
        wanted = {id(part): part for part in parts}
        former = self._drop_stale(wanted)
        former_keys: dict[bytes, None] = {}
        for part in former:
            for entry in part.entries:
                former_keys[entry.key] = None
                del self.by_key[entry.key]

        by_owner = {part.part.owner: part for part in former}
        new = []
        for identity, wanted_part in wanted.items():
            if identity in self._parts:
                continue
            encoded = _EncodedPart(wanted_part)
            before = by_owner.get(wanted_part.owner)
            if before is not None:
                pairs = zip(before.sources, before.entries, strict=True)
                # The reference to the entry keeps it alive, and with it its identity.
                encoded.former = {id(entry): (entry, done) for entry, done in pairs}
            self._parts[identity] = encoded
            new.append(encoded)
        return Turn(former_keys.keys(), self._encode_parts(new))

    def _drop_stale(self, wanted: Mapping[int, Part]) -> list[_EncodedPart]:
        """Remove and return the parts that are not wanted as they are.

        A part that was invalid may have been so because of a part that is no longer wanted.
        """
        stale = []
        for identity, part in self._parts.items():
            if identity not in wanted or part.invalid:
                stale.append(identity)
        return [self._parts.pop(identity) for identity in stale]

    def _by_stage(self, part: Part) -> Iterator[tuple[int, list[TableEntry]]]:
        """Yield the entries of a part that can be encoded, by table, with the table's stage."""
        tables: dict[str, list[TableEntry]] = defaultdict(list)
        for entry in part.entries:
            for spread in self._spread(entry):
                tables[spread.table].append(spread)
        for table, entries in tables.items():
            yield self._stages.get(table, 0), entries

    def _encode_parts(self, parts: Sequence[_EncodedPart]) -> Iterator[list[EncodedEntry]]:
        """Encode new parts stage by stage, at most `_CHUNK` entries at a time."""
        stages: dict[int, list[tuple[_EncodedPart, list[TableEntry]]]] = defaultdict(list)
        for part in parts:
            for stage, entries in self._by_stage(part.part):
                stages[stage].append((part, entries))
        for stage in sorted(stages):
            chunk: list[EncodedEntry] = []
            for part, entries in stages[stage]:
                for start in range(0, len(entries), _CHUNK):
                    chunk += self._take(part, entries[start : start + _CHUNK])
                    if len(chunk) >= _CHUNK:
                        yield chunk[:_CHUNK]
                        chunk = chunk[_CHUNK:]
            if chunk:
                yield chunk
        for part in parts:
            part.former = {}

    def _take(self, part: _EncodedPart, entries: Sequence[TableEntry]) -> list[EncodedEntry]:
        """Encode the entries that can be installed and record them."""
        try:
            encoded = self._encode_all(part, entries)
        except ValueError:
            return self._take_singly(part, entries)
        by_key = {entry.key: entry for entry in encoded}
        are_distinct = len(by_key) == len(encoded)
        if not are_distinct or not self.by_key.keys().isdisjoint(by_key):
            return self._take_singly(part, entries)
        self.by_key.update(by_key)
        part.sources += entries
        part.entries += encoded
        return encoded

    def _encode_all(self, part: _EncodedPart, entries: Sequence[TableEntry]) -> list[EncodedEntry]:
        # This is the inner loop of every change: most of the time of an encoding passes here.
        encode = self._encode
        if part.part.owner == FABRIC:
            encode = self._encode_shared
        if not part.former:
            return list(map(encode, entries))
        former = map(part.former.get, map(id, entries))
        pairs = zip(entries, former, strict=True)
        return [encode(entry) if before is None else before[1] for entry, before in pairs]

    def _take_singly(self, part: _EncodedPart, entries: Sequence[TableEntry]) -> list[EncodedEntry]:
        """Encode entry by entry, and record those that cannot be installed as invalid."""
        valid = []
        for entry in entries:
            try:
                encoded = self._encode(entry)
                if encoded.key in self.by_key:
                    raise ValueError(self._twice(part, encoded.key))
            except ValueError as error:
                invalid = InvalidEntry(part.part.owner, entry, str(error), part.part.job)
                part.invalid.append(invalid)
                continue
            self.by_key[encoded.key] = encoded
            part.sources.append(entry)
            part.entries.append(encoded)
            valid.append(encoded)
        return valid

    def _twice(self, part: _EncodedPart, key: bytes) -> str:
        owners = list(self.owners({key}).values())
        return f"wanted twice, by {owners[0]} and {part.part.owner}"

    @property
    def invalid(self) -> list[InvalidEntry]:
        """The invalid entries; collecting them takes time in proportion to the number of parts."""
        invalid: list[InvalidEntry] = []
        for part in self._parts.values():
            invalid += part.invalid
        return invalid

    def owners(self, keys: Collection[bytes]) -> dict[bytes, str]:
        """Return the owners of the parts that want the entries of these keys."""
        return {key: part.owner for key, (part, _) in self.sources(keys).items()}

    def sources(self, keys: Collection[bytes]) -> dict[bytes, tuple[Part, TableEntry]]:
        """Return the entries of these keys as the intent has them, each with its part.

        Takes time that grows with the whole intent.
        """
        sources = {}
        for part in self._parts.values():
            for source, entry in zip(part.sources, part.entries, strict=True):
                if entry.key in keys:
                    sources[entry.key] = (part.part, source)
        return sources


@dataclass(frozen=True, slots=True)
class Turn:
    """The step from one intent to the next: only the parts that are not the same object in both."""

    former: AbstractSet[bytes]
    """The keys of entries of former parts, in a fixed order; new parts may want them too."""
    new: Iterator[list[EncodedEntry]]
    """Entries of new parts: each list of one stage, stages in ascending order.

    They are encoded on demand.
    """


def turned(
    turn: Turn,
    wanted: Mapping[bytes, EncodedEntry],
    held: Mapping[bytes, EncodedEntry],
    retried: Collection[bytes] = (),
) -> Iterator[Chunk]:
    """Yield what brings a switch from the previous intent to that of `turn`.

    Chunks come in the order in which they must be written.

    Args:
        wanted: by key; it holds what has been taken from `turn` so far.
        held: our entries on the switch, by key; changes while chunks are carried out.
        retried: further keys, of entries that are not as they should be.
    """
    inserts: list[EncodedEntry] = []
    modifies: list[EncodedEntry] = []
    # Decided before the inserts are carried out, after which they are held too.
    for key in retried:
        if key in wanted:
            changes = modifies if key in held else inserts
            changes.append(wanted[key])
    yield from staged(_RETRIED, UpdateKind.INSERT, inserts)

    for entries in turn.new:
        inserts = []
        for entry in entries:
            held_entry = held.get(entry.key)
            if held_entry is None:
                inserts.append(entry)
            elif held_entry.value != entry.value:
                modifies.append(entry)
        if inserts:
            yield Chunk((_NEW, inserts[0].stage), UpdateKind.INSERT, inserts)
    yield from staged(_CHANGED, UpdateKind.MODIFY, modifies)

    candidates = dict.fromkeys((*turn.former, *retried))
    deletes = [held[key] for key in candidates if key in held and key not in wanted]
    yield from staged(_REMOVED, UpdateKind.DELETE, deletes)
