"""The congestion window, in bytes: slow start, congestion avoidance, NewReno's recovery. Arithmetic only."""

from __future__ import annotations

_NO_THRESHOLD = 1 << 62


def initial_window(mss_bytes: int) -> int:
    """Return the initial window in bytes (RFC 6928)."""
    return min(10 * mss_bytes, max(2 * mss_bytes, 14600))


class NewReno:
    """The congestion window of RFC 5681 and 6582, with growth by bytes (RFC 3465: at most two segments for each
    acknowledgement in slow start)."""

    __slots__ = ("_before", "_counted", "_mss", "cwnd", "initial", "ssthresh")

    def __init__(self, mss_bytes: int, initial_bytes: int | None = None) -> None:
        self._mss = mss_bytes
        self.initial = initial_window(mss_bytes) if initial_bytes is None else initial_bytes
        self.cwnd = self.initial
        self.ssthresh = _NO_THRESHOLD
        self._counted = 0  # bytes acknowledged towards the next segment of growth, in congestion avoidance
        self._before = 0  # the threshold to restore if a loss turns out to be none

    def grow(self, acked_bytes: int, total_bytes: int) -> None:
        """Grow: new data was acknowledged while the window was what held the sender back.

        `total_bytes` have been acknowledged since the connection began.
        """
        mss = self._mss
        if self.cwnd < self.ssthresh:
            self.cwnd += min(acked_bytes, 2 * mss)
            return
        self._counted += acked_bytes
        if self._counted >= self.cwnd:
            self._counted -= self.cwnd
            self.cwnd += mss

    def halve(self, flight_bytes: int) -> None:
        """Halve the window: congestion without loss (RFC 3168)."""
        self._shrink(flight_bytes)
        self.cwnd = self.ssthresh

    def enter_recovery(self, flight_bytes: int) -> None:
        """Enter fast recovery after three duplicates: three segments have left the network."""
        self._shrink(flight_bytes)
        self.cwnd = self.ssthresh + 3 * self._mss

    def inflate(self) -> None:
        """Inflate the window by one segment: another duplicate means that another segment has left the network."""
        self.cwnd += self._mss

    def deflate(self, acked_bytes: int) -> None:
        """Deflate the window after a partial acknowledgement."""
        self.cwnd = max(self.cwnd - acked_bytes, self._mss)
        if acked_bytes >= self._mss:
            self.cwnd += self._mss

    def leave_recovery(self, flight_bytes: int) -> None:
        """Leave fast recovery after the full acknowledgement, without a burst if little is in flight."""
        self.cwnd = min(self.ssthresh, max(flight_bytes, self._mss) + self._mss)

    def time_out(self, flight_bytes: int, again: bool) -> None:
        """React to a time-out. `again` marks the same segment once more, which says nothing new about the path."""
        if not again:
            self._shrink(flight_bytes)
        self.cwnd = self._mss

    def undo(self, flight_bytes: int) -> None:
        """Undo the last reduction, because nothing was lost. Slow start leads back to the former window (RFC 4015)."""
        self.ssthresh = self._before
        self.cwnd = flight_bytes + self.initial

    def restart(self) -> None:
        """Restart after idleness of longer than a time-out: knowledge of the path is out of date."""
        self.cwnd = min(self.cwnd, self.initial)

    def _shrink(self, flight_bytes: int) -> None:
        self._before = max(flight_bytes, self.ssthresh)
        self.ssthresh = max(flight_bytes // 2, 2 * self._mss)
        self._counted = 0
