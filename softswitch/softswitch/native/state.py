"""Python's views of a native switch's registers, meters, value sets and replicas."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal

from softswitch.stateful import Meter, MeterConfig
from softswitch.valuesets import ValueElement, ValueSet

from .entries import NativeMeterCell
from .keys import joined, split
from .memory import COUNTERS, NONE, PUT, REMOVE, STORE, VALUES, Memory


class NativeCells:
    """An array's numbers of ``words`` words each, from word ``first`` on.

    They are read from memory and written by commands, so that a batch writes them along with
    everything else.
    """

    def __init__(
        self,
        memory: Memory,
        part: int,
        number: int,
        first: int,
        size: int,
        words: int,
    ) -> None:
        kind: Literal["q", "Q"] = "q" if part == COUNTERS else "Q"
        end = first + size * words
        self._view = memory.part(part, number, kind, end)[first:]
        self._memory = memory
        self._place = part, number
        self._first = first
        self._size = size
        self._words = words

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        if self._words == 1:
            return iter(self._view)
        return (self[i] for i in range(self._size))

    def __getitem__(self, index: int) -> int:
        if self._words == 1:
            return self._view[index]
        start = index * self._words
        return joined(self._view[start : start + self._words])

    def __setitem__(self, index: int, value: int) -> None:
        if not 0 <= index < self._size:
            raise IndexError(index)
        place = self._first + index * self._words
        self._memory.send(STORE, *self._place, place, *split(value, self._words))


class NativeMeter(Meter):
    """An array of meters in native memory."""

    __slots__ = ("_memory", "_number")

    def __init__(
        self,
        memory: Memory,
        number: int,
        meter: Meter,
    ) -> None:
        super().__init__(meter.name, meter.size, meter.unit)
        self._memory = memory
        self._number = number

    def configure(self, index: int, config: MeterConfig | None) -> None:
        self._check(index)
        cell = NativeMeterCell(self._memory, 0, self._number, index)
        cell.configure(config)
        if config is None:
            self._cells.pop(index, None)
        else:
            self._cells[index] = cell


class Replicas(UserDict[int, Any]):
    """Multicast groups or clone sessions by number.

    ``words`` turns each into the words of a native entry.
    """

    def __init__(
        self,
        memory: Memory,
        table: int,
        words: Callable[[Any], Sequence[int]],
    ) -> None:
        super().__init__()
        self._memory = memory
        self._table = table
        self._words = words

    def __setitem__(self, number: int, value: Any) -> None:
        self._memory.send(PUT, self._table, 0, 0, 0, 0, NONE, number, *self._words(value))
        super().__setitem__(number, value)

    def __delitem__(self, number: int) -> None:
        super().__delitem__(number)
        self._memory.send(REMOVE, self._table, 0, number, NONE)


class NativeValueSet(ValueSet):
    """A value set that is sent whole whenever it changes.

    ``parts`` is how many values its members have.
    """

    def __init__(
        self,
        memory: Memory,
        number: int,
        parts: int,
    ) -> None:
        super().__init__()
        self._memory = memory
        self._number = number
        self._parts = parts

    def add(self, member: tuple[ValueElement, ...]) -> None:
        super().add(member)
        self._tell()

    def discard(self, member: object) -> None:
        super().discard(member)
        self._tell()

    def remove(self, member: tuple[ValueElement, ...]) -> None:
        super().remove(member)
        self._tell()

    def clear(self) -> None:
        super().clear()
        self._tell()

    def update(self, *members: Any) -> None:
        super().update(*members)
        self._tell()

    def _tell(self) -> None:
        words: list[int] = []
        for member in self:
            parts = [part for part in map(_element, member) if part is not None]
            # A member with an element that no value of a word fits is never found.
            if len(parts) == len(member) == self._parts:
                words += chain.from_iterable(parts)
        self._memory.send(VALUES, self._number, self._parts, *words)


def _element(element: ValueElement) -> tuple[int, int, int, int] | None:
    """Return (value, mask, low, high), None for what no value of a word fits."""
    match element:
        case None:
            return 0, 0, 0, NONE
        case int():
            if 0 <= element <= NONE:
                return (element, NONE, 0, NONE)
            return None
        case range():
            low = max(element.start, 0)
            high = min(element.stop - 1, NONE)
            return (0, 0, low, high) if low <= high else None
        case (wanted, cared):
            return wanted & NONE, cared & NONE, 0, NONE
