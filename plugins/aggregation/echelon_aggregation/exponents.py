"""Real numbers as integers with a common exponent (`docs/aggregation-protocol.md`).

All functions are exact but for the one rounding of `quantise`, half a unit, and the one of
`dequantise` to 24 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

ZERO = 0
"""The exponent of a block whose values are all zero."""
NOT_FINITE = 255
"""The exponent of a block with an infinity or a not-a-number."""
LARGEST = 254
STEP = 8
"""The step by which an exponent that was too small grows."""


def headroom(workers: int) -> int:
    """Return h, the bits that a sum of so many workers may grow by."""
    return (workers - 1).bit_length()


def block_exponent(values: Floats) -> int:
    """Return the largest exponent field of the values; 0 if all are zero, 255 if one is not finite.

    A subnormal number counts as one of exponent 1, whose unit it has.
    """
    if not len(values):
        return ZERO
    (exponent,) = block_exponents(values, len(values))
    return int(exponent)


def block_exponents(values: Floats, size: int) -> NDArray[np.uint8]:
    """Return the exponent of each block of `size` values; the last may be shorter."""
    magnitudes = values.view(np.uint32) & np.uint32(0x7FFFFFFF)
    # Without their signs, the bits of floats are in the order of the numbers.
    starts = np.arange(0, len(magnitudes), size)
    largest = np.maximum.reduceat(magnitudes, starts)
    exponents = np.maximum(largest >> np.uint32(23), 1)
    return np.where(largest, exponents, ZERO).astype(np.uint8)


def unit_power(exponent: int, workers: int) -> int:
    """Return p: a unit of a block of this exponent is 2^p."""
    return exponent + headroom(workers) - 156


def fits(values: Floats, exponent: int) -> bool:
    """Return whether the exponent is as large as that of the values."""
    return block_exponent(values) <= exponent


def quantise(
    values: Floats,
    exponent: int,
    workers: int,
) -> bytes:
    """Return the values in units, to the nearest, ties to even, as packets carry them.

    What is too large for the exponent (`fits`) becomes the largest that is not: the sender sets
    OVERFLOW then.
    """
    most = 2.0 ** (30 - headroom(workers))
    power = unit_power(exponent, workers)
    scaled = np.ldexp(values.astype(np.float64), -power)
    units = np.clip(np.rint(scaled), -most, most)
    return units.astype(">i4").tobytes()


def dequantise(
    data: bytes,
    exponent: int,
    workers: int,
) -> Floats:
    """Return the numbers that sums in units stand for, rounded to 24 bits, or infinities."""
    units = np.frombuffer(data, ">i4").astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        numbers = np.ldexp(units, unit_power(exponent, workers))
        return numbers.astype(np.float32)


def bound(exponent: int, workers: int) -> float:
    """Return the largest error of a sum before rounding to 24 bits: half a unit for each worker."""
    if exponent == ZERO:
        return 0.0
    half_unit = unit_power(exponent, workers) - 1
    return float(np.ldexp(workers, half_unit))
