"""Functions that generated code calls for operations that it does not contain inline."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

__all__ = ["Struct", "cell", "concatenated", "divide", "left", "modulo", "payload_sum", "right"]

SHIFT_LIMIT = 1 << 16
"""The limit of left shifts. No field is wider, so a larger shift leaves nothing of a value."""


def cell(cells: Sequence[int], index: int) -> int:
    """Return a register cell, 0 if the index is out of range."""
    return cells[index] if 0 <= index < len(cells) else 0


def divide(a: int, b: int) -> int:
    """Return the quotient of natural numbers, 0 where P4 leaves it undefined."""
    return a // b if b > 0 <= a else 0


def modulo(a: int, b: int) -> int:
    """Return the remainder of natural numbers, 0 where P4 leaves it undefined."""
    return a % b if b > 0 <= a else 0


def left(a: int, count: int) -> int:
    return a << count if 0 <= count <= SHIFT_LIMIT else 0


def right(a: int, count: int) -> int:
    return a >> count if count >= 0 else 0


def payload_sum(data: bytes, offset: int) -> int:
    """Return the bytes from ``offset`` as one number, padded to an even count: congruent to their ones' complement
    sum."""
    payload = data[offset:]
    number = int.from_bytes(payload, "big")
    return number << 8 if len(payload) & 1 else number


def concatenated(pieces: Sequence[tuple[int, int]]) -> bytes:
    """Concatenate numbers of given widths, filled up to a whole byte with zeros at the end."""
    number = bits = 0
    for value, width in pieces:
        number = number << width | value
        bits += width
    pad = -bits % 8
    return (number << pad).to_bytes((bits + pad) // 8, "big")
