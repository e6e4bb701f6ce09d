"""The geometric abstraction: jobs rolled around a circle, and rotated until their communication
does not overlap.

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
"""Iteration times are rounded to this part of the longest on the circle; otherwise few pairs have a
common multiple.
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
    return [max(1, round(period_s / quantum_s)) * quantum_s for period_s in periods_s]


def perimeter_s(periods_s: Sequence[Fraction]) -> Fraction:
    """Return the least common multiple of quantised iteration times, at most `LONGEST` of the
    longest.
    """
    longest_s = max(periods_s)
    counts = [period_s * QUANTA / longest_s for period_s in periods_s]
    common = math.lcm(*(count.numerator for count in counts)) // math.gcd(
        *(count.denominator for count in counts)
    )
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
    demands = [
        _demands(profile, period_s, step_s, angles)
        for profile, period_s in zip(profiles, periods_s, strict=True)
    ]
    chosen = [0] * len(profiles)
    total = list(demands[0][0])
    for number in range(1, len(profiles)):
        chosen[number] = _best(demands[number], total)
        total = list(map(add, total, demands[number][chosen[number]]))
    while len(profiles) > 2 and (before := _excess(total)) > _TINY:
        for number in range(1, len(profiles)):
            others = list(map(sub, total, demands[number][chosen[number]]))
            chosen[number] = _best(demands[number], others)
            total = list(map(add, others, demands[number][chosen[number]]))
        if _excess(total) > before - _TINY:
            break
    together = [sum(at) for at in zip(*(demand[0] for demand in demands), strict=True)]
    return Rotation(
        tuple(step_s * steps % period_s for steps, period_s in zip(chosen, periods_s, strict=True)),
        1 - _excess(total) / angles,
        1 - _excess(together) / angles,
        step_s,
    )


def _demands(
    profile: Profile, period_s: Fraction, step_s: Fraction, angles: int
) -> list[list[float]]:
    """Return, by rotation in steps and by angle, the mean part of the capacity that the job takes.

    The profile is stretched to the quantised `period_s`.
    """
    rotations = math.ceil(period_s / step_s)
    step = float(step_s / period_s)
    bursts = [
        (
            float(burst.begin_s / profile.period_s),
            float((burst.end_s - burst.begin_s) / profile.period_s),
            float(burst.share),
        )
        for burst in profile.bursts
    ]
    in_all = sum(share * length for _, length, share in bursts)

    def sent(until: float) -> float:
        """Return what the job has sent by then; both in iterations of the whole link."""
        whole, rest = divmod(until, 1)
        return whole * in_all + sum(
            share * min(max(rest - begin, 0.0), length) for begin, length, share in bursts
        )

    # A rotation is the same samples, begun earlier.
    by_angle = [sent(index * step) for index in range(1 - rotations, angles + 1)]
    samples = [(after - before) / step for before, after in pairwise(by_angle)]
    return [
        samples[rotations - 1 - steps : rotations - 1 - steps + angles]
        for steps in range(rotations)
    ]


def _best(demands: Sequence[Sequence[float]], others: Sequence[float]) -> int:
    """Return the rotation that adds least to the demand above capacity; of equal ones the
    smallest.
    """
    beyond = [at - 1 for at in others]
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
    return sum(at - 1 for at in demand if at > 1)
