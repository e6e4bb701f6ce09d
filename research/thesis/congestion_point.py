"""The congestion point of a curve of iteration times, by appendix A.2 of the thesis.

A line goes through the linear part of the curve at low load, and a tangent to the curved part near
its beginning. The measured point nearest to their intersection is the congestion point (BW*, t*),
and ``(C - BW*) t*`` is the data that it stands for.

The thesis draws both lines by eye into a plot with a logarithmic time axis. Here the curve is cut
where two straight lines through its parts leave the smallest sum of squares (in log t); the first
is the line, and the tangent is the line through the first three points of the second part. Distance
is that of the picture, with axes of equal length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

LEAST_POINTS = 6
"""Three points for each line."""
_PART = 3


@dataclass(frozen=True, slots=True)
class Line:
    """``log10 t = intercept + slope * BW``, BW in Gbit/s."""

    slope: float
    intercept: float

    def time_s(self, cross_gbps: float) -> float:
        return float(10 ** (self.intercept + self.slope * cross_gbps))


@dataclass(frozen=True, slots=True)
class CongestionPoint:
    """The point where congestion begins."""

    cross_gbps: float
    time_s: float
    low: Line
    """The line through the points at low load."""
    tangent: Line
    """The tangent to the beginning of the curved part."""

    def data_mb(self, capacity_gbps: float) -> float:
        """Return the data that a job can send in an iteration of this time on what the cross
        traffic leaves, in MB.
        """
        return data_mb(capacity_gbps, self.cross_gbps, self.time_s)


def data_mb(
    capacity_gbps: float,
    cross_gbps: float,
    time_s: float,
) -> float:
    """Return the bytes, in 10^6, that ``capacity - cross`` Gbit/s carry in `time_s`."""
    return (capacity_gbps - cross_gbps) * time_s * 1000 / 8


def congestion_point(cross_gbps: Sequence[float], time_s: Sequence[float]) -> CongestionPoint:
    """Return the congestion point of points in ascending order of cross traffic, none at the same
    load, with times above 0.

    Raise `ValueError` for fewer than `LEAST_POINTS`.
    """
    count = len(cross_gbps)
    if count < LEAST_POINTS:
        raise ValueError(f"a congestion point needs {LEAST_POINTS} points, not {count}")
    if any(a >= b for a, b in pairwise(cross_gbps)):
        raise ValueError("points are not in ascending order of cross traffic")
    ys = [math.log10(time) for time in time_s]

    def line(first: int, end: int) -> tuple[Line, float]:
        return least_squares(cross_gbps[first:end], ys[first:end])

    def error(cut: int) -> float:
        _, before = line(0, cut)
        _, after = line(cut, count)
        return before + after

    cut = min(range(_PART, count - _PART + 1), key=error)
    low, _ = line(0, cut)
    tangent, _ = line(cut, cut + _PART)
    if tangent.slope == low.slope:
        x = cross_gbps[cut]
    else:
        x = (low.intercept - tangent.intercept) / (tangent.slope - low.slope)
    y = low.intercept + low.slope * x
    wide = cross_gbps[-1] - cross_gbps[0]
    high = (max(ys) - min(ys)) or 1.0

    def distance(number: int) -> float:
        across = (cross_gbps[number] - x) / wide
        along = (ys[number] - y) / high
        return math.hypot(across, along)

    nearest = min(range(count), key=distance)
    return CongestionPoint(cross_gbps[nearest], time_s[nearest], low, tangent)


def least_squares(xs: Sequence[float], ys: Sequence[float]) -> tuple[Line, float]:
    """Return the line of least squares, and the sum of squares that it leaves."""
    mean_x = math.fsum(xs) / len(xs)
    mean_y = math.fsum(ys) / len(ys)
    points = list(zip(xs, ys, strict=True))
    covariance = math.fsum((x - mean_x) * (y - mean_y) for x, y in points)
    variance = math.fsum((x - mean_x) ** 2 for x in xs)
    slope = covariance / variance
    intercept = mean_y - slope * mean_x
    unexplained = math.fsum((y - intercept - slope * x) ** 2 for x, y in points)
    return Line(slope, intercept), unexplained
