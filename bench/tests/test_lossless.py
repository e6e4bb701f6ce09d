"""The search for the lossless rate, against switches whose rate is known."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.switch.lossless import LOSS_LIMIT, GeneratorLimitError, Search, Trial, lossless_rate

SEARCH = Search(lowest_pps=100, highest_pps=400_000)


class KnownSwitch:
    """A switch that carries `capacity_pps` and loses the rest; its generator sends no faster than
    `generator_pps`.
    """

    def __init__(self, capacity_pps: float, generator_pps: float = 1e9) -> None:
        self.capacity_pps = capacity_pps
        self.generator_pps = generator_pps
        self.seconds = 0.0

    def trial(self, rate_pps: float, duration_s: float) -> Trial:
        self.seconds += duration_s
        rate_pps = min(rate_pps, self.generator_pps)
        offered = round(rate_pps * duration_s)
        return Trial(rate_pps, offered, min(offered, round(self.capacity_pps * duration_s)))


@given(st.floats(200, 300_000), st.floats(1, 1e6))
def test_finds_the_rate_from_anywhere(capacity_pps: float, start_pps: float) -> None:
    found = lossless_rate(KnownSwitch(capacity_pps).trial, start_pps, SEARCH)
    # A loss within the limit is allowed, and half a packet of rounding, by which a rate may fail
    # its confirmation.
    assert found <= capacity_pps / (1 - LOSS_LIMIT) + 1
    assert found >= capacity_pps / (1 + SEARCH.resolution) * (1 - SEARCH.step) - 1


def test_a_rate_that_is_known_costs_little() -> None:
    switch = KnownSwitch(100_000)
    lossless_rate(switch.trial, 100_000, SEARCH)
    assert switch.seconds < 30


@pytest.mark.parametrize("seed", range(10))
def test_moments_of_something_else_do_not_lower_the_median_of_three(seed: int) -> None:
    switch, dice = KnownSwitch(80_000), random.Random(seed)

    def disturbed(rate_pps: float, duration_s: float) -> Trial:
        trial = switch.trial(rate_pps, duration_s)
        return Trial(trial.rate_pps, trial.offered, 0) if dice.random() < 0.1 else trial

    found = statistics.median(lossless_rate(disturbed, 10_000, SEARCH) for _ in range(3))
    assert found == pytest.approx(80_000, rel=0.07)


def test_nothing_is_carried() -> None:
    assert lossless_rate(KnownSwitch(0).trial, 50_000, SEARCH) == 0


def test_a_rate_that_only_short_runs_carry_is_not_confirmed() -> None:
    """Buffers hide an overload for a while."""

    def buffered(rate_pps: float, duration_s: float) -> Trial:
        offered = round(rate_pps * duration_s)
        return Trial(rate_pps, offered, min(offered, round(50_000 * duration_s) + 5000))

    found = lossless_rate(buffered, 50_000, SEARCH)
    assert found <= (50_000 * SEARCH.confirm_s + 5000) / SEARCH.confirm_s / (1 - LOSS_LIMIT)


def test_a_rate_beyond_the_search_is_its_highest() -> None:
    assert lossless_rate(KnownSwitch(1e7).trial, 1_000, SEARCH) == SEARCH.highest_pps


def test_a_generator_that_is_too_slow_is_an_error() -> None:
    with pytest.raises(GeneratorLimitError, match=r"asked for.*lost none") as raised:
        lossless_rate(KnownSwitch(200_000, generator_pps=100_000).trial, 50_000, SEARCH)
    assert raised.value.rate_pps == 100_000


def test_a_generator_that_falls_behind_once_is_asked_again() -> None:
    switch, late = KnownSwitch(200_000), iter([True, False] * 1000)

    def hesitating(rate_pps: float, duration_s: float) -> Trial:
        return switch.trial(rate_pps * 0.9 if next(late) else rate_pps, duration_s)

    assert lossless_rate(hesitating, 50_000, SEARCH) == pytest.approx(200_000, rel=0.07)
