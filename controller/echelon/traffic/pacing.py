"""How much of a long flow may have been sent by now."""

from __future__ import annotations

BURST_BYTES = 16 * 1024
"""Handed to the socket at once, about: smaller portions would wake the sender more often than flows gain by it."""
MIN_TICK_NS, MAX_TICK_NS = 1_000_000, 50_000_000


class Pacer:
    """Of one long flow, which began at `begin_ns` and is sent at `rate_bps` in the mean from then on."""

    __slots__ = ("_begin_ns", "_rate_bps", "due_bytes", "tick_ns")

    def __init__(self, begin_ns: int, rate_bps: int) -> None:
        self._begin_ns, self._rate_bps = begin_ns, rate_bps
        self.due_bytes = 0
        """Of all pieces that have begun; more is never allowed."""
        self.tick_ns = min(max(BURST_BYTES * 8 * 10**9 // rate_bps, MIN_TICK_NS), MAX_TICK_NS)
        """How long to wait between two portions."""

    def allowed(self, now_ns: int) -> int:
        """Bytes that may have been sent in all by then. A portion ahead, so that the rate is met, not approached."""
        ahead_ns = now_ns - self._begin_ns + self.tick_ns
        return min(ahead_ns * self._rate_bps // (8 * 10**9), self.due_bytes)
