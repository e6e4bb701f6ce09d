"""The congestion window, in bytes: slow start, congestion avoidance, NewReno's recovery.

Arithmetic only.
"""

from __future__ import annotations

from dataclasses import dataclass

# Above any window: slow start lasts until the first sign of congestion.
_NO_THRESHOLD = 1 << 62


def initial_window(mss_bytes: int) -> int:
    """Return the initial window in bytes (RFC 6928)."""
    return min(10 * mss_bytes, max(2 * mss_bytes, 14600))


class NewReno:
    """The congestion window of RFC 5681 and 6582, with growth by bytes.

    RFC 3465: at most two segments for each acknowledgement in slow start.
    """

    __slots__ = ("_before", "_counted", "_mss", "cwnd", "initial", "ssthresh")

    def __init__(self, mss_bytes: int, initial_bytes: int | None = None) -> None:
        self._mss = mss_bytes
        if initial_bytes is None:
            self.initial = initial_window(mss_bytes)
        else:
            self.initial = initial_bytes
        self.cwnd = self.initial
        self.ssthresh = _NO_THRESHOLD
        # Bytes acknowledged towards the next segment of growth, in congestion avoidance.
        self._counted = 0
        # The threshold to restore if a loss turns out to be none.
        self._before = 0

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
        """Inflate the window by one segment.

        Another duplicate means that another segment has left the network.
        """
        self.cwnd += self._mss

    def deflate(self, acked_bytes: int) -> None:
        """Deflate the window after a partial acknowledgement."""
        # RFC 6582, 3.2: one segment is added back for the one that has left the network.
        self.cwnd = max(self.cwnd - acked_bytes, self._mss)
        if acked_bytes >= self._mss:
            self.cwnd += self._mss

    def leave_recovery(self, flight_bytes: int) -> None:
        """Leave fast recovery after the full acknowledgement.

        There is no burst if little is in flight.
        """
        flight_bytes = max(flight_bytes, self._mss)
        self.cwnd = min(self.ssthresh, flight_bytes + self._mss)

    def time_out(self, flight_bytes: int, is_repeated: bool) -> None:
        """React to a time-out.

        `is_repeated` says that the same segment timed out before, which is nothing new about the
        path.
        """
        if not is_repeated:
            self._shrink(flight_bytes)
        # The loss window of RFC 5681, 3.1.
        self.cwnd = self._mss

    def undo(self, flight_bytes: int) -> None:
        """Undo the last reduction, because nothing was lost.

        Slow start leads back to the former window (RFC 4015).
        """
        self.ssthresh = self._before
        self.cwnd = flight_bytes + self.initial

    def restart(self) -> None:
        """Restart after idleness of longer than a time-out.

        Knowledge of the path is then out of date.
        """
        self.cwnd = min(self.cwnd, self.initial)

    def _shrink(self, flight_bytes: int) -> None:
        # RFC 4015 restores this, and equation 4 of RFC 5681 halves what is in flight.
        self._before = max(flight_bytes, self.ssthresh)
        self.ssthresh = max(flight_bytes // 2, 2 * self._mss)
        self._counted = 0


@dataclass(frozen=True, slots=True)
class Aggressiveness:
    """The function F of a connection that carries `iteration_bytes` in each iteration.

    Source: Rajasekaran et al., MLTCP, HotNets '24 (arXiv 2402.09589), section 3: in congestion
    avoidance, Reno's additive increase is multiplied by ``F(bytes_ratio) = slope * bytes_ratio +
    intercept``. The paper's sender finds the iterations of a connection by pauses in its
    acknowledgements, and learns how many bytes they have. Here the number of bytes is known, and it
    is the same in every iteration, so the position in the byte sequence tells the ratio.
    """

    iteration_bytes: int
    slope: float = 1.75
    intercept: float = 0.25

    def growth(self, acked_bytes: int) -> float:
        """Return F when `acked_bytes` have been acknowledged since the connection began."""
        if self.iteration_bytes:
            done = acked_bytes % self.iteration_bytes
        else:
            done = 0
        return self.slope * done / max(1, self.iteration_bytes) + self.intercept


class MltcpWindow(NewReno):
    """NewReno with the additive increase of MLTCP.

    Slow start and reactions to loss stay as they are.
    """

    __slots__ = ("_aggressiveness",)

    def __init__(
        self,
        aggressiveness: Aggressiveness,
        mss_bytes: int,
        initial_bytes: int | None = None,
    ) -> None:
        super().__init__(mss_bytes, initial_bytes)
        self._aggressiveness = aggressiveness

    def grow(self, acked_bytes: int, total_bytes: int) -> None:
        """Grow by F times what NewReno would in congestion avoidance."""
        if self.cwnd >= self.ssthresh:
            acked_bytes = round(acked_bytes * self._aggressiveness.growth(total_bytes))
        super().grow(acked_bytes, total_bytes)


# RFC 6298: a second before the first measurement (2.1), and never more than a minute (2.5).
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
        if self._srtt_ns < 0:
            return None
        return self._srtt_ns

    def measure(self, rtt_ns: int) -> None:
        """Take the round trip of a segment that was sent once (Karn's rule)."""
        srtt_ns = self._srtt_ns
        if srtt_ns < 0:
            self._srtt_ns = rtt_ns
            self._rttvar_ns = rtt_ns // 2
        else:
            # The gains of RFC 6298, 2.3. The deviation is from the mean before this measurement.
            self._rttvar_ns = (3 * self._rttvar_ns + abs(srtt_ns - rtt_ns)) // 4
            self._srtt_ns = (7 * srtt_ns + rtt_ns) // 8
        self.settle()

    def settle(self) -> None:
        """Forget earlier time-outs: what was sent is acknowledged."""
        if self._srtt_ns >= 0:
            rto_ns = self._srtt_ns + 4 * self._rttvar_ns
            self.rto_ns = min(max(rto_ns, self._min_ns), MAX_NS)

    def back_off(self) -> None:
        """Double the time-out after it has expired."""
        self.rto_ns = min(2 * self.rto_ns, MAX_NS)
