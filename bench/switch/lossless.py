"""The highest rate that a switch carries without loss: the search, without traffic of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LOSS_LIMIT = 1e-3
"""Share of the frames that may be missing."""
GRACE_S = 0.02
"""A frame that has not left so long after the last one was sent counts as lost: a rate that only
fills buffers is not carried."""
_GENERATOR_SHORTFALL = 0.01
"""A run whose generator stays behind by more, without loss, says nothing; so many of them in a row
are an error:
"""
_GENERATOR_TRIES = 3


@dataclass(frozen=True, slots=True)
class Trial:
    """Frames offered at `rate_pps`, and how many of them came out in time."""

    rate_pps: float
    """as really sent"""
    offered: int
    carried: int
    late: int = 0
    """came out, but too late to be counted as carried"""

    @property
    def loss(self) -> float:
        """Share of the offered frames that did not come out."""
        return 1 - self.carried / self.offered

    @property
    def is_lossless(self) -> bool:
        return self.loss <= LOSS_LIMIT


class GeneratorLimitError(Exception):
    """The generator cannot send as fast as the switch forwards: it carries at least `rate_pps`."""

    def __init__(self, rate_pps: float, wanted_pps: float) -> None:
        super().__init__(
            f"the generator sent {rate_pps:,.0f} packets/s when {wanted_pps:,.0f} were asked for,"
            " and the switch lost none: this machine is too busy, or too slow, to measure"
        )
        self.rate_pps = rate_pps


@dataclass(frozen=True, slots=True)
class Search:
    """The settings of a search. Durations are in seconds."""

    probe_s: float = 1.0
    confirm_s: float = 2.0
    confirmations: int = 3
    """runs at the rate that was found, of which all but one must be lossless"""
    resolution: float = 0.02
    """the search ends when the rate is known to so large a part of itself"""
    step: float = 0.05
    """a rate that is not confirmed is lowered by so large a part of itself, one that is confirmed
    raised once more
    """
    lowest_pps: float = 500.0
    highest_pps: float = 10_000_000.0


def lossless_rate(
    trial: Callable[[float, float], Trial],
    start_pps: float,
    search: Search,
) -> float:
    """Return the highest rate in packets/s at which `trial(rate_pps, duration_s)` is lossless; 0 if
    none is.

    Brackets it from `start_pps` on, bisects, and confirms; then climbs as long as more is
    confirmed. With that, and a second chance for every probe that fails, a machine which was busy
    with something else for a moment does not end the search too low.

    Raises GeneratorLimitError.
    """

    def lossless(rate_pps: float, duration_s: float) -> bool:
        for _ in range(_GENERATOR_TRIES):
            done = trial(rate_pps, duration_s)
            if not done.is_lossless or done.rate_pps >= rate_pps * (1 - _GENERATOR_SHORTFALL):
                return done.is_lossless
        raise GeneratorLimitError(done.rate_pps, rate_pps)

    def carries(rate_pps: float) -> bool:
        return any(lossless(rate_pps, search.probe_s) for _ in range(2))

    def confirmed(rate_pps: float) -> bool:
        failed = 0
        for _ in range(search.confirmations):
            failed += not lossless(rate_pps, search.confirm_s)
            if failed > 1:
                return False
        return True

    good = 0.0
    bad = 0.0
    rate = min(max(start_pps, search.lowest_pps), search.highest_pps)
    while not good or not bad:
        if carries(rate):
            good = rate
            if rate >= search.highest_pps:
                break
            rate = min(rate * 1.25, search.highest_pps)
        else:
            bad = rate
            if rate <= search.lowest_pps:
                return 0.0
            rate = max(rate / 1.25, search.lowest_pps)
    while bad and bad / good > 1 + search.resolution:
        middle = (good * bad) ** 0.5
        if carries(middle):
            good = middle
        else:
            bad = middle
    if confirmed(good):
        while good < search.highest_pps:
            higher = min(good * (1 + search.step), search.highest_pps)
            if not confirmed(higher):
                break
            good = higher
        return good
    while good > search.lowest_pps:
        good *= 1 - search.step
        if confirmed(good):
            return good
    return 0.0
