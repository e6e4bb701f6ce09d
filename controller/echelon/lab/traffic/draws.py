"""Random draws that are the same on every machine: only `Random.random` is used, whose values Python guarantees.

Values that are drawn together may be drawn in two ways (`DRAWS`):

* ``printed``: independently, as the thesis prints it. Then the load of a schedule is left to chance: sizes of web
  search have a standard deviation of 2.3 times their mean, so that of 1,000 flows the total has one of 7 %.
* ``matched``: like cards from a pack that holds each size as often as the distribution says. Every single flow is
  distributed as before, and sizes come in an order as random; the total is off by a part of the largest size: under 1 %
  for 1,000 flows of web search. Where it is more than 2 % off, as may be for a few hundred flows, they are drawn again
  (at most 50 times), which makes some sizes more frequent by a flow or so. Gaps between starts are stretched together,
  by one factor, so that they fill the time they are for.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import Protocol, TypeVar

from echelon.lab.traffic.sizes import SizeDistribution

T = TypeVar("T")

Gap = Callable[[float, Random], float]
"""Function of (mean gap in microseconds, random numbers) that returns one gap in microseconds."""


def exponential_gap(mean_us: float, rng: Random) -> float:
    """Return a gap of a Poisson process, whose starts are independent of each other."""
    return -math.log(1 - rng.random()) * mean_us


def poisson_gap(mean_us: float, rng: Random) -> float:
    """Return a gap of whole microseconds, distributed by Poisson as the thesis prints it.

    It is nearly periodic where the mean is large. The deviation of such a gap is the root of its mean: 3 % at 974 us,
    where that of an exponential gap is 100 %.
    """
    first, cumulative = _poisson_table(mean_us)
    return first + min(bisect_right(cumulative, rng.random()), len(cumulative) - 1)


@lru_cache(maxsize=64)
def _poisson_table(mean: float) -> tuple[int, Sequence[float]]:
    """Return k and the probabilities of at most k, k + 1..., as far as they differ from 0 and 1 by more than 10^-16."""
    reach = 9 * math.sqrt(mean) + 40
    first, last = max(int(mean - reach), 0), int(mean + reach)
    log_mean = math.log(mean)
    chances = [math.exp(k * log_mean - mean - math.lgamma(k + 1)) for k in range(first, last + 1)]
    total = math.fsum(chances)
    return first, [chance / total for chance in accumulate(chances)]


GAPS: Mapping[str, Gap] = {"exponential": exponential_gap, "poisson": poisson_gap}
"""Distributions of gaps by their names in files and on the command line."""


class Draw(Protocol):
    """A way to draw many values together."""

    def sizes(self, sizes: SizeDistribution, count: int, total_bytes: float, rng: Random) -> list[int]:
        """Return `count` sizes in bytes that are to make `total_bytes` (about `count` times their mean)."""

    def window_us(self, wanted_us: int, lasts_us: float) -> float:
        """Return the length of a window of endless traffic that should take `wanted_us` and whose bytes last
        `lasts_us`."""

    def starts(self, gap: Gap, count: int, time_us: float, rng: Random) -> list[float]:
        """Return `count` ascending times in microseconds from 0 on, with mean gaps of ``time_us / count``."""


class _Printed:
    def sizes(self, sizes: SizeDistribution, count: int, total_bytes: float, rng: Random) -> list[int]:
        return [sizes.sample(rng) for _ in range(count)]

    def window_us(self, wanted_us: int, lasts_us: float) -> float:
        return wanted_us

    def starts(self, gap: Gap, count: int, time_us: float, rng: Random) -> list[float]:
        mean_us = time_us / count
        return list(accumulate(gap(mean_us, rng) for _ in range(count)))


class _Matched:
    def sizes(self, sizes: SizeDistribution, count: int, total_bytes: float, rng: Random) -> list[int]:
        nearest: list[int] = []
        nearest_off = math.inf
        for _ in range(_DRAWS):
            # One from each of `count` equally likely layers of the distribution: a flow may be in any of them.
            drawn = [sizes.quantile(min((layer + rng.random()) / count, _BELOW_1)) for layer in range(count)]
            off = abs(sum(drawn) - total_bytes)
            if off < nearest_off:
                nearest, nearest_off = drawn, off
            if nearest_off <= _NEAR * total_bytes:
                break
        shuffle(nearest, rng)
        return nearest

    def window_us(self, wanted_us: int, lasts_us: float) -> float:
        return lasts_us

    def starts(self, gap: Gap, count: int, time_us: float, rng: Random) -> list[float]:
        # These are exactly the times of a Poisson process that is known to have had `count` events.
        mean_us = time_us / count
        times = list(accumulate(gap(mean_us, rng) for _ in range(count + 1)))
        stretch = time_us / times[-1] if times[-1] else 0.0
        return [time * stretch for time in times[:-1]]


_DRAWS, _NEAR = 50, 0.02
_BELOW_1 = math.nextafter(1.0, 0.0)

DRAWS: Mapping[str, Draw] = {"matched": _Matched(), "printed": _Printed()}
"""Ways to draw by their names on the command line."""


def shuffle(values: list[int], rng: Random) -> None:
    """Shuffle the values; all orders are equally likely (Fisher and Yates). `Random.shuffle` promises no order for a
    seed."""
    for last in range(len(values) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        values[last], values[other] = values[other], values[last]


def choice(values: Sequence[T], rng: Random) -> T:
    return values[int(rng.random() * len(values))]


def normal(mean: float, deviation: float, rng: Random) -> float:
    """Return one of the two values of Box and Muller's transform."""
    radius = math.sqrt(-2 * math.log(1 - rng.random()))
    return mean + deviation * radius * math.cos(2 * math.pi * rng.random())


def exponential_below(mean: float, limit: float, rng: Random) -> float:
    """Return an exponentially distributed value, given that it is below `limit`."""
    below = -math.expm1(-limit / mean)
    return min(-math.log1p(-rng.random() * below) * mean, math.nextafter(limit, 0.0))
