"""Times in the units of switches, against rounded fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.rankings.in_switches import MICROSECONDS, TICKS, TimeUnit


@pytest.mark.parametrize("unit", [MICROSECONDS, TICKS])
@given(
    seconds=st.fractions(-100, 100)
    | st.integers(-(10**9), 10**9).map(lambda n: Fraction(n, 2_000_000))
)
def test_a_time_is_rounded_to_the_nearest_unit_and_half_of_one_to_the_even(
    unit: TimeUnit, seconds: Fraction
) -> None:
    assert unit.count(seconds) == round(seconds * 10**9 / unit.nanoseconds)
