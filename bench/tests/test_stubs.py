"""Tests of stubs: to a service they are switches, which take its plan and hold it."""

from __future__ import annotations

import argparse
import math
import os

import pytest

from bench.stubs.command import fabric, growth, measure
from bench.stubs.scrape import Scrape, peak_bytes


@pytest.mark.long
@pytest.mark.parametrize("patient", [False, True])
def test_a_service_installs_its_jobs_on_stubs(patient: bool) -> None:
    options = argparse.Namespace(
        jobs=4,
        audit="60 s",
        idle=0.5,
        log=None,
        patient=patient,
    )
    figures = measure(4, options, None)
    assert figures["updates acknowledged"] > 100
    assert figures["peak memory, MB"] >= figures["memory, MB"] > 50
    assert figures["sessions lost in all"] == 0


def scraped(plans: int, planning_s: float, *lags: int) -> Scrape:
    """Return a scrape in which the loop was up to 0.1 s late, up to 1 s, and later, so often."""
    lines = ["# TYPE echelon_plan_seconds histogram"]
    for phase, seconds in (("policy", planning_s), ("lowering", planning_s / 2)):
        labels = f'phase="{phase}"'
        lines += [
            f'echelon_plan_seconds_bucket{{{labels},le="+Inf"}} {plans}',
            f"echelon_plan_seconds_sum{{{labels}}} {seconds}",
            f"echelon_plan_seconds_count{{{labels}}} {plans}",
        ]
    lines += ["# TYPE echelon_loop_lag_seconds histogram"]
    for bound, number in zip(("0.1", "1.0", "+Inf"), lags, strict=True):
        lines.append(f'echelon_loop_lag_seconds_bucket{{le="{bound}"}} {number}')
    lines += [
        "echelon_loop_lag_seconds_sum 1.0",
        f"echelon_loop_lag_seconds_count {lags[-1]}",
    ]
    return Scrape.of_text("\n".join(lines) + "\n")


def test_plans_and_lags_are_those_between_two_scrapes() -> None:
    before = scraped(1, 2.0, 100, 150, 160)
    now = scraped(3, 6.0, 198, 250, 260)
    assert now.plan_s(before) == pytest.approx(3)
    assert now.lag_s(before, 0.9) == 0.1
    assert now.lag_s(before, 1) == 1
    assert scraped(3, 6.0, 198, 250, 261).lag_s(now, 1) == math.inf
    assert now.plan_s(now) == 0


def test_a_process_knows_its_peak_of_memory() -> None:
    before = peak_bytes(os.getpid())
    much = b"x" * (before + (1 << 26))
    assert peak_bytes(os.getpid()) > len(much) > before


def test_links_grow_with_the_number_of_switches() -> None:
    links = [len(fabric(switches)["links"]) for switches in (50, 100, 200)]
    assert links[2] - links[1] == 2 * (links[1] - links[0])


def test_what_doubles_goes_on_by_an_exponent_and_by_a_line() -> None:
    square = growth((10, 20), (100.0, 400.0), 40)
    assert (square.exponent, square.by_power) == pytest.approx((2, 1600))
    assert square.by_line == pytest.approx(1000)
    assert growth((10, 20), (0.0, 5.0), 30).by_line == 10
