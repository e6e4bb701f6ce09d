"""How entries are found: one index per kind of table, changed by the controller and searched by the pipeline.

A lookup yields an entry's ``result`` (see :mod:`softswitch.tables`) or None.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from . import ir
from .stateful import MeterCell

Call = tuple[Any, ...]
KeyElement = int | tuple[int, int] | None
"""exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high); None matches everything."""

_RANK = 40
"""Bits below the priority in a rank: among equal priorities the entry inserted first wins."""


class Entry:
    """An entry as the controller wrote it, with its direct counter, meter and time of last use."""

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

    def __init__(self, handle: int, key: tuple[KeyElement, ...], priority: int) -> None:
        self.handle = handle
        self.key = key
        self.priority = priority
        self.rank = (priority + 1 << _RANK) - handle
        self.action: str | None = None
        self.args: tuple[int, ...] = ()
        self.member: int | None = None
        self.group: int | None = None
        self.packets = 0
        self.bytes = 0
        self.hit_ns = 0
        self.meter = MeterCell()
        self.result: Call = ()


class MatchField:
    """A match field: how an element of it is checked and brought to one form."""

    __slots__ = ("full", "kind", "name", "shift", "width")

    def __init__(self, key: ir.Key, shift: int) -> None:
        self.name = key.name
        self.kind = key.match
        self.width = key.width
        self.full = (1 << key.width) - 1
        self.shift = shift

    def normal(self, element: KeyElement) -> KeyElement:
        """The element as :meth:`Table.entries` gives it back. Raises ValueError with the reason."""
        if self.kind == "exact":
            if not isinstance(element, int):
                raise ValueError(f"an exact match needs an integer, not {element!r}")
            return self._fitting(element)
        if element is None:
            return {"lpm": (0, 0), "ternary": (0, 0), "range": (0, self.full)}[self.kind]
        if isinstance(element, int):
            value = self._fitting(element)
            return {"lpm": (value, self.width), "ternary": (value, self.full), "range": (value, value)}[self.kind]
        if not (isinstance(element, tuple) and len(element) == 2 and all(isinstance(x, int) for x in element)):
            raise ValueError(f"a match of kind {self.kind} needs a pair of integers, not {element!r}")
        first, second = self._fitting(element[0]), element[1]
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
                raise ValueError(f"range {first}..{second} is empty")
        return first, second

    def _fitting(self, value: int) -> int:
        if not 0 <= value <= self.full:
            raise ValueError(f"{value} does not fit {self.width} bits")
        return value

    def masked(self, element: KeyElement) -> tuple[int, int]:
        """(value, mask) of an element that is not a range, in the packed key's position."""
        if isinstance(element, tuple):
            value, mask = element
            if self.kind == "lpm":
                mask = self.full ^ (self.full >> mask)
        else:
            assert element is not None
            value, mask = element, self.full
        return value << self.shift, mask << self.shift


class ExactIndex:
    """All fields exact: one dictionary."""

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self.results: dict[Any, Call] = {}
        self._single = len(fields) == 1

    def _key(self, entry: Entry) -> Any:
        return entry.key[0] if self._single else entry.key

    def add(self, entry: Entry) -> None:
        self.results[self._key(entry)] = entry.result

    def remove(self, entry: Entry) -> None:
        del self.results[self._key(entry)]


class PrefixIndex:
    """One lpm field, the others exact: a dictionary per prefix length, longest first, over the packed key's upper bits.

    The lpm field is the lowest of the packed key.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self._fields = fields
        self._position = next(i for i, f in enumerate(fields) if f.kind == "lpm")
        self._levels: dict[int, dict[int, Call]] = {}
        self._order: list[tuple[int, Callable[[int], Call | None]]] = []

    def _place(self, entry: Entry) -> tuple[int, int]:
        element = entry.key[self._position]
        assert isinstance(element, tuple)
        shift = self._fields[self._position].width - element[1]
        packed = sum(f.masked(e)[0] for f, e in zip(self._fields, entry.key, strict=True))
        return shift, packed >> shift

    def add(self, entry: Entry) -> None:
        shift, value = self._place(entry)
        if shift not in self._levels:
            self._levels[shift] = {}
            self._order[:] = [(s, self._levels[s].get) for s in sorted(self._levels)]
        self._levels[shift][value] = entry.result

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
    """The entries of one mask: by masked value, best first. ``rank`` is not below that of any of them."""

    __slots__ = ("rank", "slots")

    def __init__(self) -> None:
        self.rank = -1
        self.slots: dict[int, list[Entry]] = {}


class MaskIndex:
    """Ternary fields: a dictionary per distinct mask (tuple space search), the mask of the best entry first.

    The order of the masks is rebuilt at the first lookup after a change that affects it.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self._fields = fields
        self._groups: dict[int, _Group] = {}
        self._order: list[tuple[int, int, Callable[[int], list[Entry] | None]]] = []
        self._stale = False

    def _place(self, entry: Entry) -> tuple[int, int]:
        packed = [f.masked(e) for f, e in zip(self._fields, entry.key, strict=True)]
        return sum(mask for _, mask in packed), sum(value for value, _ in packed)

    def add(self, entry: Entry) -> None:
        mask, value = self._place(entry)
        group = self._groups.setdefault(mask, _Group())
        slot = group.slots.setdefault(value, [])
        if entry not in slot:
            slot.append(entry)
            slot.sort(key=_worst_first, reverse=True)
        if entry.rank > group.rank:
            group.rank = entry.rank
            self._stale = True

    def remove(self, entry: Entry) -> None:
        mask, value = self._place(entry)
        group = self._groups[mask]
        group.slots[value].remove(entry)
        if not group.slots[value]:
            del group.slots[value]
        if not group.slots:
            del self._groups[mask]
            self._stale = True

    def lookup(self, key: int) -> Call | None:
        if self._stale:
            ordered = sorted(self._groups.items(), key=lambda item: item[1].rank, reverse=True)
            self._order = [(group.rank, mask, group.slots.get) for mask, group in ordered]
            self._stale = False
        found: Entry | None = None
        best = -1
        for rank, mask, get in self._order:
            if rank < best:
                break
            slot = get(key & mask)
            if slot is not None and slot[0].rank > best:
                found = slot[0]
                best = found.rank
        return None if found is None else found.result


def _worst_first(entry: Entry) -> int:
    return entry.rank


class _Segments:
    """Entries that differ in one range field: the field's values cut at every end of a range, each with its best entry.

    Cut anew at the first lookup after a change. ``bounds`` are the first values of all segments but the first.
    """

    __slots__ = ("bounds", "entries", "position", "stale", "winners")

    def __init__(self, position: int) -> None:
        self.position = position
        self.entries: dict[int, Entry] = {}
        self.bounds: list[int] = []
        self.winners: list[Entry | None] = [None]
        self.stale: list[bool] = []

    def refresh(self) -> None:
        starts: dict[int, list[Entry]] = {}
        ends: dict[int, list[Entry]] = {}
        for entry in self.entries.values():
            element = entry.key[self.position]
            assert isinstance(element, tuple)
            starts.setdefault(element[0], []).append(entry)
            ends.setdefault(element[1] + 1, []).append(entry)
        active: dict[int, Entry] = {}
        bounds: list[int] = []
        winners: list[Entry | None] = [None]
        for point in sorted(starts.keys() | ends.keys()):
            for entry in ends.get(point, ()):
                del active[entry.handle]
            for entry in starts.get(point, ()):
                active[entry.handle] = entry
            winner = max(active.values(), key=_worst_first) if active else None
            if point == 0:
                winners[-1] = winner
            else:
                bounds.append(point)
                winners.append(winner)
        self.bounds[:] = bounds
        self.winners[:] = winners
        self.stale.clear()

    def best(self, value: int) -> Entry | None:
        if self.stale:
            self.refresh()
        return self.winners[bisect_right(self.bounds, value)]


class RangeIndex:
    """A range field among fields of other kinds: segments per masked value of the others.

    With several range fields, the last one is cut into segments and the others are compared entry by entry.
    """

    def __init__(self, fields: Sequence[MatchField]) -> None:
        self._fields = fields
        self._ranges = [i for i, f in enumerate(fields) if f.kind == "range"]
        self._others = [i for i, f in enumerate(fields) if f.kind != "range"]
        self._groups: dict[int, dict[int, _Segments | _Boxes]] = {}
        self._order: list[tuple[int, Callable[[int], _Segments | _Boxes | None]]] = []

    def _place(self, entry: Entry) -> tuple[int, int]:
        packed = [self._fields[i].masked(entry.key[i]) for i in self._others]
        return sum(mask for _, mask in packed), sum(value for value, _ in packed)

    def _new(self) -> _Segments | _Boxes:
        return _Segments(self._ranges[0]) if len(self._ranges) == 1 else _Boxes(tuple(self._ranges))

    def add(self, entry: Entry) -> None:
        mask, value = self._place(entry)
        if mask not in self._groups:
            self._groups[mask] = {}
            self._order = [(m, group.get) for m, group in self._groups.items()]
        group = self._groups[mask]
        if value not in group:
            group[value] = self._new()
        group[value].entries[entry.handle] = entry
        group[value].stale.append(True)

    def remove(self, entry: Entry) -> None:
        mask, value = self._place(entry)
        group = self._groups[mask]
        del group[value].entries[entry.handle]
        group[value].stale.append(True)
        if not group[value].entries:
            del group[value]
        if not group:
            del self._groups[mask]
            self._order = [(m, g.get) for m, g in self._groups.items()]

    def lookup(self, key: int, *values: int) -> Call | None:
        found: Entry | None = None
        for mask, get in self._order:
            slot = get(key & mask)
            if slot is not None:
                entry = slot.best(*values)
                if entry is not None and (found is None or entry.rank > found.rank):
                    found = entry
        return None if found is None else found.result


class _Boxes:
    """Entries with several range fields, compared one by one, best first."""

    __slots__ = ("_order", "entries", "positions", "stale")

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.positions = positions
        self.entries: dict[int, Entry] = {}
        self.stale: list[bool] = []
        self._order: list[tuple[tuple[tuple[int, int], ...], Entry]] = []

    def best(self, *values: int) -> Entry | None:
        if self.stale:
            ordered = sorted(self.entries.values(), key=_worst_first, reverse=True)
            self._order = [(tuple(e.key[i] for i in self.positions), e) for e in ordered]  # type: ignore[misc]
            self.stale.clear()
        for ranges, entry in self._order:
            if all(low <= value <= high for (low, high), value in zip(ranges, values, strict=True)):
                return entry
        return None


Index = ExactIndex | PrefixIndex | MaskIndex | RangeIndex


def key_order(spec: ir.Table) -> list[int]:
    """Positions of the fields in the packed key, highest first; an lpm field is the lowest, ranges are not packed."""
    positions = [i for i, key in enumerate(spec.keys) if key.match != "range"]
    return sorted(positions, key=lambda i: spec.keys[i].match == "lpm")


def match_fields(spec: ir.Table) -> tuple[MatchField, ...]:
    shifts = dict.fromkeys(range(len(spec.keys)), 0)
    total = 0
    for i in reversed(key_order(spec)):
        shifts[i] = total
        total += spec.keys[i].width
    return tuple(MatchField(key, shifts[i]) for i, key in enumerate(spec.keys))


def make_index(match: str, fields: tuple[MatchField, ...]) -> Index:
    kinds = {field.kind for field in fields}
    if "range" in kinds:
        return RangeIndex(fields)
    if match in ("ternary", "range"):
        return MaskIndex(fields)
    return PrefixIndex(fields) if "lpm" in kinds else ExactIndex(fields)
