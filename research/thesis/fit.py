"""Equation 3.7 of the thesis, ``t = A exp(B / (C - BW)^n)``, fitted to measured iteration times.

For a given n the logarithm of t is linear in ``(C - BW)^-n``: ordinary least squares gives A and B
exactly, as the exponential trend lines of the thesis do (appendix B.2), and R^2 is theirs: of log
t. If n is free, the best of a fine grid is taken: the error as a function of n is smooth, but may
have several minima.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from research.thesis.congestion_point import least_squares

FAMILIES = (0.5, 1.0, 2.0)
"""n of equations 3.5, 3.3 and 3.6."""
_GRID = tuple(step / 100 for step in range(1, 401))


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients of equation 3.7, and how well they fit."""

    a_s: float
    b: float
    """B, in (Gbit/s)^n."""
    n: float
    capacity_gbps: float
    r_squared: float
    """Coefficient of determination of log t."""

    def time_s(self, cross_gbps: float) -> float:
        """Return the iteration time in seconds under `cross_gbps` of cross traffic."""
        left_gbps = self.capacity_gbps - cross_gbps
        return self.a_s * math.exp(self.b / left_gbps**self.n)


def fit(
    cross_gbps: Sequence[float],
    time_s: Sequence[float],
    n: float,
    capacity_gbps: float,
) -> Fit:
    """Fit by least squares for a given n > 0 of at least two different loads below the capacity,
    times above 0.

    Raise `ValueError` for fewer, and for loads that reach the capacity.
    """
    if len(set(cross_gbps)) < 2:
        raise ValueError("a fit needs points at two loads at least")
    if max(cross_gbps) >= capacity_gbps:
        raise ValueError(
            f"cross traffic of {max(cross_gbps):g} reaches the capacity of {capacity_gbps:g} Gbit/s"
        )
    xs = [(capacity_gbps - load) ** -n for load in cross_gbps]
    ys = [math.log(time) for time in time_s]
    line, unexplained = least_squares(xs, ys)
    mean_y = math.fsum(ys) / len(ys)
    total = math.fsum((y - mean_y) ** 2 for y in ys)
    # A constant explains times that are all the same.
    r_squared = 1 - unexplained / total if total > 0 else 1.0
    return Fit(math.exp(line.intercept), line.slope, n, capacity_gbps, r_squared)


def best_fit(
    cross_gbps: Sequence[float],
    time_s: Sequence[float],
    capacity_gbps: float,
) -> Fit:
    """Fit with the n between 0.01 and 4 that fits best. Raise as `fit`."""
    fits = [fit(cross_gbps, time_s, n, capacity_gbps) for n in _GRID]
    return max(fits, key=attrgetter("r_squared"))
