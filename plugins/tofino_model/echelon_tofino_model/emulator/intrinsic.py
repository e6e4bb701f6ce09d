"""The intrinsic metadata of TNA on Tofino 1, which precedes a packet in the parsers.

The fields are those of `tofino1_base.p4`.
"""

from __future__ import annotations

from dataclasses import dataclass

_MAPPED_BYTES = 32
_TIME_STAMP_BYTE = 54 - 32
"""The place of the time stamp in the parser's input buffer behind byte 32."""

_TIME_MASK = (1 << 48) - 1
CELL_BYTES = 80
"""The unit of queue depths."""


def mapped_bytes(now_ns: int) -> bytes:
    """Return the bytes 32 to 63 of a parser's input buffer: a time stamp and the version 0."""
    stamp = (now_ns & _TIME_MASK).to_bytes(6, "big")
    return stamp.rjust(_TIME_STAMP_BYTE + 6, b"\0").ljust(_MAPPED_BYTES, b"\0")


def ingress_bytes(
    port: int,
    now_ns: int,
    *,
    is_resubmitted: bool = False,
) -> bytes:
    """Return the eight bytes before the port metadata of a packet that arrived on ``port``."""
    head = is_resubmitted << 15 | port & 0x1FF
    return head.to_bytes(2, "big") + (now_ns & _TIME_MASK).to_bytes(6, "big")


@dataclass(frozen=True, slots=True)
class Passage:
    """The passage of a packet through the traffic manager. Depths are in cells of `CELL_BYTES`."""

    port: int
    queue: int
    enq_qdepth_cells: int
    enq_ns: int
    deq_qdepth_cells: int
    deq_ns: int
    rid: int
    is_first_copy: bool
    length_bytes: int
    cos: int = 0


def egress_bytes(passage: Passage) -> bytes:
    """Return the bytes before a packet in the egress parser.

    Times and depths are cut to their fields' widths.
    """
    waited_ns = passage.deq_ns - passage.enq_ns
    parts = (
        _field(passage.port, 16, 2),
        _field(passage.enq_qdepth_cells, 19, 3),
        bytes(1),
        _field(passage.enq_ns, 18, 4),
        _field(passage.deq_qdepth_cells, 19, 3),
        bytes(2),
        _field(waited_ns, 18, 4),
        _field(passage.rid, 16, 2),
        _field(passage.is_first_copy, 1, 1),
        _field(passage.queue, 5, 1),
        _field(passage.cos, 3, 1),
        bytes(1),
        _field(passage.length_bytes, 16, 2),
    )
    return b"".join(parts)


def _field(
    value: int,
    bits: int,
    size_bytes: int,
) -> bytes:
    """Return a field of ``bits`` bits, padded with zeros to whole bytes."""
    mask = (1 << bits) - 1
    return (value & mask).to_bytes(size_bytes, "big")
