"""Numbers of blocks against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_aggregation.exponents import (
    block_exponent,
    block_exponents,
    bound,
    dequantise,
    fits,
    headroom,
    quantise,
)
from tests.drawing import examples

drawn = settings(max_examples=examples(800), deadline=None, derandomize=True)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
blocks = st.lists(floats, min_size=1, max_size=8)


def exact(value: np.float32) -> Fraction:
    return Fraction(float(value))


def nearest_float(value: Fraction) -> float:
    """Return the float of 24 bits nearest to a fraction, ties to even, by whole numbers alone."""
    if value == 0:
        return 0.0
    power = max(
        abs(value.numerator).bit_length() - value.denominator.bit_length() - 1, -126
    )  # at most one too small; a subnormal keeps the unit of the smallest
    while abs(value) >= Fraction(2) ** (power + 1):
        power += 1
    unit = Fraction(2) ** (power - 23)
    rounded = round(value / unit) * unit
    return (
        float("inf") * (1 if rounded > 0 else -1)
        if abs(rounded) >= Fraction(2) ** 128
        else float(rounded)
    )


@pytest.mark.parametrize(
    ("values", "exponent"),
    [
        ([0.0, -0.0], 0),
        ([1.0, -0.25], 127),
        ([-2.0, 1.0], 128),
        ([2.0**-149], 1),
        ([3.4028235e38], 254),
        ([1.0, float("inf")], 255),
        ([float("nan")], 255),
        ([], 0),
    ],
)
def test_the_exponent_of_a_block(values: list[float], exponent: int) -> None:
    assert block_exponent(np.array(values, np.float32)) == exponent


@drawn
@given(blocks)
def test_an_exponent_bounds_its_values_and_no_smaller_one_does(values: list[float]) -> None:
    block = np.array(values, np.float32)
    exponent = block_exponent(block)
    largest = max(abs(exact(value)) for value in block)
    if exponent == 0:
        assert largest == 0
    else:
        assert largest < Fraction(2) ** (exponent - 126)
        assert exponent == 1 or largest >= Fraction(2) ** (exponent - 127)
    assert fits(block, exponent)
    assert exponent == 0 or not fits(block, exponent - 1)


@drawn
@given(st.lists(floats, min_size=1, max_size=40), st.integers(1, 9))
def test_exponents_of_many_blocks_are_those_of_each(values: list[float], size: int) -> None:
    array = np.array(values, np.float32)
    each = [block_exponent(array[at : at + size]) for at in range(0, len(array), size)]
    assert block_exponents(array, size).tolist() == each


@drawn
@given(
    st.lists(st.tuples(floats, floats), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 5, 16, 17, 32]),
)
def test_a_sum_is_the_rounded_sum_of_the_nearest_units(
    pairs: list[tuple[float, float]], workers: int
) -> None:
    one, other = (np.array([pair[i] for pair in pairs], np.float32) for i in range(2))
    contributions = [one if worker % 2 else other for worker in range(workers)]
    exponent = max(block_exponent(block) for block in contributions)
    if exponent == 0:
        return
    unit = Fraction(2) ** (exponent + headroom(workers) - 156)
    sent = [np.frombuffer(quantise(block, exponent, workers), ">i4") for block in contributions]
    sums = [sum(int(values[at]) for values in sent) for at in range(len(pairs))]
    result = dequantise(np.array(sums, ">i4").tobytes(), exponent, workers)
    for at, total in enumerate(sums):
        assert total == sum(round(exact(block[at]) / unit) for block in contributions)
        assert abs(total) <= 2**30
        true_sum = sum(exact(block[at]) for block in contributions)
        assert abs(total * unit - true_sum) <= Fraction(bound(exponent, workers))
        assert float(result[at]) == nearest_float(total * unit)


@drawn
@given(blocks, st.integers(1, 254), st.integers(1, 32))
def test_what_is_too_large_stays_in_range(values: list[float], exponent: int, workers: int) -> None:
    block = np.array(values, np.float32)
    sent = np.frombuffer(quantise(block, exponent, workers), ">i4")
    assert max(abs(int(value)) for value in sent) <= 2 ** (30 - headroom(workers))
