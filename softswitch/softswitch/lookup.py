"""Indexes of table entries, one class per kind of table.

The controller changes them and the pipeline searches them.

A lookup yields an entry's ``result`` (see :mod:`softswitch.tables`) or None.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, Protocol

from . import ir
from .numerals import brief
from .stateful import MeterCell

Call = tuple[Any, ...]
KeyElement = int | tuple[int, int] | None
"""One element of a key.

Exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high). None matches
everything.
"""

Key = tuple[KeyElement, ...]

_RANK = 40
"""The number of bits below the priority in a rank.

Among equal priorities the entry inserted first wins.
"""

_FIRST_RANK = 1 << _RANK
"""The rank of the first entry of priority 0.

All entries have that priority where priorities do not count.
"""


class Entry:
    """An entry as the controller wrote it.

    It has its direct counter, its meter and the time of its last use.
    """

    __slots__ = (
        "action",
        "args",
        "bytes",
        "group",
        "handle",
        "hit_ns",
        "key",
        "member",
        "meter",
        "packets",
        "priority",
        "rank",
        "result",
    )

    def __init__(
        self,
        handle: int,
        key: Key,
        priority: int,
        meter: MeterCell,
        action: str | None = None,
        args: tuple[int, ...] = (),
    ) -> None:
        self.handle = handle
        self.key = key
        self.priority = priority
        self.rank = (priority + 1 << _RANK if priority else _FIRST_RANK) - handle
        self.action = action
        self.args = args
        self.member: int | None = None
        self.group: int | None = None
        self.packets = 0
        self.bytes = 0
        self.hit_ns = 0
        self.meter = meter
        self.result: Call = ()


class MatchField:
    """A match field, which checks elements of a key and brings them to one form."""

    __slots__ = ("full", "kind", "name", "shift", "width")

    def __init__(self, key: ir.Key, shift: int) -> None:
        self.name = key.name
        self.kind = key.match
        self.width = key.width
        self.full = (1 << key.width) - 1
        self.shift = shift

    def normal(self, element: KeyElement) -> KeyElement:
        """Return the element in the form of :meth:`Table.entries`.

        Raise ValueError with the reason.
        """
        if self.kind == "exact":
            if not isinstance(element, int):
                raise ValueError(f"an exact match needs an integer, not {element!r}")
            return self._fitting(element)
        if element is None:
            return (0, self.full) if self.kind == "range" else (0, 0)
        if isinstance(element, int):
            value = self._fitting(element)
            if self.kind == "range":
                return value, value
            return value, self.width if self.kind == "lpm" else self.full
        if not _is_pair(element):
            raise ValueError(
                f"a match of kind {self.kind} needs a pair of integers, not {element!r}"
            )
        first = self._fitting(element[0])
        second = element[1]
        if self.kind == "lpm":
            if not 0 <= second <= self.width:
                raise ValueError(f"prefix length {second} is not in 0..{self.width}")
            if first & (self.full >> second):
                raise ValueError(f"{first:#x} has bits set behind its prefix of {second} bits")
        elif self.kind == "ternary":
            self._fitting(second)
            if first & ~second:
                raise ValueError(f"{first:#x} has bits set outside its mask {second:#x}")
        else:
            self._fitting(second)
            if first > second:
                raise ValueError(f"range {brief(first)}..{brief(second)} is empty")
        return first, second

    def _fitting(self, value: int) -> int:
        if not 0 <= value <= self.full:
            raise ValueError(f"{brief(value)} does not fit {self.width} bits")
        return value


def _is_pair(element: object) -> bool:
    if not isinstance(element, tuple) or len(element) != 2:
        return False
    return all(isinstance(number, int) for number in element)


class ExactIndex:
    """An index for tables whose fields are all exact: one dictionary."""

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self.results: dict[Any, Call] = {}
        self._single = len(fields) == 1

    def add(self, entry: Entry) -> None:
        key = entry.key
        self.results[key[0] if self._single else key] = entry.result

    def add_all(self, entries: Iterable[Entry]) -> None:
        results = self.results
        single = self._single
        for entry in entries:
            key = entry.key
            results[key[0] if single else key] = entry.result

    def remove(self, entry: Entry) -> None:
        del self.results[entry.key[0] if self._single else entry.key]


class PrefixIndex:
    """An index for one lpm field among exact ones.

    It has a dictionary per prefix length, longest first, over the packed key's upper bits. The lpm
    field is the lowest of the packed key.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        kinds = [field.kind for field in fields]
        self._position = kinds.index("lpm")
        self._width = fields[self._position].width
        self._exact = [(i, f.shift) for i, f in enumerate(fields) if f.kind != "lpm"]
        self._levels: dict[int, dict[int, Call]] = {}
        self._order: list[tuple[int, Callable[[int], Call | None]]] = []

    def _place(self, entry: Entry) -> tuple[int, int]:
        key: tuple[Any, ...] = entry.key
        packed, length = key[self._position]
        for i, shift in self._exact:
            packed |= key[i] << shift
        wildcard_bits = self._width - length
        return wildcard_bits, packed >> wildcard_bits

    def add(self, entry: Entry) -> None:
        shift, value = self._place(entry)
        if shift not in self._levels:
            self._levels[shift] = {}
            self._order[:] = [(s, self._levels[s].get) for s in sorted(self._levels)]
        self._levels[shift][value] = entry.result

    def add_all(self, entries: Iterable[Entry]) -> None:
        if self._exact:
            for entry in entries:
                self.add(entry)
            return
        levels = self._levels
        width = self._width
        for entry in entries:
            key: tuple[Any, ...] = entry.key
            value, length = key[0]
            wildcard_bits = width - length
            level = levels.get(wildcard_bits)
            if level is None:
                self.add(entry)
            else:
                level[value >> wildcard_bits] = entry.result

    def remove(self, entry: Entry) -> None:
        shift, value = self._place(entry)
        del self._levels[shift][value]
        if not self._levels[shift]:
            del self._levels[shift]
            self._order[:] = [item for item in self._order if item[0] != shift]

    def lookup(self, key: int) -> Call | None:
        for shift, get in self._order:
            result = get(key >> shift)
            if result is not None:
                return result
        return None


class _Group:
    """The entries of one mask by masked value, best first.

    ``rank`` is not below the rank of any of them.
    """

    __slots__ = ("rank", "slots")

    def __init__(self) -> None:
        self.rank = -1
        self.slots: dict[int, list[Entry]] = {}


def _packing(
    fields: Sequence[MatchField], positions: Sequence[int]
) -> Callable[[tuple[Any, ...]], tuple[int, int]]:
    """Return a function from a key to (mask, masked value) of its fields at `positions`.

    None of them is a range.
    """
    parts: list[tuple[int, str, int, int]] = []
    for i in positions:
        field = fields[i]
        parts.append((i, field.kind, field.shift, field.full))

    def place(key: tuple[Any, ...]) -> tuple[int, int]:
        mask = value = 0
        for i, kind, shift, full in parts:
            if kind == "exact":
                part = key[i]
                bits = full
            elif kind == "ternary":
                part, bits = key[i]
            else:
                part, length = key[i]
                bits = full ^ (full >> length)
            value |= part << shift
            mask |= bits << shift
        return mask, value

    return place


class MaskIndex:
    """An index for ternary fields: a dictionary per distinct mask (tuple space search).

    The mask of the best entry comes first.

    The first lookup after a change that affects the order of the masks rebuilds that order.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self._place = _packing(fields, range(len(fields)))
        self._groups: dict[int, _Group] = {}
        self._order: list[tuple[int, int, Callable[[int], list[Entry] | None]]] = []
        self._stale = False

    def add(self, entry: Entry) -> None:
        mask, value = self._place(entry.key)
        group = self._groups.get(mask)
        if group is None:
            group = self._groups[mask] = _Group()
        slot = group.slots.get(value)
        if slot is None:
            group.slots[value] = [entry]
        elif entry not in slot:
            insort(slot, entry, key=_best_first)
        if entry.rank > group.rank:
            group.rank = entry.rank
            self._stale = True

    def add_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.add(entry)

    def remove(self, entry: Entry) -> None:
        mask, value = self._place(entry.key)
        group = self._groups[mask]
        group.slots[value].remove(entry)
        if not group.slots[value]:
            del group.slots[value]
        if not group.slots:
            del self._groups[mask]
            self._stale = True

    def lookup(self, key: int) -> Call | None:
        if self._stale:
            order = [(group.rank, mask, group.slots.get) for mask, group in self._groups.items()]
            self._order = sorted(order, key=itemgetter(0), reverse=True)
            self._stale = False
        winner: Entry | None = None
        best = -1
        for rank, mask, get in self._order:
            if rank < best:
                break
            slot = get(key & mask)
            if slot is not None and slot[0].rank > best:
                winner = slot[0]
                best = winner.rank
        return None if winner is None else winner.result


def _best_first(entry: Entry) -> int:
    return -entry.rank


class _Segments:
    """Entries that differ in one range field, whose values are cut at every end of a range.

    Each segment has its best entry.

    ``bounds`` are the first values of all segments but the first. A new entry cuts the segments
    that it meets. The first lookup after a deletion cuts all of them again.
    """

    __slots__ = ("_stale", "bounds", "entries", "position", "winners")

    def __init__(self, position: int) -> None:
        self.position = position
        self.entries: dict[int, Entry] = {}
        self.bounds: list[int] = []
        self.winners: list[Entry | None] = [None]
        self._stale = False

    def add(self, entry: Entry) -> None:
        """Add an entry. Adding a known entry again leaves its place unchanged."""
        if entry.handle in self.entries:
            return
        self.entries[entry.handle] = entry
        if self._stale:
            return
        low, high = self._ends(entry)
        winners = self.winners
        first = self._cut(low)
        end = self._cut(high + 1)
        for i in range(first, end):
            best = winners[i]
            if best is None or best.rank < entry.rank:
                winners[i] = entry

    def remove(self, entry: Entry) -> None:
        del self.entries[entry.handle]
        self._stale = True

    def best(self, value: int) -> Entry | None:
        if self._stale:
            self._refresh()
        return self.winners[bisect_right(self.bounds, value)]

    def _ends(self, entry: Entry) -> tuple[int, int]:
        element = entry.key[self.position]
        assert isinstance(element, tuple)
        return element

    def _cut(self, value: int) -> int:
        """Let a segment begin at `value`; return its position."""
        if value == 0:
            return 0
        bounds = self.bounds
        i = bisect_left(bounds, value)
        if i == len(bounds) or bounds[i] != value:
            bounds.insert(i, value)
            self.winners.insert(i + 1, self.winners[i])
        return i + 1

    def _refresh(self) -> None:
        """Sweep over all ends.

        The heap holds the entries begun so far, best first, and drops ended ones late.
        """
        starts: dict[int, list[Entry]] = {}
        points = {0}
        for entry in self.entries.values():
            low, high = self._ends(entry)
            starts.setdefault(low, []).append(entry)
            points |= {low, high + 1}
        begun: list[tuple[int, int, Entry]] = []
        self.bounds = sorted(points)[1:]
        self.winners = []
        for point in (0, *self.bounds):
            for entry in starts.get(point, ()):
                _, high = self._ends(entry)
                heappush(begun, (-entry.rank, high, entry))
            while begun and begun[0][1] < point:
                heappop(begun)
            self.winners.append(begun[0][2] if begun else None)
        self._stale = False


class RangeIndex:
    """An index for a range field among fields of other kinds.

    It has segments per masked value of the others.

    With several range fields, the last one is cut into segments and the others are compared entry
    by entry.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self._ranges = [i for i, field in enumerate(fields) if field.kind == "range"]
        positions = [i for i in range(len(fields)) if i not in self._ranges]
        self._place = _packing(fields, positions)
        self._groups: dict[int, dict[int, _Segments | _Boxes]] = {}
        self._order: list[tuple[int, Callable[[int], _Segments | _Boxes | None]]] = []

    def _new(self) -> _Segments | _Boxes:
        if len(self._ranges) == 1:
            return _Segments(self._ranges[0])
        return _Boxes(tuple(self._ranges))

    def add(self, entry: Entry) -> None:
        mask, value = self._place(entry.key)
        if mask not in self._groups:
            self._groups[mask] = {}
            self._order = [(m, group.get) for m, group in self._groups.items()]
        group = self._groups[mask]
        if value not in group:
            group[value] = self._new()
        group[value].add(entry)

    def add_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.add(entry)

    def remove(self, entry: Entry) -> None:
        mask, value = self._place(entry.key)
        group = self._groups[mask]
        group[value].remove(entry)
        if not group[value].entries:
            del group[value]
        if not group:
            del self._groups[mask]
            self._order = [(m, g.get) for m, g in self._groups.items()]

    def lookup(self, key: int, *values: int) -> Call | None:
        winner: Entry | None = None
        for mask, get in self._order:
            slot = get(key & mask)
            if slot is not None:
                entry = slot.best(*values)
                if entry is not None and (winner is None or entry.rank > winner.rank):
                    winner = entry
        return None if winner is None else winner.result


class _Boxes:
    """Entries with several range fields, compared one by one, best first."""

    __slots__ = ("_order", "entries", "positions")

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.positions = positions
        self.entries: dict[int, Entry] = {}
        self._order: list[tuple[int, tuple[tuple[int, int], ...], Entry]] = []
        """(minus the rank, ranges, entry), ascending."""

    def add(self, entry: Entry) -> None:
        """Add an entry. Adding a known entry again leaves its place unchanged."""
        if entry.handle not in self.entries:
            self.entries[entry.handle] = entry
            key: tuple[Any, ...] = entry.key
            ranges = tuple(key[i] for i in self.positions)
            insort(self._order, (-entry.rank, ranges, entry))

    def remove(self, entry: Entry) -> None:
        del self.entries[entry.handle]
        del self._order[bisect_left(self._order, -entry.rank, key=itemgetter(0))]

    def best(self, *values: int) -> Entry | None:
        for _, ranges, entry in self._order:
            for (low, high), value in zip(ranges, values, strict=True):
                if not low <= value <= high:
                    break
            else:
                return entry
        return None


Index = ExactIndex | PrefixIndex | MaskIndex | RangeIndex


class EntryIndex(Protocol):
    """The part of an index that tables use."""

    def add(self, entry: Entry) -> None:
        """Add an entry, or take note of its new result."""

    def add_all(self, entries: Iterable[Entry]) -> None: ...
    def remove(self, entry: Entry) -> None: ...


def key_order(spec: ir.TableSpec) -> list[int]:
    """Return the positions of the fields in the packed key, highest first.

    An lpm field is the lowest; ranges are not packed.
    """
    positions = [i for i, key in enumerate(spec.keys) if key.match != "range"]
    prefixes = [i for i in positions if spec.keys[i].match == "lpm"]
    return [i for i in positions if i not in prefixes] + prefixes


def match_fields(spec: ir.TableSpec) -> tuple[MatchField, ...]:
    shifts = dict.fromkeys(range(len(spec.keys)), 0)
    total = 0
    for i in reversed(key_order(spec)):
        shifts[i] = total
        total += spec.keys[i].width
    fields = [MatchField(key, shifts[i]) for i, key in enumerate(spec.keys)]
    return tuple(fields)


def make_index(match: str, fields: tuple[MatchField, ...]) -> Index:
    kinds = {field.kind for field in fields}
    if "range" in kinds:
        return RangeIndex(fields)
    if match in ("ternary", "range"):
        return MaskIndex(fields)
    if "lpm" in kinds:
        return PrefixIndex(fields)
    return ExactIndex(fields)
