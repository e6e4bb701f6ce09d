"""The geometric abstraction of CASSINI (NSDI '24), against its numbers and against brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.policies.cassini.circle import (
    ANGLES,
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
