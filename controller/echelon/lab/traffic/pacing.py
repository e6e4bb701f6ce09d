"""The number of bytes of a long flow that may have been sent by now."""

from __future__ import annotations

BURST_BYTES = 16 * 1024
"""Approximate size of a portion for the socket. Smaller ones would wake the sender more often than flows gain by it."""
MIN_TICK_NS, MAX_TICK_NS = 1_000_000, 50_000_000


class Pacer:
    """The pace of one long flow, which began at `begin_ns` and is sent at a mean of `rate_bps` from then on."""

    __slots__ = ("_begin_ns", "_rate_bps", "due_bytes", "tick_ns")

    def __init__(self, begin_ns: int, rate_bps: int) -> None:
        self._begin_ns, self._rate_bps = begin_ns, rate_bps
        self.due_bytes = 0
        """Bytes of all pieces that have begun. More is never allowed."""
        self.tick_ns = min(max(BURST_BYTES * 8 * 10**9 // rate_bps, MIN_TICK_NS), MAX_TICK_NS)
        """How long to wait between two portions."""

    def allowed(self, now_ns: int) -> int:
        """Return how many bytes may have been sent by then: a portion ahead, so that the rate is met."""
        ahead_ns = now_ns - self._begin_ns + self.tick_ns
        return min(ahead_ns * self._rate_bps // (8 * 10**9), self.due_bytes)
