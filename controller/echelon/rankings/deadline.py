"""Ranking by ideal finish time (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from echelon.p4program import constants
from echelon.rankings.base import Profile, RankingAction, SwitchNumbers, microseconds, steps, unsigned_us

_RANK_BITS = 48
"""Width of a rank in a switch, which is two's complement."""
_FACTOR_BITS = 32
"""Width of the factor by which a switch multiplies a tardiness to get a rank."""
_IDLE = 16
"""A flow that has not sent for this part of its job's period is no longer at the port: longer than a round trip through
the queue of the most urgent, and short against the job's iteration."""


@dataclass(frozen=True, slots=True)
class Relative:
    """Levels relative to the most urgent flow at the port, by tardiness with memory.

    The rank of a packet is (now - d + E) / `period_s` - `head_start`, with d the ideal finish time of its flow and E
    the memory of its job. After each iteration, E becomes 3/4 (E + delay): the delay is the largest e - d of the job's
    flows in that iteration, less `alone_tardiness_s`. The most urgent flow at a port is in queue `highest`, and others
    are one queue lower for each of `steps` by which their rank is behind.
    """

    period_s: Fraction
    head_start: Fraction
    alone_tardiness_s: Fraction
    steps: tuple[Fraction, ...]

    def profile(self, lowest: int, highest: int, key_bits: int) -> Profile:
        """Return what switches need for flows that enter the queues from `lowest` to `highest`.

        Raise `ValueError` for steps that decrease, and for a period that is not positive.
        """
        if self.period_s <= 0 or any(a > b for a, b in pairwise((Fraction(0), *self.steps))):
            raise ValueError("the period of a relative ranking must be positive, and its steps must not decrease")
        unit = constants()["RANK_UNIT"]
        edges = [int(step * unit) + 1 for step in self.steps]
        queues = [max(highest - behind, lowest) for behind in range(len(edges) + 1)]
        factor, shift = self._factor(unit)
        # The switch multiplies the tardiness counted from the earliest that it can tell.
        earliest_us = (1 << (key_bits - 1)) - 1
        zero = -(earliest_us * factor >> shift) - round(self.head_start * unit)
        return Profile(
            steps(edges, queues, key_bits),
            (
                ("factor", factor),
                ("factor_shift", shift),
                ("rank_at_zero", zero % (1 << _RANK_BITS)),
                ("alone_tardiness_us", unsigned_us("tardiness alone", self.alone_tardiness_s, 32)),
                ("idle", unsigned_us("period", self.period_s / _IDLE, 32)),
            ),
        )

    def _factor(self, unit: int) -> tuple[int, int]:
        """Return the largest factor that fits, and shift, so that factor / 2**shift units pass in a microsecond."""
        per_us = unit / (self.period_s * 1_000_000)
        shift = _FACTOR_BITS - 1
        while per_us * (1 << shift) < 1 << (_FACTOR_BITS - 1):
            shift += 1
        while (factor := round(per_us * (1 << shift))) >= 1 << _FACTOR_BITS:
            shift -= 1
        return factor, shift


@dataclass(frozen=True, slots=True)
class Deadline:
    """The switch ranks each packet by its slack: reference time of `echelonflow` + `offset_s` - now.

    `thresholds_s` are `highest - lowest` ascending tardiness values in seconds: a packet whose tardiness has reached k
    of them goes to queue `lowest + k`. If `relative` is given, it decides instead of them.
    """

    echelonflow: str
    offset_s: Fraction
    thresholds_s: tuple[Fraction, ...]
    lowest: int = 0
    highest: int = 7
    relative: Relative | None = None

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)

    def action(self, at: SwitchNumbers) -> RankingAction:
        offset_us = unsigned_us("offset", self.offset_s, at.offset_bits)
        # The flows of a job share thresholds, mostly as one object: comparing those is much cheaper than making steps.
        profile = at.profile(
            ("deadline", self.thresholds_s, self.lowest, self.highest, self.relative),
            lambda: self.profile(at.key_bits),
        )
        numbers = {"echelonflow": at.echelonflow(self.echelonflow), "profile": profile, "offset_us": offset_us}
        return RankingAction("deadline", numbers)

    def profile(self, key_bits: int) -> Profile:
        """Return what maps keys of `key_bits` to queues.

        By thresholds, a key is a slack, biased so that keys order as slacks do. With `relative`, it is by how much the
        rank of the packet is behind that of the most urgent flow. Raise `ValueError` for thresholds that decrease.
        """
        if self.relative is not None:
            return self.relative.profile(self.lowest, self.highest, key_bits)
        if any(a > b for a, b in pairwise(self.thresholds_s)):
            raise ValueError(f"EchelonFlow {self.echelonflow}: tardiness thresholds must not decrease")
        bias = 1 << (key_bits - 1)
        # A slack of -threshold has reached it, one more has not.
        edges = [bias - microseconds(threshold_s) + 1 for threshold_s in reversed(self.thresholds_s)]
        queues = [min(self.lowest + reached, self.highest) for reached in range(len(edges), -1, -1)]
        return Profile(steps(edges, queues, key_bits))
