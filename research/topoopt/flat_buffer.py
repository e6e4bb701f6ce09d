"""The part of FlatBuffers' format that task graphs need: tables, their fields, and vectors.

A table begins with the distance back to its list of offsets, which has one for each field; 0 stands
for a field that is absent (FlatBuffers documentation, Internals). All numbers are little-endian.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import unpack_from


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a buffer; fields count from 0.

    Offsets that leave the buffer raise `struct.error`.
    """

    buffer: bytes
    start: int

    @classmethod
    def root(cls, buffer: bytes) -> Table:
        """Return the table that the buffer is."""
        return cls(buffer, *unpack_from("<I", buffer, 0))

    def number(
        self,
        field: int,
        form: str,
        absent: float = 0,
    ) -> float:
        """Return the number of a field, whose `form` is that of `struct`."""
        place = self._place(field)
        return unpack_from(f"<{form}", self.buffer, place)[0] if place else absent  # type: ignore[no-any-return]

    def integer(self, field: int, form: str) -> int:
        """Return the integer of a field."""
        return int(self.number(field, form))

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a vector of integers of 64 bits."""
        begin, count = self._vector(field)
        return unpack_from(f"<{count}Q", self.buffer, begin)

    def tables(self, field: int) -> tuple[Table, ...]:
        """Return a vector of tables."""
        begin, count = self._vector(field)
        offsets = unpack_from(f"<{count}I", self.buffer, begin)
        tables = []
        for place, offset in enumerate(offsets):
            # Each offset counts from where it stands.
            start = begin + 4 * place + offset
            tables.append(Table(self.buffer, start))
        return tuple(tables)

    def _place(self, field: int) -> int:
        (back,) = unpack_from("<i", self.buffer, self.start)
        offsets = self.start - back
        (length,) = unpack_from("<H", self.buffer, offsets)
        entry = 4 + 2 * field
        if entry >= length:
            return 0
        (offset,) = unpack_from("<H", self.buffer, offsets + entry)
        return self.start + offset if offset else 0

    def _vector(self, field: int) -> tuple[int, int]:
        place = self._place(field)
        if not place:
            return 0, 0
        (offset,) = unpack_from("<I", self.buffer, place)
        begin = place + offset
        (count,) = unpack_from("<I", self.buffer, begin)
        return begin + 4, count
