"""Packets of the aggregation protocol, in UDP behind the shim (docs/aggregation-protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, error

PORT = 0xEF11
"""UDP port of the fallback, the destination or the source of every aggregation packet."""
VERSION = 1
MAX_WORKERS = 32

_HEADER = Struct("!BBHHBBII")
"""Version and kind, flags, session, tree, exponent, next exponent, block, workers."""
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """The kind of a packet."""

    CONTRIBUTION = 1
    RESULT = 2
    REQUEST = 3
    ANSWER = 4


class Flag:
    """The bits of a packet's flags.

    They are plain numbers, since `enum.IntFlag` takes twenty times as long for each operation.
    """

    OVERFLOW = 1
    """An addition left the range of 32 bits."""
    MARKED = 2
    """A contribution met congestion."""
    AGAIN = 4
    """No switch may keep the packet."""
    EMPTY = 8
    """No values follow; all are zero."""


class WireError(ValueError):
    """Bytes are no packet of this protocol; the message says why."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet: `values` are those of the workers in the bitmap `workers`, added up."""

    kind: Kind
    tree: int
    session: int
    block: int
    workers: int
    exponent: int = 0
    next_exponent: int = 0
    flags: int = 0
    values: bytes = b""
    """Two's complement in network order, 32 bits each; empty with EMPTY."""

    def encode(self) -> bytes:
        """Return the packet as it stands behind the shim."""
        return (
            _HEADER.pack(
                VERSION << 4 | self.kind,
                self.flags,
                self.session,
                self.tree,
                self.exponent,
                self.next_exponent,
                self.block,
                self.workers,
            )
            + self.values
        )


def decode(data: bytes) -> Packet:
    """Return the packet in `data`, which stands behind the shim. Raise `WireError`."""
    try:
        first, flags, session, tree, exponent, next_exponent, block, workers = _HEADER.unpack_from(
            data
        )
    except error:
        raise WireError(f"{len(data)} bytes are too few for the header of {HEADER_BYTES}") from None
    if first >> 4 != VERSION:
        raise WireError(f"version {first >> 4} is not {VERSION}")
    try:
        kind = Kind(first & 15)
    except ValueError:
        raise WireError(f"kind {first & 15} is unknown") from None
    values = data[HEADER_BYTES:]
    if len(values) % 4:
        raise WireError(f"{len(values)} bytes of values are not a multiple of 4")
    return Packet(kind, tree, session, block, workers, exponent, next_exponent, flags & 15, values)
