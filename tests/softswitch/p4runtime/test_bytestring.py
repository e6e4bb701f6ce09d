"""Canonical byte strings against the specification's own table of examples and against exhaustive
search.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.p4runtime.bytestring import (
    OutOfRangeError,
    decode,
    decode_signed,
    encode,
    encode_signed,
)
from tests.faults import naming


def shortest(value: int, signed: bool) -> bytes:
    """Return the shortest string that holds `value`, found by trying every length."""
    for length in range(1, 200):
        try:
            return value.to_bytes(length, "big", signed=signed)
        except OverflowError:
            continue
    raise AssertionError


# P4Runtime specification, tables "Examples of valid bytestring encoding" and "... invalid ...".
@pytest.mark.parametrize(
    ("width", "text", "value"),
    [
        (8, "63", 99),
        (16, "63", 99),
        (16, "3064", 12388),
        (16, "003064", 12388),
        (12, "0063", 99),
        (1, "00", 0),
    ],
)
def test_valid_examples(width: int, text: str, value: int) -> None:
    assert decode(bytes.fromhex(text), width) == value


@pytest.mark.parametrize(
    ("width", "text", "value"),
    [(8, "9d", -99), (12, "ff9d", -99), (16, "cf9c", -12388), (8, "63", 99), (8, "0063", 99)],
)
def test_valid_signed_examples(width: int, text: str, value: int) -> None:
    assert decode_signed(bytes.fromhex(text), width) == value


@pytest.mark.parametrize(
    ("width", "text"), [(8, "0163"), (16, "013064"), (8, ""), (7, "80"), (1, "02")]
)
def test_invalid_examples(width: int, text: str) -> None:
    with pytest.raises(OutOfRangeError, check=naming(f"bit<{width}>")):
        decode(bytes.fromhex(text), width)


@pytest.mark.parametrize(("width", "text"), [(8, "0080"), (8, "ff7f"), (8, ""), (12, "0fff")])
def test_invalid_signed_examples(width: int, text: str) -> None:
    with pytest.raises(OutOfRangeError, check=naming(f"int<{width}>")):
        decode_signed(bytes.fromhex(text), width)


def test_every_small_value_is_as_short_as_can_be() -> None:
    for value in range(70_000):
        assert encode(value) == shortest(value, signed=False)
    for value in range(-40_000, 40_000):
        assert encode_signed(value) == shortest(value, signed=True)


@given(st.integers(0, 2**130), st.integers(0, 5))
def test_leading_zeros_change_nothing(value: int, zeros: int) -> None:
    width = max(1, value.bit_length())
    assert decode(bytes(zeros) + encode(value), width) == value


@given(st.binary(max_size=6), st.integers(1, 40))
def test_accepts_exactly_the_values_that_fit(data: bytes, width: int) -> None:
    fits = len(data) > 0 and int.from_bytes(data, "big") < 2**width
    if fits:
        assert decode(data, width) == int.from_bytes(data, "big")
    else:
        with pytest.raises(OutOfRangeError):
            decode(data, width)
