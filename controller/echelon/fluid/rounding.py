"""The two arithmetics of a run: fractions whose size stays bounded, and floats."""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

from echelon.allocation import Number

DENOMINATOR_BITS = 256
"""Numbers are exact as long as their denominator has no more bits than this."""
TICK_S = Fraction(1, 10**12)
GRAIN_BYTES = Fraction(1, 2**40)
"""Grain of remaining bytes, so fine that a flow's finish time moves by less than a tick at any rate above a byte per
second."""


class Arithmetic(Protocol):
    """The numbers of a run, and how close two of them may be before they count as equal."""

    exact: bool
    count: int
    """Number of values that were rounded because they had grown too large."""
    tolerance: Number
    """The relative error of a rate. A link of which no more than this part is left is full."""
    grain_bytes: Number
    """The error of a flow's remaining bytes."""

    def number(self, value: Number) -> Number:
        """Return a number in the type of this arithmetic."""

    def time_s(self, time_s: Number) -> Number:
        """Return a time of which the run can keep the size."""

    def bytes(self, amount: Number) -> Number:
        """Return the remaining bytes of a flow that has not finished. They are never zero."""

    def latest_s(self, now_s: Number) -> Number:
        """Return the latest time that counts as `now_s`."""

    def next_s(self, now_s: Number) -> Number:
        """Return the next time that does not count as `now_s`, if the arithmetic knows one, else `now_s`."""


class Rounding:
    """Fractions, rounded where they have outgrown `DENOMINATOR_BITS`, always in the same way, with a count.

    In a closed loop each sharing of a link multiplies denominators, without end; a scenario of some iterations (Fig. 2
    of EchelonFlow, pipelines) never reaches the limit and stays exact. Both methods round up: a time is then never
    before its event, and the remainder of a flow is never zero.

    Some closed loops are chaotic, above all those under fair sharing: a difference grows by half with every iteration
    or so. A long run of one is, once rounded, as good a trajectory as the exact one, but not the same.
    """

    exact = True
    tolerance: Number = 0
    grain_bytes: Number = 0

    def __init__(self) -> None:
        self.count = 0

    def number(self, value: Number) -> Fraction:
        return Fraction(value)

    def time_s(self, time_s: Number) -> Fraction:
        """Round up to the next multiple of `TICK_S`."""
        return self._up(time_s, TICK_S)

    def bytes(self, amount: Number) -> Fraction:
        """Round up to the next multiple of `GRAIN_BYTES`."""
        return self._up(amount, GRAIN_BYTES)

    def latest_s(self, now_s: Number) -> Number:
        return now_s

    def next_s(self, now_s: Number) -> Number:
        return now_s

    def _up(self, number: Number, unit: Fraction) -> Fraction:
        number = Fraction(number)
        if number.denominator.bit_length() <= DENOMINATOR_BITS:
            return number
        self.count += 1
        return -(-number // unit) * unit


class Floats:
    """Floats. Events less than `SAME_TIME` apart, as a part of the time since the start of the run, happen at once.

    Each rate is within a part of `tolerance` of the exact one for the same flows, and links are overloaded by no more.
    The error of a time grows with the number of events before it, by some 1e-16 of the time each, as long as no
    decision depends on the last bit: flows that finish together, or are equally urgent, in exact arithmetic. Chaotic
    loops (see `Rounding`) enlarge it like any other difference.
    """

    SAME_TIME = 1e-12

    exact = False
    count = 0
    tolerance: Number = 1e-9
    grain_bytes: Number = 2.0**-20

    def number(self, value: Number) -> float:
        return float(value)

    def time_s(self, time_s: Number) -> float:
        return float(time_s)

    def bytes(self, amount: Number) -> float:
        return max(float(amount), float(self.grain_bytes))

    def latest_s(self, now_s: Number) -> Number:
        return now_s + now_s * self.SAME_TIME

    def next_s(self, now_s: Number) -> Number:
        return now_s + max(now_s, 1e-3) * 4 * self.SAME_TIME
