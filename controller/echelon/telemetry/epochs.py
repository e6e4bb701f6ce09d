"""Iterations that switches report modulo 256, counted on."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon.p4program import constants

EPOCHS = 256
BEHIND = EPOCHS - constants()["STRAGGLER_FROM"]
"""Up to so many iterations behind the newest is behind; anything else that differs is newer. As the switches do."""


def ahead(epoch: int, of: int) -> int:
    """Return by how many iterations `epoch` is ahead of the epoch `of`; negative: behind."""
    forward = (epoch - of) % EPOCHS
    return forward if forward < EPOCHS - BEHIND else forward - EPOCHS


@dataclass(slots=True)
class Counting:
    """Numbers for the iterations of a job that only grow. A number is no iteration count: a job that is started anew,
    or was not seen for long, makes it jump."""

    newest: int | None = None
    _floor: int = 0

    def number(self, epoch: int) -> int:
        if self.newest is None:
            self.newest = -(-self._floor // EPOCHS) * EPOCHS + epoch
            return self.newest
        number = self.newest + ahead(epoch, self.newest % EPOCHS)
        self.newest = max(self.newest, number)
        return number

    def begin_anew(self) -> None:
        """Begin another run of the job, whose iterations get numbers that no earlier iteration has."""
        if self.newest is not None:
            self._floor, self.newest = self.newest + BEHIND, None


@dataclass(slots=True)
class IterationClock:
    """Times between the starts of a job's head flow in iterations that follow each other, by the clock of one switch.

    Fed with the job's events from that switch, in the switch's order. Where an iteration was missed, or the job or
    the switch was started anew, there is no time rather than a wrong one.
    """

    _epoch: int | None = None
    """Time of the latest start; None: unknown."""
    _time_s: Fraction = Fraction(0)
    _finish_s: Fraction | None = None
    _middle: bool = True
    """The latest start (or the next, if there is none) may be no start: where a switch begins to follow a flow, the
    first packet that it sees may be from the middle."""

    def start(self, epoch: int, time_s: Fraction) -> tuple[Fraction | None, bool]:
        """The head flow's first packet. Returns the duration (seconds) of the iteration that ends with it, if it is
        known, and whether the job was evidently started anew."""
        if self._epoch is None:
            self._begin(epoch, time_s)
            return None, False
        distance = ahead(epoch, self._epoch)
        if distance <= 0 and time_s <= self._time_s:
            return None, False  # the same digest again, or an older one
        if distance == 0:
            # The switch follows the flow by another number now: from its middle.
            self._miss()
            return None, False
        duration_s = time_s - self._time_s
        known = distance == 1 and duration_s > 0 and not self._middle
        # A clock that went back is that of a switch which was started anew.
        self._middle = duration_s <= 0
        self._begin(epoch, time_s)
        return duration_s if known else None, distance < 0

    def finish(self, epoch: int, time_s: Fraction) -> None:
        """The head flow's last packet. That comes once in an iteration: of a job that is started anew in its k-th
        iteration, k <= 16, nothing is reported up to its k-th again, and of that only the finish, once more."""
        if epoch != self._epoch:
            return
        if self._finish_s is None:
            self._finish_s = time_s
        elif time_s != self._finish_s:
            self._miss()

    def other(self, epoch: int) -> None:
        """An event of another flow of the job: one that is two iterations on tells that a start was missed, so that
        the one 256 iterations later is not taken for the next."""
        if self._epoch is not None and ahead(epoch, self._epoch) > 1:
            self._miss()

    def lose(self) -> None:
        """Events may be missing from here on, the clock be another, and the switch follow the flow anew."""
        self._epoch = None
        self._middle = True

    def _miss(self) -> None:
        """Note that the latest start is not the one before the next."""
        self._epoch = None
        self._middle = False

    def _begin(self, epoch: int, time_s: Fraction) -> None:
        self._epoch, self._time_s, self._finish_s = epoch, time_s, None
