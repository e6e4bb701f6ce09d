"""The intrinsic metadata of TNA on Tofino 1: the bytes that precede a packet in the parsers
(`tofino1_base.p4`).
"""

from __future__ import annotations

from dataclasses import dataclass

_EGRESS_BYTES = 27
_MAPPED_BYTES = 32
_TIME_STAMP_BYTE = 54 - 32
"""The place of the time stamp among the bytes that the parser's input buffer shows behind byte
32.
"""

_TIME_MASK = (1 << 48) - 1
CELL_BYTES = 80
"""The unit of queue depths."""


def mapped_bytes(now_ns: int) -> bytes:
    """Return the bytes 32 to 63 of a parser's input buffer: a time stamp, and a version that is
    0.
    """
    stamp = (now_ns & _TIME_MASK).to_bytes(6, "big")
    return stamp.rjust(_TIME_STAMP_BYTE + 6, b"\0").ljust(_MAPPED_BYTES, b"\0")


def ingress_bytes(port: int, now_ns: int, *, is_resubmitted: bool = False) -> bytes:
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
    value = 0
    for field, width in (
        (passage.port, 16),
        (passage.enq_qdepth_cells & 0x7FFFF, 24),
        (0, 8),
        (passage.enq_ns & 0x3FFFF, 32),
        (passage.deq_qdepth_cells & 0x7FFFF, 24),
        (0, 8),
        (0, 8),
        (passage.deq_ns - passage.enq_ns & 0x3FFFF, 32),
        (passage.rid & 0xFFFF, 16),
        (passage.is_first_copy, 8),
        (passage.queue & 0x1F, 8),
        (passage.cos & 7, 8),
        (0, 8),
        (passage.length_bytes & 0xFFFF, 16),
    ):
        value = value << width | field
    return value.to_bytes(_EGRESS_BYTES, "big")
