"""Fields of protobuf messages (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class DamagedMessageError(ValueError):
    """An error in bytes that are not such a message."""


class Field(NamedTuple):
    """A field: a number if its wire type is `VARINT`, otherwise bytes."""

    number: int
    wire: int
    value: int | bytes


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise DamagedMessageError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & (2**64 - 1), position


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a message. Raises `DamagedMessageError`."""
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        number = key >> 3
        wire = key & 7
        if not number:
            raise DamagedMessageError("a field has the number 0")
        if wire == VARINT:
            value, position = varint(data, position)
            yield Field(number, wire, value)
            continue
        if wire == BYTES:
            length, position = varint(data, position)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise DamagedMessageError(f"field {number} has the unknown type {wire}")
        if position + length > len(data):
            raise DamagedMessageError(f"field {number} is cut off")
        yield Field(number, wire, data[position : position + length])
        position += length


def numbers(value: int | bytes) -> list[int]:
    """Return a repeated number, packed or one of several."""
    if isinstance(value, int):
        return [value]
    out = []
    position = 0
    while position < len(value):
        number, position = varint(value, position)
        out.append(number)
    return out


def signed(value: int) -> int:
    """Return a number of 64 bits with its sign."""
    return value - 2**64 if value >> 63 else value


def text(value: bytes) -> str:
    """Return text. Raises `DamagedMessageError`."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise DamagedMessageError("a name is not UTF-8 text") from None
