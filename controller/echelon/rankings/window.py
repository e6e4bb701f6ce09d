"""Ranking by the time of a period at which a packet arrives (CASSINI)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from echelon.rankings.base import Profile, RankingAction, Step, SwitchNumbers, microseconds, steps, unsigned_us


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

    def action(self, at: SwitchNumbers) -> RankingAction:
        period_us = unsigned_us("the period of", self.period_s, at.offset_bits)
        if not period_us:
            raise ValueError(f"a period of {float(self.period_s):g} s is too short: switches count microseconds")
        profile = at.profile(
            ("window", self.period_s, self.begin_s, self.end_s, self.inside, self.outside),
            lambda: Profile(self._steps(period_us, at.key_bits)),
        )
        return RankingAction("window", {"group": at.group("window"), "profile": profile, "period_us": period_us})

    def _steps(self, period_us: int, key_bits: int) -> tuple[Step, ...]:
        """Return the steps of keys that are the time left in the period: `period_us` at its beginning, 1 at its end."""
        begin, end = (period_us - microseconds(at_s) + 1 for at_s in (self.begin_s, self.end_s))
        if begin < end:
            return steps((begin, end), (self.inside, self.outside, self.inside), key_bits)
        return steps((end, begin), (self.outside, self.inside, self.outside), key_bits)
