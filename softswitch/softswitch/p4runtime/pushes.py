"""SetForwardingPipelineConfigRequests, whose parts are measured before they are decoded."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from softswitch.p4runtime.wire import varint
from softswitch.rpc.handlers import REQUEST_BYTES
from softswitch.rpc.status import Code, RefusedError

__all__ = ["parse"]

_P4INFO_BYTES = 1 << 20
"""The most bytes of a P4Info. That of Echelon has 10 kB, those of large public programs 200 kB.

Decoded it takes up to 50 times as much memory. The program is bytes, and is bounded by its engine.
"""

_CONFIG = 5
_P4INFO = 1
"""The numbers of fields of SetForwardingPipelineConfigRequest and of ForwardingPipelineConfig."""

_FIELDS = 64
"""The most fields of a message that is measured here; they have six different ones."""


def parse(data: bytes) -> p4r.SetForwardingPipelineConfigRequest:
    """Return the request.

    Raises:
        DecodeError: the bytes are not a request.
        RefusedError: RESOURCE_EXHAUSTED for a P4Info that is too large.
    """
    if len(data) > REQUEST_BYTES:
        size = _p4info_bytes(data)
        if size > _P4INFO_BYTES:
            raise RefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"a P4Info of {size} bytes, of which {_P4INFO_BYTES} are allowed; push a smaller"
                " program",
            )
    request: p4r.SetForwardingPipelineConfigRequest
    request = p4r.SetForwardingPipelineConfigRequest.FromString(data)
    return request


def _p4info_bytes(data: bytes) -> int:
    """Return the size of the P4Info in a request; that of all of it if its fields are unusual."""
    size = 0
    try:
        for number, start, end in _fields(data, 0, len(data)):
            if number == _CONFIG:
                for inner, inner_start, inner_end in _fields(data, start, end):
                    size += inner_end - inner_start if inner == _P4INFO else 0
    except (IndexError, ValueError):
        return len(data)
    return size


def _fields(
    data: bytes,
    position: int,
    end: int,
) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field.

    Raise ValueError for one that is neither a varint nor has a length, and for too many.
    """
    for _ in range(_FIELDS):
        if position >= end:
            return
        tag, position = varint(data, position)
        value, after = varint(data, position)
        kind = tag & 7
        if kind == 2:
            position = after
            after += value
        elif kind != 0:
            raise ValueError("an unusual field")
        yield tag >> 3, position, after
        position = after
    raise ValueError("too many fields")
