from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.errors import RunError
from research.thesis.calibration import TOLERANCE, calibrate
from tests.drawing import examples

parts = st.fractions(0, 2, max_denominator=100)


@given(parts, st.integers(1, 30), st.fractions(Fraction(1, 10), 2, max_denominator=100))
@settings(max_examples=examples(200), deadline=None)
def test_the_iteration_comes_out_as_wanted(
    sending_s: Fraction, buckets: int, target_s: Fraction
) -> None:
    """The iteration takes the wanted time in both regimes: computing delays sending, or sending
    delays computing.
    """
    runs = 0

    def iteration_s(compute_s: Fraction) -> Fraction:
        nonlocal runs
        runs += 1
        forward, backward = compute_s / 3, compute_s * 2 / 3
        return forward + max(backward + sending_s / buckets, backward / buckets + sending_s)

    if sending_s > target_s * (1 + TOLERANCE):
        with pytest.raises(RunError, match="sending alone takes"):
            calibrate(iteration_s, target_s)
        return
    found = calibrate(iteration_s, target_s)
    assert found.runs == runs <= 12
    assert found.iteration_s == iteration_s(found.compute_s)
    assert abs(found.iteration_s - target_s) <= TOLERANCE * target_s
    assert 0 <= found.compute_s <= target_s


def test_a_jump_over_the_target_is_reported() -> None:
    with pytest.raises(RunError, match="seem to jump at"):
        calibrate(
            lambda compute_s: Fraction(1, 2) if compute_s < Fraction(1, 3) else Fraction(2),
            Fraction(1),
        )
