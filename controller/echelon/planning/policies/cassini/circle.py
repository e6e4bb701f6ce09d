"""The geometric abstraction: jobs rolled around a circle, and rotated apart.

A circle's perimeter is the least common multiple of the jobs' iteration times, so that each job
goes round a whole number of times. (CASSINI, section 3.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import add, sub

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


_TINY = 1e-9
"""The demand above capacity that is a rounding error, in angles of the whole link."""


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication from `begin_s` to `end_s` of an iteration. The iteration's start is 0."""

    begin_s: Fraction
    end_s: Fraction
    share: Fraction
    """The part of the link's capacity that it takes."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The traffic that a job sends over a link in each iteration."""

    period_s: Fraction
    bursts: tuple[Communication, ...]

    @property
    def peak(self) -> Fraction:
        """Return an upper bound of the part of the capacity that it takes at any time."""
        return sum((burst.share for burst in self.bursts), Fraction(0))


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
        demands.append(_demands(profile, period_s, step_s, angles))

    chosen = [0] * len(profiles)
    total = list(demands[0][0])
    for number in range(1, len(profiles)):
        chosen[number] = _best(demands[number], total)
        total = list(map(add, total, demands[number][chosen[number]]))
    excess = _excess(total)
    # With two jobs, the first pass has tried every rotation.
    while len(profiles) > 2 and excess > _TINY:
        before = excess
        for number in range(1, len(profiles)):
            rest = list(map(sub, total, demands[number][chosen[number]]))
            chosen[number] = _best(demands[number], rest)
            total = list(map(add, rest, demands[number][chosen[number]]))
        excess = _excess(total)
        if excess > before - _TINY:
            break

    shifts_s = []
    for steps, period_s in zip(chosen, periods_s, strict=True):
        shifts_s.append(step_s * steps % period_s)
    unrotated_demands = [demand[0] for demand in demands]
    together = list(map(sum, zip(*unrotated_demands, strict=True)))
    unrotated = 1 - _excess(together) / angles
    return Rotation(tuple(shifts_s), 1 - excess / angles, unrotated, step_s)


def _demands(
    profile: Profile,
    period_s: Fraction,
    step_s: Fraction,
    angles: int,
) -> list[list[float]]:
    """Return, by rotation in steps and by angle, the mean part of the capacity that the job takes.

    The profile is stretched to the quantised `period_s`.
    """
    rotations = math.ceil(period_s / step_s)
    step = float(step_s / period_s)
    bursts = []
    """Begin and length of each, in iterations, and its part of the link."""
    for burst in profile.bursts:
        begin = float(burst.begin_s / profile.period_s)
        length = float((burst.end_s - burst.begin_s) / profile.period_s)
        bursts.append((begin, length, float(burst.share)))
    in_all = sum(share * length for _, length, share in bursts)

    def sent(until: float) -> float:
        """Return what the job has sent by then; both in iterations of the whole link."""
        iterations, rest = divmod(until, 1)
        parts = []
        for begin, length, share in bursts:
            passed = min(max(rest - begin, 0.0), length)
            parts.append(share * passed)
        return iterations * in_all + sum(parts)

    by_angle = [sent(index * step) for index in range(1 - rotations, angles + 1)]
    samples = [(after - before) / step for before, after in pairwise(by_angle)]
    # A rotation is the same samples, begun earlier.
    return [samples[first : first + angles] for first in reversed(range(rotations))]


def _best(demands: Sequence[Sequence[float]], rest: Sequence[float]) -> int:
    """Return the rotation that adds least to the demand above capacity, the smallest of equals."""
    beyond = [demand - 1 for demand in rest]
    best = 0
    least = math.inf
    for steps, demand in enumerate(demands):
        excess = sum(above for above in map(add, demand, beyond) if above > 0)
        if excess < least - _TINY:
            best = steps
            least = excess
            if excess < _TINY:
                break
    return best


def _excess(demand: Sequence[float]) -> float:
    return sum(part - 1 for part in demand if part > 1)
