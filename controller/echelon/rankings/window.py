"""Ranking by the time of a period at which a packet arrives (CASSINI)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Window:
    """Packets that arrive between `begin_s` and `end_s` of each period go to queue `inside`, all others to `outside`.

    Periods of `period_s` follow each other from the start of the first iteration of the flow's job that the switch
    sees. If `begin_s` is after `end_s`, the window extends into the next period.
    """

    period_s: Fraction
    begin_s: Fraction
    end_s: Fraction
    inside: int
    outside: int

    @property
    def queues(self) -> range:
        return range(min(self.inside, self.outside), max(self.inside, self.outside) + 1)
