"""The geometric abstraction of CASSINI (NSDI '24), against its numbers and against brute force."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.policies.cassini.circle import (
    ANGLES,
    ANGLES_PER_ITERATION,
    TINY,
    Communication,
    Profile,
    perimeter_s,
    quantised_s,
    rotate,
)

MS = Fraction(1, 1000)


def job(period_ms: int, communication_ms: int, share: Fraction | int = 1) -> Profile:
    """Return a job that communicates first."""
    return Profile(
        period_ms * MS, (Communication(Fraction(0), communication_ms * MS, Fraction(share)),)
    )


def test_two_jobs_of_40_and_60_ms() -> None:
    """Both take the whole link for 10 ms: the circle is 120 ms, and 30 degrees of it are 10 ms."""
    rotation = rotate([job(40, 10), job(60, 10)])
    assert rotation.unrotated == pytest.approx(0.9167, abs=1e-4)
    assert rotation.score == pytest.approx(1)
    assert rotation.shifts_s == (0, 10 * MS)
    assert rotation.step_s == 120 * MS / ANGLES


@pytest.mark.parametrize(("communication", "score"), [(30, 1.0), (50, 1.0), (60, 0.8), (75, 0.5)])
def test_two_identical_jobs(communication: int, score: float) -> None:
    """The jobs fit as long as neither communicates for more than half of the time."""
    rotation = rotate([job(100, communication), job(100, communication)])
    assert rotation.score == pytest.approx(score, abs=1e-9)


def test_three_jobs_of_a_third_each_fit() -> None:
    rotation = rotate([job(90, 30), job(90, 30), job(90, 30)])
    assert rotation.unrotated == pytest.approx(1 - 2 / 3)
    assert rotation.score == pytest.approx(1)
    assert sorted(rotation.shifts_s) == [0, 30 * MS, 60 * MS]


def test_what_does_not_fill_the_link_together_needs_no_rotation() -> None:
    rotation = rotate([job(100, 80, Fraction(1, 2)), job(70, 60, Fraction(1, 2))])
    assert (rotation.score, rotation.unrotated) == (pytest.approx(1), pytest.approx(1))
    assert rotation.shifts_s == (0, 0)


def excess(profiles: list[Profile], starts: tuple[int, ...], circle_ms: int) -> Fraction:
    """Return the demand above capacity over one round, millisecond by millisecond."""
    out = Fraction(0)
    for at in range(circle_ms):
        demand = Fraction(0)
        for profile, start in zip(profiles, starts, strict=True):
            phase = (at - start) % int(profile.period_s / MS)
            demand += sum(b.share for b in profile.bursts if b.begin_s <= phase * MS < b.end_s)
        out += max(Fraction(0), demand - 1)
    return out


@st.composite
def circles(draw: st.DrawFn) -> tuple[list[Profile], int]:
    """Draw two or three jobs whose bursts begin and end on angles, so that brute force over angles
    is exact.
    """
    circle_ms = ANGLES
    profiles = []
    for _ in range(draw(st.integers(2, 3))):
        period_ms = circle_ms // draw(st.sampled_from([1, 2, 3, 4]))
        begin = draw(st.integers(0, period_ms - 1))
        length = draw(st.integers(1, period_ms - begin))
        share = Fraction(draw(st.integers(1, 4)), 4)
        profiles.append(
            Profile(period_ms * MS, (Communication(begin * MS, (begin + length) * MS, share),))
        )
    return profiles, int(perimeter_s([profile.period_s for profile in profiles]) / MS)


@settings(max_examples=25)
@given(circles())
def test_rotations_against_brute_force(drawn: tuple[list[Profile], int]) -> None:
    """The rotation of two jobs is the best there is; that of more has the score it claims, which is
    no worse than without one.
    """
    profiles, circle_ms = drawn
    rotation = rotate(profiles)
    steps_ms = rotation.step_s / MS
    starts = tuple(shift_s / MS for shift_s in rotation.shifts_s)
    assert starts[0] == 0
    assert rotation.score >= rotation.unrotated - 1e-9
    if all(start.denominator == 1 for start in starts):
        claimed = 1 - excess(profiles, tuple(int(start) for start in starts), circle_ms) / circle_ms
        assert rotation.score == pytest.approx(float(claimed))
    if len(profiles) == 2 and steps_ms == 1:
        periods = [range(int(profile.period_s / MS)) for profile in profiles[1:]]
        best = min(excess(profiles, (0, *others), circle_ms) for others in product(*periods))
        assert rotation.score == pytest.approx(float(1 - best / circle_ms))


def exact_samples(profile: Profile, step: Fraction, count: int) -> list[float]:
    """Return the mean demand at `count` angles, summed burst by burst.

    An angle is the part `step` of an iteration. The last angles are a round from its beginning.
    """

    def sent(until: Fraction) -> Fraction:
        total = Fraction(0)
        for burst in profile.bursts:
            begin = Fraction(burst.begin_s) / profile.period_s
            length = Fraction(burst.end_s) / profile.period_s - begin
            passed = min(max(until % 1 - begin, Fraction(0)), length)
            total += Fraction(burst.share) * (until // 1 * length + passed)
        return total

    first = 1 - math.ceil(1 / step)
    bounds = [sent(index * step) for index in range(first, first + count + 1)]
    return [float((after - before) / step) for before, after in pairwise(bounds)]


def above_capacity(demands: Iterable[Sequence[float]]) -> float:
    totals = map(math.fsum, zip(*demands, strict=True))
    return math.fsum(total - 1 for total in totals if total > 1)


def plain_rotation(profiles: list[Profile]) -> tuple[tuple[Fraction, ...], float]:
    """Return the shifts that coordinate descent finds, and their score, by the definition."""
    periods_s = quantised_s([profile.period_s for profile in profiles])
    circle_s = perimeter_s(periods_s)
    angles = max(ANGLES, math.ceil(ANGLES_PER_ITERATION * circle_s / min(periods_s)))
    step_s = circle_s / angles
    rotated = []
    for profile, period_s in zip(profiles, periods_s, strict=True):
        rotations = math.ceil(period_s / step_s)
        samples = exact_samples(profile, step_s / period_s, rotations - 1 + angles)
        rotated.append([samples[first : first + angles] for first in reversed(range(rotations))])

    chosen = [0] * len(profiles)
    demands = {0: rotated[0][0]}
    excess, before = 1e6, 2e6
    while TINY < excess < before - TINY:
        before = excess
        for number in range(1, len(profiles)):
            rest = [demand for other, demand in demands.items() if other != number]
            excesses = [above_capacity([*rest, demand]) for demand in rotated[number]]
            least = min(excesses)
            chosen[number] = next(i for i, part in enumerate(excesses) if part <= least + TINY)
            demands[number] = rotated[number][chosen[number]]
        excess = above_capacity(demands.values())
    shifts_s = (
        step_s * steps % period_s for steps, period_s in zip(chosen, periods_s, strict=True)
    )
    return tuple(shifts_s), 1 - excess / angles


@st.composite
def measured_profiles(draw: st.DrawFn) -> list[Profile]:
    """Draw two to four jobs of any iteration times, some equal, with bursts that may overlap."""
    profiles = []
    period_ms = 1000
    for _ in range(draw(st.integers(2, 4))):
        period_ms = draw(st.one_of(st.just(period_ms), st.integers(400, 1200)))
        bursts = []
        for _ in range(draw(st.integers(1, 5))):
            begin = draw(st.integers(0, period_ms - 1))
            end = draw(st.integers(begin + 1, period_ms))
            share = draw(st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 1.0]))
            bursts.append(Communication(begin / 1000, end / 1000, share))
        profiles.append(Profile(period_ms * MS, tuple(bursts)))
    return profiles


@settings(max_examples=40)
@given(measured_profiles())
def test_sums_by_sorted_bounds_are_those_burst_by_burst(profiles: list[Profile]) -> None:
    rotation = rotate(profiles)
    shifts_s, score = plain_rotation(profiles)
    assert rotation.shifts_s == shifts_s
    assert rotation.score == pytest.approx(score, abs=1e-9)


def test_a_circle_has_room_for_twelve_of_the_longest_iterations() -> None:
    assert perimeter_s([40 * MS, 60 * MS]) == 120 * MS
    assert perimeter_s([Fraction(1)]) == 1
    assert quantised_s([Fraction(1), Fraction(503, 1000)]) == [1, Fraction(1, 2)]
    awkward = quantised_s([Fraction(59, 60), Fraction(1), Fraction(47, 60)])
    assert perimeter_s(awkward) == 12


def test_near_multiples_are_taken_as_multiples() -> None:
    """Profiles are measured; a third that is off by half a percent still fits."""
    third = Profile(
        Fraction(335, 1000), (Communication(Fraction(0), Fraction(1, 10), Fraction(1)),)
    )
    whole = Profile(Fraction(1), (Communication(Fraction(0), Fraction(1, 5), Fraction(1)),))
    assert rotate([whole, third]).score == pytest.approx(1, abs=1e-2)
