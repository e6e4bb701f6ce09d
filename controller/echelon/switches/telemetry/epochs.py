"""Continuous numbers for iterations, which switches report modulo 256."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon.model.p4program import constants

EPOCHS = 256
BEHIND = EPOCHS - constants()["STRAGGLER_FROM"]
"""The most iterations that an epoch can be behind the newest one.

As for the switches, any other epoch is newer.
"""


def ahead(epoch: int, reference: int) -> int:
    """Return the number of iterations by which `epoch` is ahead of another epoch.

    It is negative if `epoch` is behind.
    """
    forward = (epoch - reference) % EPOCHS
    if forward < EPOCHS - BEHIND:
        return forward
    return forward - EPOCHS


@dataclass(slots=True)
class Counting:
    """Numbers for the iterations of a job, which only grow.

    A number is not an iteration count: it jumps when a job restarts or was not seen for long.
    """

    newest: int | None = None
    _floor: int = 0

    def number(self, epoch: int) -> int:
        """Return the number of the iteration that is reported with `epoch`."""
        if self.newest is None:
            self.newest = -(-self._floor // EPOCHS) * EPOCHS + epoch
            return self.newest
        number = self.newest + ahead(epoch, self.newest % EPOCHS)
        self.newest = max(self.newest, number)
        return number

    def restart(self) -> None:
        """Begin another run of the job, whose iterations get numbers that none has had."""
        if self.newest is not None:
            self._floor = self.newest + BEHIND
            self.newest = None


@dataclass(slots=True)
class IterationClock:
    """The times between starts of a job's head flow, by the clock of one switch.

    The starts are those of iterations that follow each other.

    It takes the job's events from that switch, in the switch's order. Where an iteration was
    missed, or the job or the switch was started anew, it gives no time rather than a wrong one.
    """

    _epoch: int | None = None
    """The epoch of the latest start; None if unknown."""
    _time_s: Fraction = Fraction(0)
    """The time of the latest start."""
    _finish_s: Fraction | None = None
    """The time of the finish of that iteration; None if there was none yet."""
    _middle: bool = True
    """Whether the latest start (or the next, if there is none) may be a packet from the middle of
    the flow, as it is where a switch begins to follow a flow."""

    def start(self, epoch: int, time_s: Fraction) -> tuple[Fraction | None, bool]:
        """Take the head flow's first packet.

        Return the duration, in seconds, of the iteration that ends with it, if known, and whether
        the job evidently restarted.
        """
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
        is_iteration = distance == 1 and duration_s > 0 and not self._middle
        # A clock that went back is that of a switch which was restarted.
        self._middle = duration_s <= 0
        self._begin(epoch, time_s)
        return duration_s if is_iteration else None, distance < 0

    def finish(self, epoch: int, time_s: Fraction) -> None:
        """Take the head flow's last packet, which comes once in an iteration.

        If a job restarts in its k-th iteration, k <= 16, switches report nothing until the k-th
        iteration comes again, and of that one only the finish, a second time.
        """
        if epoch != self._epoch:
            return
        if self._finish_s is None:
            self._finish_s = time_s
        elif time_s != self._finish_s:
            self._miss()

    def other(self, epoch: int) -> None:
        """Take an event of another flow of the job.

        An event two iterations ahead shows that a start was missed. Without this, the start 256
        iterations later would look like the next one.
        """
        if self._epoch is not None and ahead(epoch, self._epoch) > 1:
            self._miss()

    def lose(self) -> None:
        """Note that events may be missing.

        The clock may have changed, and the switch may follow the flow anew.
        """
        self._epoch = None
        self._middle = True

    def _miss(self) -> None:
        """Note that the latest start is not the one before the next."""
        self._epoch = None
        self._middle = False

    def _begin(self, epoch: int, time_s: Fraction) -> None:
        self._epoch = epoch
        self._time_s = time_s
        self._finish_s = None
