"""The congestion window, in bytes: slow start, congestion avoidance, NewReno's recovery. Arithmetic only."""

from __future__ import annotations

_NO_THRESHOLD = 1 << 62


def initial_window(mss_bytes: int) -> int:
    """RFC 6928."""
    return min(10 * mss_bytes, max(2 * mss_bytes, 14600))


class NewReno:
    """RFC 5681, 6582, 3465 (growth by bytes, at most two segments an acknowledgement in slow start)."""

    __slots__ = ("_before", "_counted", "_mss", "cwnd", "initial", "ssthresh")

    def __init__(self, mss_bytes: int, initial_bytes: int | None = None) -> None:
        self._mss = mss_bytes
        self.initial = initial_window(mss_bytes) if initial_bytes is None else initial_bytes
        self.cwnd = self.initial
        self.ssthresh = _NO_THRESHOLD
        self._counted = 0  # bytes acknowledged towards the next segment of growth, in congestion avoidance
        self._before = 0  # the threshold that a loss which was none should have left

    def grow(self, acked_bytes: int) -> None:
        """New data was acknowledged while the window was what held the sender back."""
        mss = self._mss
        if self.cwnd < self.ssthresh:
            self.cwnd += min(acked_bytes, 2 * mss)
            return
        self._counted += acked_bytes
        if self._counted >= self.cwnd:
            self._counted -= self.cwnd
            self.cwnd += mss

    def halve(self, flight_bytes: int) -> None:
        """Congestion without loss (RFC 3168)."""
        self._shrink(flight_bytes)
        self.cwnd = self.ssthresh

    def enter_recovery(self, flight_bytes: int) -> None:
        """Three duplicates: three segments have left the network."""
        self._shrink(flight_bytes)
        self.cwnd = self.ssthresh + 3 * self._mss

    def inflate(self) -> None:
        """One more duplicate: one more segment has left the network."""
        self.cwnd += self._mss

    def deflate(self, acked_bytes: int) -> None:
        """A partial acknowledgement."""
        self.cwnd = max(self.cwnd - acked_bytes, self._mss)
        if acked_bytes >= self._mss:
            self.cwnd += self._mss

    def leave_recovery(self, flight_bytes: int) -> None:
        """The full acknowledgement; no burst if little is in flight."""
        self.cwnd = min(self.ssthresh, max(flight_bytes, self._mss) + self._mss)

    def time_out(self, flight_bytes: int, again: bool) -> None:
        """`again`: the same segment once more, which says nothing new about the path."""
        if not again:
            self._shrink(flight_bytes)
        self.cwnd = self._mss

    def undo(self, flight_bytes: int) -> None:
        """The last loss was none. Slow start leads back to where the window was (RFC 4015)."""
        self.ssthresh = self._before
        self.cwnd = flight_bytes + self.initial

    def restart(self) -> None:
        """Nothing was sent for longer than a time-out: what was known of the path is out of date."""
        self.cwnd = min(self.cwnd, self.initial)

    def _shrink(self, flight_bytes: int) -> None:
        self._before = max(flight_bytes, self.ssthresh)
        self.ssthresh = max(flight_bytes // 2, 2 * self._mss)
        self._counted = 0
