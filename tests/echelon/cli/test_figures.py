"""Figures as people read them: what is written can be read back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.cli import figures
from tests.drawing import examples

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "d": 86400, "h": 3600, "min": 60}
LEVELS = "▁▂▃▄▅▆▇█"


def read(text: str) -> float:
    number, unit = text.split(" ")
    return float(number) * UNITS[unit]


@settings(max_examples=examples(50), deadline=None)
@given(st.floats(min_value=1e-9, max_value=1e9), st.sampled_from([1, -1]))
def test_durations_keep_four_digits(seconds: float, sign: int) -> None:
    for text in (figures.duration(sign * seconds), figures.measured(sign * seconds)):
        assert math.isclose(read(text), sign * seconds, rel_tol=5.001e-4)
        assert len(text) <= 13


@pytest.mark.parametrize(
    ("seconds", "given", "measured"),
    [
        (None, "-", "-"),
        (0, "0 s", "0 s"),
        (0.0125, "12.5 ms", "12.50 ms"),
        (1, "1 s", "1.000 s"),
        (-0.002, "-2 ms", "-2.000 ms"),
        (123.4567, "123.5 s", "123.5 s"),
        (1234.567, "1235 s", "1235 s"),
        (2e-7, "200 ns", "200.0 ns"),
    ],
)
def test_durations(seconds: float | None, given: str, measured: str) -> None:
    assert (figures.duration(seconds), figures.measured(seconds)) == (given, measured)


@settings(max_examples=examples(50), deadline=None)
@given(st.floats(min_value=-5, max_value=1e9))
def test_ages_are_whole_and_round_down(seconds: float) -> None:
    text = figures.age(seconds)
    unit = UNITS[text.split(" ")[1]]
    assert read(text) <= max(seconds, 0) < read(text) + unit


@pytest.mark.parametrize(
    ("bps", "text"),
    [(10**10, "10 Gbit/s"), (25 * 10**8, "2.5 Gbit/s"), (10**6, "1 Mbit/s"), (999, "999 bit/s")],
)
def test_rates(bps: int, text: str) -> None:
    assert figures.rate(bps) == text


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), max_size=80), st.integers(1, 40))
def test_sparklines_rise_with_their_values(values: list[float], width: int) -> None:
    line = figures.sparkline(values, width)
    last = values[-width:]
    assert len(line) == len(last)
    levels = [LEVELS.index(bar) for bar in line]
    for a, low in zip(last, levels, strict=True):
        for b, high in zip(last, levels, strict=True):
            assert a > b or low <= high
    if last and max(last) - min(last) > 1:
        scale = max(abs(value) for value in last)
        assert levels[last.index(max(last))] == (7 if max(last) - min(last) > 1e-3 * scale else 0)
        assert levels[last.index(min(last))] == 0


def test_a_tremble_is_no_mountain() -> None:
    assert figures.sparkline([1.0, 1.0001, 1.0, 0.9999], 8) == "▁▁▁▁"
