"""Tests of the tables of `bench.beside`."""

from __future__ import annotations

import pytest

from bench.beside import SamplesByCount, print_growth


def test_a_figure_grows_by_an_exponent_unless_it_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    drain: SamplesByCount = {("this", 10): [1.0, 3.0, 2.0], ("this", 1000): [20.0]}
    # The processor's time is counted in hundredths of a second.
    processor: SamplesByCount = {("this", 10): [0.0], ("this", 1000): [0.5]}
    print_growth({"drain, s": drain, "drain, processor time, s": processor}, ["this"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["| drain, s | 0.50 |", "| drain, processor time, s | - |"]
