"""P4Runtime's Write and Read as bytes: entries go out and come in without a message object for each.

Protocol buffers join fields by concatenation, so what is known once (a request's header, the frame of an update of so
many bytes) is written once. Field numbers are those of p4/v1/p4runtime.proto.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache

from finsy.proto import U128, p4r

_ENTITIES = 0x0A
"""Field 1 of ReadResponse, a message."""
_TABLE_ENTRY = 0x12
"""Field 2 of Entity, a message."""


class UpdateKind(IntEnum):
    """Of an update; the values are P4Runtime's."""

    INSERT = 1
    MODIFY = 2
    DELETE = 3


def varint(number: int) -> bytes:
    """An unsigned number, as Protocol buffers write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, content: bytes) -> bytes:
    """A field of type message or bytes."""
    return delimiter(number, len(content)) + content


@lru_cache(maxsize=1 << 14)
def delimiter(number: int, size: int) -> bytes:
    """What stands before the `size` bytes of a field of type message or bytes; `number` is at most 15."""
    return bytes([number << 3 | 2]) + varint(size)


@lru_cache(maxsize=1 << 14)
def counted(number: int, value: int) -> bytes:
    """A field of an integer type; `number` is at most 15."""
    return bytes([number << 3]) + varint(value)


class _Frames(dict[int, bytes]):
    """What stands before a TableEntry of so many bytes in a WriteRequest."""

    def __init__(self, kind: UpdateKind) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, size: int) -> bytes:
        inner = delimiter(2, size)
        update = counted(1, self._kind) + delimiter(2, len(inner) + size) + inner
        frame = self[size] = delimiter(4, len(update) + size) + update
        return frame


_FRAMES = {kind: _Frames(kind) for kind in UpdateKind}


def update_size(entry: bytes) -> int:
    """Bytes that an update of `entry` takes in a WriteRequest."""
    return len(_FRAMES[UpdateKind.INSERT][len(entry)]) + len(entry)


def write_header(device_id: int, election_id: int, role: str = "") -> bytes:
    """A WriteRequest without updates."""
    request = p4r.WriteRequest(device_id=device_id, election_id=U128.encode(election_id), role=role)
    header: bytes = request.SerializeToString()
    return header


def write_request(header: bytes, kind: UpdateKind, entries: Iterable[bytes]) -> bytes:
    """A WriteRequest of `header` and one update for each of some serialized TableEntry messages."""
    frames = _FRAMES[kind]
    return header + b"".join([part for entry in entries for part in (frames[len(entry)], entry)])


def read_request(device_id: int, entries: Iterable[bytes], role: str = "") -> bytes:
    """A ReadRequest of serialized TableEntry messages."""
    header: bytes = p4r.ReadRequest(device_id=device_id, role=role).SerializeToString()
    return header + b"".join(delimited(2, delimited(2, entry)) for entry in entries)


def table_entries(response: bytes) -> list[bytes]:
    """The serialized TableEntry messages of a serialized ReadResponse, in their order; entities of other kinds are left
    out. Raises ValueError for what is no ReadResponse."""
    out: list[bytes] = []
    append = out.append
    at, size = 0, len(response)
    try:
        while at < size:
            if response[at] != _ENTITIES:
                return _decoded(response)
            length = response[at + 1]
            at += 2
            if length > 0x7F:
                length, at = _varint(response, at - 1)
            end = at + length
            if response[at] != _TABLE_ENTRY:
                return _decoded(response)
            length = response[at + 1]
            at += 2
            if length > 0x7F:
                length, at = _varint(response, at - 1)
            if at + length != end:
                return _decoded(response)
            append(response[at:end])
            at = end
    except IndexError:
        at = -1
    return out if at == size else _decoded(response)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _decoded(response: bytes) -> list[bytes]:
    """As Protocol buffers read it: for responses of an unusual make."""
    # DecodeError is a ValueError only by accident of the implementation.
    try:
        message = p4r.ReadResponse.FromString(response)
    except Exception as error:
        raise ValueError(f"not a ReadResponse: {error}") from None
    return [entity.table_entry.SerializeToString() for entity in message.entities if entity.HasField("table_entry")]
