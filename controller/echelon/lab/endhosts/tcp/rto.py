"""The retransmission time-out (RFC 6298), in integer nanoseconds."""

from __future__ import annotations

INITIAL_NS = 1_000_000_000
MAX_NS = 60_000_000_000


class RetransmissionTimer:
    """The time to wait for an acknowledgement."""

    __slots__ = ("_min_ns", "_rttvar_ns", "_srtt_ns", "rto_ns")

    def __init__(self, min_ns: int, initial_ns: int = INITIAL_NS) -> None:
        self._min_ns = min_ns
        self._srtt_ns = -1
        self._rttvar_ns = 0
        self.rto_ns = max(min_ns, initial_ns)
        """The time-out in force, in nanoseconds."""

    @property
    def srtt_ns(self) -> int | None:
        """The smoothed round-trip time; None before the first measurement."""
        return None if self._srtt_ns < 0 else self._srtt_ns

    def measure(self, rtt_ns: int) -> None:
        """Take the round trip of a segment that was sent once (Karn's rule)."""
        srtt_ns = self._srtt_ns
        if srtt_ns < 0:
            self._srtt_ns = rtt_ns
            self._rttvar_ns = rtt_ns // 2
        else:
            self._rttvar_ns = (3 * self._rttvar_ns + abs(srtt_ns - rtt_ns)) // 4
            self._srtt_ns = (7 * srtt_ns + rtt_ns) // 8
        self.settle()

    def settle(self) -> None:
        """Forget earlier time-outs: what was sent is acknowledged."""
        if self._srtt_ns >= 0:
            self.rto_ns = min(max(self._srtt_ns + 4 * self._rttvar_ns, self._min_ns), MAX_NS)

    def back_off(self) -> None:
        """Double the time-out after it has expired."""
        self.rto_ns = min(2 * self.rto_ns, MAX_NS)
