"""The pacing of one flow's segments, at a rate that a central scheduler tells and may change meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from echelon.lab.endhosts.segments import DataSegment
from echelon.targets.virtual import Clock

NS_PER_S = 1_000_000_000
CREDIT_SEGMENTS = 2
"""Number of segments by which a sender may catch up after it had nothing to send."""


class SegmentPacer:
    """Segments on their way to `transmit`. Until the first rate is told, they pass at once."""

    __slots__ = ("_at_ns", "_clock", "_debt_bytes", "_rate_Bps", "_timer", "_transmit", "_waiting")

    def __init__(self, clock: Clock, transmit: Callable[[DataSegment], None]) -> None:
        self._clock = clock
        self._transmit = transmit
        self._rate_Bps: float | None = None
        self._waiting: deque[DataSegment] = deque()
        self._debt_bytes = 0.0
        """Bytes that have to be paid for, at the rate, before the next segment may leave; negative: a credit."""
        self._at_ns = 0
        """The time when the debt was last brought up to date."""
        self._timer = 0
        """The number of the newest timer; older ones do nothing."""

    @property
    def holds(self) -> bool:
        """Whether segments wait for their time."""
        return bool(self._waiting)

    def offer(self, segment: DataSegment) -> None:
        """Send a segment when it is its turn."""
        if self._rate_Bps is None:
            self._transmit(segment)
            return
        self._waiting.append(segment)
        if len(self._waiting) == 1:
            self._go_on()

    def pace(self, rate_Bps: float | None) -> None:  # noqa: N803
        """Send at this rate from now on, in bytes per second on the wire. None: without a limit."""
        self._pay()
        self._rate_Bps = rate_Bps
        self._go_on()

    def _pay(self) -> None:
        """Bring the debt up to date."""
        now_ns = self._clock.now_ns
        if self._rate_Bps is None:
            self._debt_bytes = 0.0
        else:
            self._debt_bytes -= self._rate_Bps * (now_ns - self._at_ns) / NS_PER_S
        self._at_ns = now_ns

    def _go_on(self) -> None:
        """Send what may leave now, and set a timer for the next segment."""
        self._pay()
        self._timer += 1
        rate_Bps = self._rate_Bps  # noqa: N806
        while self._waiting and rate_Bps != 0:
            length_bytes = self._waiting[0].length_bytes
            self._debt_bytes = max(self._debt_bytes, -CREDIT_SEGMENTS * length_bytes)
            if rate_Bps is not None and self._debt_bytes > 0:
                wait_ns = int(self._debt_bytes / rate_Bps * NS_PER_S) + 1
                self._clock.at(self._clock.now_ns + wait_ns, self._on_timer, self._timer)
                return
            self._debt_bytes += length_bytes
            self._transmit(self._waiting.popleft())

    def _on_timer(self, timer: int) -> None:
        if timer == self._timer:
            self._go_on()
