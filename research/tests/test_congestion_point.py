"""Appendix A.2 of the thesis: its own points, curves that bend where we know, and the best cut by
brute force.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.thesis.congestion_point import congestion_point, data_mb
from research.thesis.published import CONGESTION, CONGESTION_POINTS
from tests.drawing import examples

LOADS = [0.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 21.5, 23.0, 24.0]


@pytest.mark.parametrize(
    ("traffic", "decoded_mb"), [("iperf", 936), ("websearch", 988), ("burst", 924)]
)
def test_the_named_points_of_the_thesis_stand_for_its_data(traffic: str, decoded_mb: float) -> None:
    point = CONGESTION_POINTS[traffic]["vgg-16"]  # type: ignore[index]
    assert point.iteration_s is not None
    found = data_mb(25.0, point.cross_gbps, point.iteration_s)
    assert found == pytest.approx(decoded_mb, abs=1)
    # The text rounds the point, the tables do not.
    assert found == pytest.approx(CONGESTION[traffic]["vgg-16"].measured_mb, rel=0.01)  # type: ignore[index]


@given(st.integers(2, 8), st.floats(0.05, 2), st.floats(-0.005, 0.005), st.floats(0.05, 0.4))
@settings(max_examples=examples(100), deadline=None)
def test_two_straight_lines_are_found_where_they_meet(
    bend: int, start_s: float, low: float, high: float
) -> None:
    # In the picture of a logarithmic time axis; the bend is at a measured point.
    ys = [np.log10(start_s) + low * x + high * max(0.0, x - LOADS[bend]) for x in LOADS]
    point = congestion_point(LOADS, [float(10**y) for y in ys])
    assert point.cross_gbps == LOADS[bend]
    assert point.low.slope == pytest.approx(low, abs=1e-9)
    assert point.tangent.slope == pytest.approx(low + high, abs=1e-9)


@given(st.lists(st.floats(0.1, 10), min_size=7, max_size=12))
@settings(max_examples=examples(100), deadline=None)
def test_no_cut_leaves_less(times: list[float]) -> None:
    loads = LOADS[: len(times)]
    point = congestion_point(loads, times)
    ys = np.log10(times)

    def left(first: int, end: int) -> tuple[float, float]:
        line = np.polyfit(loads[first:end], ys[first:end], 1)
        return float(np.sum((np.polyval(line, loads[first:end]) - ys[first:end]) ** 2)), float(
            line[0]
        )

    cuts = {cut: left(0, cut)[0] + left(cut, len(loads))[0] for cut in range(3, len(loads) - 2)}
    chosen = [cut for cut in cuts if left(0, cut)[1] == pytest.approx(point.low.slope, abs=1e-6)]
    assert min(cuts[cut] for cut in chosen) <= min(cuts.values()) + 1e-9
    assert (point.cross_gbps, point.time_s) in set(zip(loads, times, strict=True))


@pytest.mark.parametrize(
    ("loads", "reason"), [(LOADS[:5], "6 points"), ([0.0, 2.0, 2.0, 3.0, 4.0, 5.0], "ascending")]
)
def test_what_has_no_point_is_refused(loads: list[float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        congestion_point(loads, [1.0] * len(loads))
