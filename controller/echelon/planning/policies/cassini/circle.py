"""The geometric abstraction: jobs rolled around a circle, and rotated apart.

A circle's perimeter is the least common multiple of the jobs' iteration times, so that each job
goes round a whole number of times. (CASSINI, section 3.)
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import accumulate, pairwise
from operator import mul, sub
from typing import NamedTuple

from echelon.planning.allocation import Number

ANGLES = 72
"""The discrete angles of a circle: one for each 5 degrees, which the paper finds precise enough."""
ANGLES_PER_ITERATION = 12
"""The least number of angles for the shortest iteration, where a circle holds many."""
QUANTA = 60
"""Iteration times are rounded to this part of the longest on the circle.

Otherwise, few pairs have a common multiple.
"""
LONGEST = 12
"""The longest iterations that a circle holds. One that would be larger is cut off: a sample of the
phases that the jobs go through."""


TINY = 1e-9
"""The demand above capacity that is a rounding error, in angles of the whole link."""
_GRAINS = 2**60
"""The grains of an iteration and of the whole link. They are finer than the bits of a float, so that
sums of them are exact: only what is given is rounded, by some 2^-52 of an iteration a burst."""


_LANE_BYTES = 8
_LANE_BITS = 8 * _LANE_BYTES
_CAPACITY = 2**40
"""The capacity of the link in a lane: demands are rounded down to this part of it. Over all angles
that is 1e-8 at most, and some 1e-10 by chance, as roundings differ."""
_OVER = 50
"""The bit of a lane that is above demands: they are less than 1,024 links. So the sum over the
8,640 angles that a circle has at most fits into a lane."""
_KEPT = 64
"""The masks that are kept: a circle needs up to 16, of 35 kB on average."""


class Communication(NamedTuple):
    """Communication from `begin_s` to `end_s` of an iteration. The iteration's start is 0."""

    begin_s: Number
    end_s: Number
    share: Number
    """The part of the link's capacity that it takes."""


@dataclass(frozen=True)
class Profile:
    """The traffic that a job sends over a link in each iteration."""

    period_s: Fraction
    bursts: tuple[Communication, ...]

    @cached_property
    def peak(self) -> float:
        """Return an upper bound of the part of the capacity that it takes at any time."""
        return math.fsum(burst.share for burst in self.bursts)

    @cached_property
    def _curve(self) -> tuple[list[int], list[int], list[int]]:
        """Return when its rate changes, the rate from then, and what is sent by then, in grains."""
        period_s = float(self.period_s)
        changes: dict[int, int] = defaultdict(int, {0: 0})
        for begin_s, end_s, share in self.bursts:
            rate = round(share * _GRAINS)
            changes[round(float(begin_s) / period_s * _GRAINS)] += rate
            changes[round(float(end_s) / period_s * _GRAINS)] -= rate
        times = sorted(changes)
        rates = list(accumulate(map(changes.__getitem__, times)))
        lengths = map(sub, [*times[1:], _GRAINS], times)
        return times, rates, [0, *accumulate(map(mul, rates, lengths))]

    def sent_by(self, time: int) -> int:
        """Return what is sent in a time in grains, in grains of the link for a grain of time."""
        times, rates, sent = self._curve
        iterations, phase = divmod(time, _GRAINS)
        index = bisect_right(times, phase) - 1
        return iterations * sent[-1] + sent[index] + rates[index] * (phase - times[index])


@dataclass(frozen=True, slots=True)
class Rotation:
    """The best rotation of the jobs on a circle."""

    shifts_s: tuple[Fraction, ...]
    """Seconds by which each job starts later, less than its iteration time; the first job stays."""
    score: float
    """1 less the demand above capacity, as a part of what the link carries in the same time. 1:
    fully compatible.
    """
    unrotated: float
    """The score if all jobs start together."""
    step_s: Fraction
    """The time that one angle stands for."""


def quantised_s(periods_s: Sequence[Fraction]) -> list[Fraction]:
    """Return iteration times rounded to a `QUANTA`-th of the longest."""
    quantum_s = max(periods_s) / QUANTA
    quantised = []
    for period_s in periods_s:
        quanta = max(1, round(period_s / quantum_s))
        quantised.append(quanta * quantum_s)
    return quantised


def perimeter_s(periods_s: Sequence[Fraction]) -> Fraction:
    """Return the least common multiple of iteration times, at most `LONGEST` of the longest."""
    longest_s = max(periods_s)
    counts = [period_s * QUANTA / longest_s for period_s in periods_s]
    numerator = math.lcm(*(count.numerator for count in counts))
    denominator = math.gcd(*(count.denominator for count in counts))
    common = numerator // denominator
    return min(Fraction(common, QUANTA), Fraction(LONGEST)) * longest_s


def rotate(profiles: Sequence[Profile]) -> Rotation:
    """Return the best rotation that coordinate descent finds; for two jobs the best there is.

    Each job in turn takes the angle that adds least to the demand above capacity, first with the
    jobs before it only, then with all others until nothing improves. Of equal angles the smallest
    is taken. Iteration times that are close to a common multiple are taken as equal to it.
    """
    periods_s = quantised_s([profile.period_s for profile in profiles])
    circle_s = perimeter_s(periods_s)
    angles = max(ANGLES, math.ceil(ANGLES_PER_ITERATION * circle_s / min(periods_s)))
    step_s = circle_s / angles
    demands = []
    for profile, period_s in zip(profiles, periods_s, strict=True):
        demands.append(_demand(profile, step_s / period_s, angles))

    # The last pass meets the same demands again.
    best = cache(_best)
    chosen = [0] * len(profiles)
    parts = [demands[0].rotated(0), *chosen[1:]]
    total = parts[0]
    excess = math.inf
    improves = True
    while improves:
        before = excess
        for number, demand in enumerate(demands[1:], 1):
            rest = total - parts[number]
            chosen[number] = best(demand, rest)
            parts[number] = demand.rotated(chosen[number])
            total = rest + parts[number]
        excess = _excess(total, angles)
        improves = TINY < excess < before - TINY

    shifts_s = []
    for steps, period_s in zip(chosen, periods_s, strict=True):
        shifts_s.append(step_s * steps % period_s)
    together = sum(demand.rotated(0) for demand in demands)
    unrotated = 1 - _excess(together, angles) / angles
    return Rotation(tuple(shifts_s), 1 - excess / angles, unrotated, step_s)


class _Demand(NamedTuple):
    """The mean part of the capacity that a job takes at each angle, in lanes of one number.

    The first angle is in the lowest lane. Operations on the number work on all angles at once: to
    try a rotation takes 0.1 ms for 8,640 angles, and 1.3 ms with lists of floats.
    """

    samples: int
    """The angles of all rotations: each is the same samples, begun earlier."""
    rotations: int
    angles: int

    def rotated(self, steps: int) -> int:
        first = self.rotations - 1 - steps
        return self.samples >> _LANE_BITS * first & _all_ones(self.angles)


def _demand(
    profile: Profile,
    step: Fraction,
    angles: int,
) -> _Demand:
    """Return the demand of a job of whose iteration an angle is the part `step`.

    The profile is stretched to the quantised iteration time.
    """
    rotations = math.ceil(1 / step)
    count = rotations - 1 + angles
    # After a cycle, angles are at the same places of the iteration again.
    cycle = min(step.denominator, count)
    sent = []
    for index in range(1 - rotations, 2 - rotations + cycle):
        time = index * step.numerator * _GRAINS // step.denominator
        sent.append(profile.sent_by(time))

    unit = int(step * _GRAINS**2 / _CAPACITY)
    lanes = bytearray()
    for before, after in pairwise(sent):
        sample = (after - before) // unit
        lanes += sample.to_bytes(_LANE_BYTES, "little")
    lanes *= math.ceil(count / cycle)
    samples = int.from_bytes(lanes[: count * _LANE_BYTES], "little")
    return _Demand(samples, rotations, angles)


def _best(demand: _Demand, rest: int) -> int:
    """Return the smallest of the rotations that add least to the demand above capacity."""
    excesses = []
    for steps in range(demand.rotations):
        total = rest + demand.rotated(steps)
        excesses.append(_excess(total, demand.angles))
    least = min(excesses)
    return next(steps for steps, excess in enumerate(excesses) if excess <= least + TINY)


def _excess(total: int, angles: int) -> float:
    """Return the sum of what is above capacity at each angle, in angles of the whole link."""
    # This sets the bit `_OVER` of a lane, above its demand, unless it is below capacity.
    over = total + _repeated((1 << _OVER) - _CAPACITY, angles)
    is_over = over >> _OVER & _repeated(1, angles)
    lanes = over & (is_over << _OVER) - is_over

    # Halves are added until one lane has the sum of all.
    while angles > 1:
        angles -= angles // 2
        upper = lanes >> _LANE_BITS * angles
        lanes = (lanes & _all_ones(angles)) + upper
    return lanes / _CAPACITY


@lru_cache(_KEPT)
def _all_ones(lanes: int) -> int:
    return (1 << _LANE_BITS * lanes) - 1


@lru_cache(_KEPT)
def _repeated(value: int, lanes: int) -> int:
    return _all_ones(lanes) // _all_ones(1) * value
