"""P4Runtime's Write and Read requests, put together from serialized table entries.

Protocol buffers join fields by concatenation, so a request needs no message object for each of its entries. Field
numbers are those of p4/v1/p4runtime.proto.

`python -m plugins.study.bench.p4runtime_bytes` compares this module with plain protobuf. Joining 1000 entries to a
request is ten times as fast, which saves a tenth of the processor time of a whole insertion. Reading responses gained
less, so plain protobuf does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import lru_cache

from finsy.proto import U128, p4r
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from echelon.protobuf_fields import counted, delimited, delimiter


class UpdateKind(IntEnum):
    """The type of an update; the values are P4Runtime's."""

    INSERT = 1
    MODIFY = 2
    DELETE = 3


@lru_cache(maxsize=1 << 14)
def _frame(kind: UpdateKind, size: int) -> bytes:
    """Return the bytes before a TableEntry of `size` bytes in a WriteRequest."""
    entity = delimiter(2, size)
    update = counted(1, kind) + delimiter(2, len(entity) + size) + entity
    return delimiter(4, len(update) + size) + update


def update_size(entry: bytes) -> int:
    """Return the number of bytes that an update of the serialized TableEntry `entry` takes in a WriteRequest."""
    return len(_frame(UpdateKind.INSERT, len(entry))) + len(entry)


def write_header(device_id: int, election_id: int, role: str = "") -> bytes:
    """Return a serialized WriteRequest without updates."""
    request = p4r.WriteRequest(device_id=device_id, election_id=U128.encode(election_id), role=role)
    header: bytes = request.SerializeToString()
    return header


def write_request(header: bytes, kind: UpdateKind, entries: Iterable[bytes]) -> bytes:
    """Return a serialized WriteRequest: `header`, and one update for each serialized TableEntry of `entries`."""
    return header + b"".join([part for entry in entries for part in (_frame(kind, len(entry)), entry)])


def read_request(device_id: int, entries: Iterable[bytes], role: str = "") -> bytes:
    """Return a serialized ReadRequest of serialized TableEntry messages."""
    header: bytes = p4r.ReadRequest(device_id=device_id, role=role).SerializeToString()
    return header + b"".join(delimited(2, delimited(2, entry)) for entry in entries)


def table_entries(response: bytes) -> Iterator[bytes]:
    """Return the serialized TableEntry messages of a serialized ReadResponse, in their order.

    Entities of other kinds are left out. Raises ValueError if `response` is not a ReadResponse.
    """
    try:
        entities = p4r.ReadResponse.FromString(response).entities
    except DecodeError as error:
        raise ValueError(f"not a ReadResponse: {error}") from None
    return (entity.table_entry.SerializeToString() for entity in entities if entity.HasField("table_entry"))
