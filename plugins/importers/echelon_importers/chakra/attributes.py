"""Attributes of the nodes of Chakra traces, of all types of the schema.

A value of the second generation has the number of its type, 3 to 31, and a list of such values the
next one (`AttributeProto.value` of `et_def.proto`). An attribute without a value, or with one of a
type that the schema does not have, is None: only who needs it refuses it. STAGE writes such ones.
"""

from __future__ import annotations

import struct

from echelon_importers.chakra.fields import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    DamagedMessageError,
    Field,
    fields,
    numbers,
    signed,
    text,
)

Scalar = int | float | str
Value = Scalar | tuple[Scalar, ...]

_FIRST_TYPE, _LAST_TYPE = 3, 32
_UNSIGNED = frozenset({11, 13})
_ZIGZAG = frozenset({15, 17})
_BOOL = 27
_TEXTS = frozenset({29, 31})
_FIXED = {
    3: "<d",
    5: "<f",
    19: "<I",
    21: "<Q",
    23: "<i",
    25: "<q",
}
"""Layouts of the types that have a fixed length."""
_OLD_LISTS = frozenset({"involved_dim"})


def attribute(data: bytes) -> tuple[str, Value | None]:
    """Return the name and the value of an attribute of the second generation."""
    name = ""
    value = None
    for field in fields(data):
        if field.number == 1 and isinstance(field.value, bytes):
            name = text(field.value)
        elif _FIRST_TYPE <= field.number <= _LAST_TYPE:
            value = _value(field)
    return name, value


def _value(field: Field) -> Value | None:
    if field.number % 2:
        return _scalar(field.number, field)
    if not isinstance(field.value, bytes) or field.wire != BYTES:
        return None
    kind = field.number - 1
    out: list[Scalar] = []
    for part in fields(field.value):
        if part.number == 1:
            out += _items(kind, part)
    return tuple(out)


def _items(kind: int, part: Field) -> list[Scalar]:
    """Return the values of a list that are in one of its fields: all if they are packed."""
    value = part.value
    is_packed = part.wire == BYTES and kind not in _TEXTS
    if not is_packed or not isinstance(value, bytes):
        item = _scalar(kind, part)
        return [] if item is None else [item]
    if kind not in _FIXED:
        return [_integer(kind, number) for number in numbers(value)]
    layout = struct.Struct(_FIXED[kind])
    if len(value) % layout.size:
        raise DamagedMessageError("a list is cut off")
    return [number for (number,) in layout.iter_unpack(value)]


def _scalar(kind: int, field: Field) -> Scalar | None:
    value = field.value
    if isinstance(value, int):
        has_number = kind not in _FIXED and kind not in _TEXTS
        return _integer(kind, value) if has_number else None
    if kind in _TEXTS and field.wire == BYTES:
        return value.decode("utf-8", "replace")
    layout = _FIXED.get(kind)
    if layout is None or field.wire == BYTES:
        return None
    if struct.calcsize(layout) != len(value):
        return None
    number: int | float
    (number,) = struct.unpack(layout, value)
    return number


def _integer(kind: int, value: int) -> int:
    if kind in _ZIGZAG:
        return (value >> 1) ^ -(value & 1)
    if kind == _BOOL:
        return int(value != 0)
    return value if kind in _UNSIGNED else signed(value)


def old_attribute(data: bytes) -> tuple[str, Value]:
    """Return the name and the value of an attribute of the first generation."""
    name = ""
    value: Value = 0
    listed: list[int] = []
    for field in fields(data):
        if field.number == 1 and isinstance(field.value, bytes):
            name = text(field.value)
        elif field.number == 2 and field.value == 1 and field.wire == VARINT:
            if any(part.number == 5 and part.wire == VARINT for part in fields(data)):
                raise DamagedMessageError(
                    "is of schema 0.0.2, which numbers kinds of nodes differently"
                )
        elif field.number > 3 and isinstance(field.value, int):
            listed.append(signed(field.value))
        elif field.number > 3 and isinstance(field.value, bytes):
            value = _old_value(field.wire, field.value)
    if len(listed) == 1 and name not in _OLD_LISTS:
        return name, listed[0]
    if listed:
        return name, tuple(listed)
    return name, value


def _old_value(wire: int, value: bytes) -> Value:
    layout = {FIXED32: "<f", FIXED64: "<d"}.get(wire)
    if layout is None:
        return text(value)
    number: float
    (number,) = struct.unpack(layout, value)
    return number
