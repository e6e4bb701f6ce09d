"""The growth of a figure with the size of what it was measured of."""

from __future__ import annotations

from math import log


def growth_exponent(sizes: tuple[int, int], values: tuple[float, float]) -> float | None:
    """Return the power of the size with which a figure grows; None where it is 0."""
    small, large = sizes
    before, after = values
    if min(before, after) <= 0:
        return None
    return log(after / before) / log(large / small)
