"""The messages of replayed flows: bytes without sockets.

A connection carries transfers one after another. A transfer begins with a header, which says how
many bytes follow it, and is as long as its flow in all, but never shorter than the header. When its
last byte has arrived, the receiver answers with a receipt, which says when that was by its clock.
So the sender knows the completion time of a flow even where the two have no common clock (then an
answer's way back is in it), and exactly where they have.
"""

from __future__ import annotations

import struct
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from echelon.model.errors import Code, CodedError

NO_CLOCK = 0
"""Stands for the number of an unknown clock."""


def now_ns() -> int:
    """Return CLOCK_MONOTONIC, which all processes of a machine have in common.

    Other time namespaces have their own.
    """
    return time.monotonic_ns()


@cache
def own_clock() -> int:
    """Return a number that identifies this machine's monotonic clock since its start.

    It is 0 where the system does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return NO_CLOCK
    with suppress(OSError):  # A system without time namespaces has one clock.
        boot += Path("/proc/self/timens_offsets").read_bytes()
    return zlib.crc32(boot) or 1


_MAGIC = b"EcT1"
_HEADER = struct.Struct("!4sQ")
_RECEIPT = struct.Struct("!4sIQ")

HEADER_BYTES = _HEADER.size
RECEIPT_BYTES = _RECEIPT.size


class WireError(CodedError, ValueError):
    """The other end does not follow the protocol."""

    code: Code = "run-failed"


def transfer_bytes(size_bytes: int) -> int:
    """Return how many bytes a flow of that size takes on its connection, header included."""
    return max(size_bytes, HEADER_BYTES)


def header(size_bytes: int) -> bytes:
    """Return the header of a flow of `size_bytes`. The rest of its `transfer_bytes` follows it."""
    return _HEADER.pack(_MAGIC, transfer_bytes(size_bytes) - HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class Receipt:
    clock: int
    """The clock that `at_ns` is read from: equal numbers mean one clock, 0 an unknown one."""
    at_ns: int

    def encoded(self) -> bytes:
        return _RECEIPT.pack(_MAGIC, self.clock, self.at_ns)

    def read_by(self, clock: int, now_ns: int) -> int:
        """Return when the last byte had arrived by the clock of the reader.

        The reader received this at `now_ns`.
        """
        if self.clock == NO_CLOCK or self.clock != clock:
            return now_ns
        return min(self.at_ns, now_ns)


def decode_receipt(data: bytes) -> Receipt:
    """Return the receipt in `data`. Raises `WireError`."""
    magic, clock, at_ns = _RECEIPT.unpack(data)
    if magic != _MAGIC:
        raise WireError("the receiver's answer is not a receipt")
    return Receipt(clock, at_ns)


class Reception:
    """The receiver's side of one connection."""

    __slots__ = ("_partial", "left")

    def __init__(self) -> None:
        self._partial = b""
        self.left = 0
        """Bytes of the transfer under way that are still to come and need no look."""

    @property
    def header_wants(self) -> int:
        """Bytes of a header that are still to come; 0 within a transfer."""
        if self.left:
            return 0
        return HEADER_BYTES - len(self._partial)

    @property
    def idle(self) -> bool:
        """Return whether the connection is between two transfers."""
        return not self.left and not self._partial

    def read_header(self, data: bytes) -> bool:
        """Read `data`, at most `header_wants` bytes.

        Return whether that completes a transfer no longer than its header.

        Raises `WireError`.
        """
        self._partial += data
        if len(self._partial) < HEADER_BYTES:
            return False
        magic, self.left = _HEADER.unpack(self._partial)
        self._partial = b""
        if magic != _MAGIC:
            raise WireError("the connection does not carry a replayed flow")
        return not self.left

    def skip(self, count: int) -> bool:
        """Skip so many of the bytes `left`; return whether that completes the transfer."""
        self.left -= count
        return not self.left
