"""Equation 3.7 against scipy, and against curves of which it is the truth."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit
from scipy.stats import linregress

from research.thesis.fit import FAMILIES, best_fit, fit
from research.thesis.published import FITS
from tests.drawing import examples

LOADS = [0.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.0, 23.0]


@given(
    st.lists(st.floats(0.05, 50), min_size=len(LOADS), max_size=len(LOADS)),
    st.sampled_from(FAMILIES),
)
@settings(max_examples=examples(60), deadline=None)
def test_the_line_is_that_of_a_linear_regression(times: list[float], n: float) -> None:
    assume(max(times) / min(times) > 1.01)
    xs = [(25 - load) ** -n for load in LOADS]
    reference = linregress(xs, [math.log(time) for time in times])
    found = fit(LOADS, times, n, 25.0)
    assert found.b == pytest.approx(reference.slope, rel=1e-6, abs=1e-6)
    assert math.log(found.a_s) == pytest.approx(reference.intercept, rel=1e-6, abs=1e-6)
    assert found.r_squared == pytest.approx(reference.rvalue**2, abs=1e-6)


@pytest.mark.parametrize("published", FITS.values(), ids=[" ".join(key) for key in FITS])
def test_a_curve_of_the_thesis_gives_back_its_coefficients(published) -> None:  # type: ignore[no-untyped-def]
    times = [published.a_s * math.exp(published.b / (25 - load) ** published.n) for load in LOADS]
    found = fit(LOADS, times, published.n, 25.0)
    assert (found.a_s, found.b, found.r_squared) == pytest.approx((published.a_s, published.b, 1.0))
    assert best_fit(LOADS, times, 25.0).n == pytest.approx(published.n, abs=0.011)


def test_a_free_exponent_is_no_worse_than_scipys() -> None:
    times = [0.1 + 15.0 / (25 - load) for load in LOADS]  # computing, then sending on what is left

    def of(load: float, log_a: float, b: float, n: float) -> float:
        return log_a + b / (25 - load) ** n

    logs = [math.log(time) for time in times]
    best, _ = curve_fit(
        lambda xs, *p: [of(x, *p) for x in xs], LOADS, logs, p0=(0.0, 1.0, 0.5), maxfev=20_000
    )
    left = sum((y - of(x, *best)) ** 2 for x, y in zip(LOADS, logs, strict=True))
    found = best_fit(LOADS, times, 25.0)
    ours = sum((y - math.log(found.time_s(x))) ** 2 for x, y in zip(LOADS, logs, strict=True))
    assert ours <= left * 1.05 + 1e-9


@pytest.mark.parametrize(
    ("loads", "reason"), [([5.0, 5.0], "two loads"), ([0.0, 25.0], "reaches the capacity")]
)
def test_what_cannot_be_fitted_is_refused(loads: list[float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fit(loads, [1.0, 2.0], 1.0, 25.0)


def test_times_that_never_change_are_a_constant() -> None:
    found = fit(LOADS, [0.25] * len(LOADS), 1.0, 25.0)
    assert (found.a_s, found.r_squared) == pytest.approx((0.25, 1.0))
