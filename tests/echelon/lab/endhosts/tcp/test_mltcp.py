"""MLTCP in our TCP: how the window grows, and what that does to two connections at one queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echelon_lab.endhosts.tcp.newreno import Aggressiveness, MltcpWindow, NewReno
from echelon_lab.endhosts.tcp.sender import TcpSettings

MSS = 1000


def growth(window: NewReno, total_bytes: int, round_trips: int = 40) -> float:
    """Return the segments that the window gains in each round trip of congestion avoidance, at one
    place of the iteration.
    """
    window.ssthresh = window.cwnd = 100 * MSS
    for _ in range(round_trips):
        acked = 0
        full = window.cwnd
        while acked < full:
            window.grow(2 * MSS, total_bytes)
            acked += 2 * MSS
    return (window.cwnd - 100 * MSS) / MSS / round_trips


@pytest.mark.parametrize(
    ("part", "factor"), [(0, 0.25), (0.25, 0.6875), (0.5, 1.125), (0.75, 1.5625), (0.999, 2.0)]
)
def test_the_increase_grows_with_progress(part: float, factor: float) -> None:
    """The increase is F(bytes_ratio) = 1.75 bytes_ratio + 0.25 segments for each round trip."""
    iteration_bytes = 1_000_000
    for iterations in (0, 1, 7):
        window = MltcpWindow(Aggressiveness(iteration_bytes), MSS)
        total = iterations * iteration_bytes + round(part * iteration_bytes)
        assert growth(window, total) == pytest.approx(factor, abs=0.06)
    assert growth(NewReno(MSS), 0) == pytest.approx(1, abs=0.06)


def test_slow_start_is_that_of_newreno() -> None:
    ours, theirs = MltcpWindow(Aggressiveness(10**6), MSS), NewReno(MSS)
    for total in range(MSS, 50 * MSS, MSS):
        ours.grow(MSS, total)
        theirs.grow(MSS, total)
    assert ours.cwnd == theirs.cwnd > ours.initial


def test_a_connection_without_bytes_begins_for_ever() -> None:
    assert Aggressiveness(0).growth(12345) == 0.25


def test_settings_choose_the_window() -> None:
    settings = TcpSettings()
    assert type(settings.congestion(MSS)) is NewReno
    made = replace(settings, aggressiveness=Aggressiveness(5000)).congestion(MSS, MSS)
    assert isinstance(made, MltcpWindow)
    assert made.cwnd == MSS
