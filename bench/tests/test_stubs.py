"""Tests of stubs: to a service they are switches, which take its plan and hold it."""

from __future__ import annotations

import argparse

import pytest

from bench.stubs.command import fabric, growth, measure


@pytest.mark.long
def test_a_service_installs_its_jobs_on_stubs() -> None:
    options = argparse.Namespace(jobs=4, audit="60 s", idle=0.5)
    figures = measure(4, options, None)
    assert figures["updates acknowledged"] > 100
    assert figures["memory, MB"] > 50


def test_links_grow_with_the_number_of_switches() -> None:
    links = [len(fabric(switches)["links"]) for switches in (50, 100, 200)]
    assert links[2] - links[1] == 2 * (links[1] - links[0])


def test_what_doubles_goes_on_by_an_exponent_and_by_a_line() -> None:
    square = growth((10, 20), (100.0, 400.0), 40)
    assert (square.exponent, square.by_power) == pytest.approx((2, 1600))
    assert square.by_line == pytest.approx(1000)
    assert growth((10, 20), (0.0, 5.0), 30).by_line == 10
