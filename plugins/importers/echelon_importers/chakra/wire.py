"""Chakra execution traces on the wire: length-delimited protobuf messages of either generation of
the schema.

This reads the encoding itself (protobuf.dev, "Encoding"), because the numbers of fields differ between generations and
the reader has to find out which one a file has. Field numbers are those of `schema/protobuf/et_def.proto` of
mlcommons/chakra, and for the first generation of its versions of July to October 2023 (0.0.3)::

    second: Node {id 1, name 2, type 3, ctrl_deps 4, data_deps 5, start_time_micros 6,
    duration_micros 7, attr 10}
            AttributeProto {name 1, doc_string 2, value 3 to 32: one for each type}
    first:  Node {id 1, name 2, type 3, parent 4, attribute 11}
            AttributeProto {name 1, type 2, doc_string 3, value from 4 on: one for each type}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from echelon.model.documents import DocumentError
from echelon_importers.importer import Source

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_ZIGZAG = frozenset({15, 17})
_UNSIGNED = frozenset({11, 13})
_STRINGS = frozenset({29})
_BOOL_LIST = 28
_UINT64_LIST = 14

Value = int | float | str | tuple[int, ...]


class DamagedMessageError(ValueError):
    """The bytes are not such a message."""


class _Field(NamedTuple):
    number: int
    wire: int
    value: int | bytes


@dataclass(frozen=True, slots=True)
class WireNode:
    """A node as a trace has it. `kind` counts as in the second generation."""

    number: int
    kind: int
    ctrl_deps: tuple[int, ...]
    data_deps: tuple[int, ...]
    duration_us: int
    attributes: Mapping[str, Value]
    generation: int


def read_trace(source: Source) -> list[WireNode]:
    """Return the nodes in a file, gzip or not. Raises `DocumentError`, which names the message."""
    data = source.unpacked()
    nodes: list[WireNode] = []
    messages = list(_messages(source, data))
    generation = 1 if _is_first_generation(messages) else 2
    for number, message in enumerate(messages):
        try:
            fields = list(_fields(message))
            if number == 0 and _is_metadata(fields):
                continue
            nodes.append(_node(fields, generation))
        except DamagedMessageError as error:
            reason = f"{error} (check that the file is a whole trace)"
            raise DocumentError(
                source.name, f"message {number}", reason, code="bad-syntax"
            ) from None
    return nodes


def _messages(source: Source, data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        try:
            length, start = _varint(data, position)
        except DamagedMessageError:
            length = len(data)
            start = position
        if start + length > len(data):
            reason = "a message ends behind the file (copy the whole file)"
            raise DocumentError(source.name, f"byte {position}", reason, code="bad-syntax")
        yield data[start : start + length]
        position = start + length


def _varint(data: bytes, position: int) -> tuple[int, int]:
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


def _fields(data: bytes) -> Iterator[_Field]:
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number = key >> 3
        wire = key & 7
        if not number:
            raise DamagedMessageError("a field has the number 0")
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield _Field(number, wire, value)
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise DamagedMessageError(f"field {number} has the unknown type {wire}")
        if position + length > len(data):
            raise DamagedMessageError(f"field {number} is cut off")
        yield _Field(number, wire, data[position : position + length])
        position += length


def _is_metadata(fields: list[_Field]) -> bool:
    """Return whether a first message has no type of a node."""
    return all(field.number in (1, 2) and field.wire == _BYTES for field in fields)


def _is_first_generation(messages: list[bytes]) -> bool:
    """Return whether a node has a first-generation attribute: field 11, a name and a type."""
    for message in messages:
        try:
            for field in _fields(message):
                if field.number == 11 and isinstance(field.value, bytes):
                    inner = {(part.number, part.wire) for part in _fields(field.value)}
                    return inner.issuperset([(1, _BYTES), (2, _VARINT)])
                if field.number == 10 and isinstance(field.value, bytes):
                    return False
        except DamagedMessageError:
            return False
    return False


def _node(fields: list[_Field], generation: int) -> WireNode:
    new = generation == 2
    number = kind = duration_us = 0
    ctrl: list[int] = []
    data: list[int] = []
    attributes: dict[str, Value] = {}
    for field in fields:
        match field:
            case _Field(1, 0, int(value)):
                number = value
            case _Field(2, 2, bytes(value)):
                _text(value)  # A name that is not text betrays a file of another format.
            case _Field(3, 0, int(value)):
                kind = value
            case _Field(4, _, value):
                (ctrl if new else data).extend(_numbers(value))
            case _Field(5, _, value) if new:
                data += _numbers(value)
            case _Field(7, 0, int(value)) if new:
                duration_us = value
            case _Field(10, 2, bytes(value)) if new:
                attributes.update([_attribute(value)])
            case _Field(11, 2, bytes(value)) if not new:
                attributes.update([_old_attribute(value)])
            case _Field(6, 0, _) | _Field(8 | 9 | 11, 2, _) if new:
                pass
            case _Field(5 | 6 | 7 | 8 | 9 | 10, 2, _) if not new:
                pass
            case _:
                if new:
                    schema = "no schema has"
                else:
                    schema = "version 0.0.3 does not have"
                raise DamagedMessageError(
                    f"a node has the field {field.number} of type {field.wire}, which {schema}"
                )
    if not new:
        runtime = attributes.get("runtime", 0)
        if not isinstance(runtime, int) or runtime < 0:
            raise DamagedMessageError("'runtime' is not a number of microseconds")
        duration_us = runtime
    return WireNode(number, kind, tuple(ctrl), tuple(data), duration_us, attributes, generation)


def _old_attribute(data: bytes) -> tuple[str, Value]:
    name, value = "", None
    listed: list[int] = []
    for field in _fields(data):
        if field.number == 1 and isinstance(field.value, bytes):
            name = _text(field.value)
        elif field.number == 2 and field.value == 1 and field.wire == _VARINT:
            if any(part.number == 5 and part.wire == _VARINT for part in _fields(data)):
                raise DamagedMessageError(
                    "is of schema 0.0.2, which numbers kinds of nodes differently"
                )
        elif field.number > 3 and field.wire == _VARINT:
            assert isinstance(field.value, int)
            listed.append(_signed(field.value))
        elif field.number > 3 and isinstance(field.value, bytes):
            value = _double(field) if field.wire != _BYTES else _text(field.value)
    if len(listed) == 1 and name != "involved_dim":
        return name, listed[0]
    if listed:
        return name, tuple(listed)
    return name, value if value is not None else 0


def _attribute(data: bytes) -> tuple[str, Value]:
    name = ""
    value = None
    for field in _fields(data):
        if field.number == 1 and isinstance(field.value, bytes):
            name = _text(field.value)
        elif field.number > 2:
            value = _value(field)
    # Proto3 leaves out nothing of a oneof, so an attribute without a value is broken.
    if value is None:
        raise DamagedMessageError(f"the attribute '{name[:40]}' has no value")
    return name, value


def _value(field: _Field) -> Value:
    number, wire, value = field
    if isinstance(value, int):
        if number in _ZIGZAG:
            return (value >> 1) ^ -(value & 1)
        return value if number in _UNSIGNED else _signed(value)
    if wire != _BYTES:
        return _double(field)
    if number in _STRINGS:
        return _text(value)
    if number in (_BOOL_LIST, _UINT64_LIST):
        numbers: list[int] = []
        for part in _fields(value):
            numbers += _numbers(part.value)
        return tuple(numbers)
    # Other lists and bytes say nothing about communication.
    return ()


def _double(field: _Field) -> float:
    assert isinstance(field.value, bytes)
    layout = "<f" if field.wire == _FIXED32 else "<d"
    value: float
    (value,) = struct.unpack(layout, field.value)
    return value


def _numbers(value: int | bytes) -> list[int]:
    """Return a repeated number, packed or one of several."""
    if isinstance(value, int):
        return [value]
    out = []
    position = 0
    while position < len(value):
        number, position = _varint(value, position)
        out.append(number)
    return out


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise DamagedMessageError("a name is not UTF-8 text") from None
