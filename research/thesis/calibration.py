"""The compute time of a model, found so that its iteration without cross traffic takes what Table
3.1 says.

The thesis gives the iteration time, not its parts. The emulated network determines the time of
sending, overheads included; the rest is computing. Runs without cross traffic find it as the zero
of an increasing function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.errors import RunError

TOLERANCE = Fraction(1, 500)
"""Tolerance as part of the iteration time."""
_MOST_RUNS = 12
_STEP = 10**6
"""Compute times are whole microseconds."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """A compute time, and the measurements that found it."""

    compute_s: Fraction
    """Forward and backward pass together."""
    iteration_s: Fraction
    """Iteration time measured with it."""
    runs: int


def calibrate(iteration_s: Callable[[Fraction], Fraction], target_s: Fraction) -> Calibration:
    """Return the compute time for which `iteration_s` is `target_s`, within `TOLERANCE`.

    `iteration_s` measures an iteration with a compute time between 0 and `target_s`; it increases
    and is never less than the compute time. The method is false position in the Illinois variant
    (M. Dowell and P. Jarratt, BIT 11, 1971). Raise `RunError` if sending alone takes longer than
    the target.
    """
    low = Fraction(0)
    high = target_s
    below = iteration_s(low) - target_s
    runs = 1
    if below > TOLERANCE * target_s:
        raise RunError(
            f"sending alone takes {float(below + target_s):.3f} s of an iteration that takes"
            f" {float(target_s):g} s (choose a larger --scale: packets then cost less of the link)"
        )
    if abs(below) <= TOLERANCE * target_s:
        return Calibration(low, below + target_s, runs)
    above = iteration_s(high) - target_s
    runs += 1
    if abs(above) <= TOLERANCE * target_s:
        return Calibration(high, above + target_s, runs)
    last = 0
    while runs < _MOST_RUNS:
        middle = Fraction(round((low * above - high * below) / (above - below) * _STEP), _STEP)
        off = iteration_s(middle) - target_s
        runs += 1
        if abs(off) <= TOLERANCE * target_s:
            return Calibration(middle, off + target_s, runs)
        side = 1 if off > 0 else -1
        if side > 0:
            high = middle
            above = off
            below = below / 2 if last == side else below
        else:
            low = middle
            below = off
            above = above / 2 if last == side else above
        last = side
    raise RunError(
        f"no compute time gives an iteration of {float(target_s):g} s within"
        f" {float(TOLERANCE * 100):g} % in {_MOST_RUNS} runs: iterations seem to jump at"
        f" {float(low):.6f} s of computing"
    )
