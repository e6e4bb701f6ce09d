"""Detection of a job's iterations by silence and bytes, as switches do it, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon_torch.agent.connections import Totals

SHARE = Fraction(95, 100)
"""Share of the last iteration's bytes before which a silence is a pause for computing."""


@dataclass(frozen=True, slots=True)
class SentIteration:
    """An iteration that has ended, from its first bytes to the first bytes of the next."""

    start_s: float
    duration_s: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """An iteration that has ended, and what a host has sent in it."""

    seen: SentIteration
    carried: Totals
    """The bytes that the connections carried in it."""


class IterationDetector:
    """A detector of iterations, by the total of bytes that a host has sent for a job.

    An iteration begins with the first bytes after a silence of more than `idle_gap_s`, if the one
    before has brought at least 95 % of the bytes of the one before that. A silence counts only if
    an observation falls into it after `idle_gap_s`: observe several times in that time.
    """

    def __init__(self, idle_gap_s: float) -> None:
        self.begun = 0
        """The number of iterations that have begun."""
        self._idle_gap_s = idle_gap_s
        self._least_bytes = Fraction(0)
        self._total: int | None = None
        self._began_at = 0
        """The total when the iteration began."""
        self._began_s = 0.0
        self._sent_s = 0.0
        """The time at which bytes were sent last."""
        self._is_silent = True

    def observe(
        self,
        now_s: float,
        total_bytes: int,
        since_sent_s: float = 0.0,
    ) -> SentIteration | None:
        """Take the total of bytes at `now_s`, the last of which were sent `since_sent_s` ago.

        Totals never fall.

        Return the iteration that has ended, if the next one has begun.
        """
        if self._total is None:
            self._total = self._began_at = total_bytes
        if total_bytes == self._total:
            self._is_silent = self._is_silent or now_s - self._sent_s > self._idle_gap_s
            return None
        carried = self._total - self._began_at
        begins = self._is_silent and carried >= self._least_bytes
        before_s = self._began_s
        self._sent_s = now_s - since_sent_s
        self._is_silent = False
        ended: SentIteration | None = None
        if begins:
            if self.begun:
                ended = SentIteration(before_s, self._sent_s - before_s, carried)
                self._least_bytes = carried * SHARE
            self.begun += 1
            self._began_s, self._began_at = self._sent_s, self._total
        self._total = total_bytes
        return ended


class IterationMeter:
    """A measurement of what a host sends in each iteration, by its totals."""

    def __init__(self, idle_gap_s: float) -> None:
        self.detector = IterationDetector(idle_gap_s)
        self._began = self._last = Totals()

    def observe(
        self,
        now_s: float,
        totals: Totals,
        since_sent_s: float = 0.0,
    ) -> MeasuredIteration | None:
        """Take the totals at `now_s`; the last bytes were sent `since_sent_s` ago.

        Return the iteration that has ended, if the next one has begun.
        """
        begun = self.detector.begun
        ended = self.detector.observe(now_s, totals.sent_bytes, since_sent_s)
        measured: MeasuredIteration | None = None
        if self.detector.begun > begun:
            # What was sent until the reading before belongs to the iteration that has ended.
            if ended is not None:
                measured = MeasuredIteration(ended, self._last.minus(self._began))
            self._began = self._last
        self._last = totals
        return measured
