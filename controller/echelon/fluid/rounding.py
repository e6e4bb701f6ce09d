"""Exact numbers whose size stays bounded."""

from __future__ import annotations

from fractions import Fraction

from echelon.allocation import Number

DENOMINATOR_BITS = 256
"""Numbers are exact as long as their denominator has no more bits than this."""
TICK_S = Fraction(1, 10**12)
GRAIN_BYTES = Fraction(1, 2**40)
"""Grain of remaining bytes, so fine that a flow's finish time moves by less than a tick at any rate above a byte per
second."""


class Rounding:
    """A rounding of numbers that have outgrown `DENOMINATOR_BITS`, always in the same way, with a count.

    In a closed loop each sharing of a link multiplies denominators, without end; a scenario of some iterations (Fig. 2
    of EchelonFlow, pipelines) never reaches the limit and stays exact. Both methods round up: a time is then never
    before its event, and the remainder of a flow is never zero.

    Some closed loops are chaotic, above all those under fair sharing: a difference grows by half with every iteration
    or so. A long run of one is, once rounded, as good a trajectory as the exact one, but not the same.
    """

    def __init__(self) -> None:
        self.count = 0

    def time_s(self, time: Number) -> Fraction:
        """Round up to the next multiple of `TICK_S`."""
        return self._up(time, TICK_S)

    def bytes(self, amount: Number) -> Fraction:
        """Round up to the next multiple of `GRAIN_BYTES`."""
        return self._up(amount, GRAIN_BYTES)

    def _up(self, number: Number, unit: Fraction) -> Fraction:
        assert not isinstance(number, float)
        if number.denominator.bit_length() <= DENOMINATOR_BITS:
            return number
        self.count += 1
        return -(-number // unit) * unit
