"""The two exact arithmetics of an iteration alone: whole numbers of ticks, and fractions.

Whole numbers are several times as fast. They need a tick of which every time of the iteration is a multiple. It is
guessed from the job and its links; rates that flows leave to each other may ask for a finer one. Where no tick of
`DENOMINATOR_BITS` serves, fractions do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import gcd, lcm
from typing import Protocol, TypeAlias, TypeVar

from echelon.fluid.rounding import DENOMINATOR_BITS, Rounding

Exact: TypeAlias = int | Fraction
"""A time, rate or amount in the unit of its `ExactUnits`."""

T = TypeVar("T")

_TRIES = 4
"""The ticks that are tried."""


class ExactUnits(Protocol):
    """The units of a run."""

    def time(self, time_s: Fraction) -> Exact:
        """Return a time of the job."""

    def rate(self, rate_Bps: Fraction) -> Exact:  # noqa: N803
        """Return a rate of the fabric."""

    def amount(self, size_bytes: int) -> Exact:
        """Return an amount such that a rate times a time is one."""

    def duration(self, amount: Exact, rate: Exact) -> Exact:
        """Return the time that the amount takes at the rate."""

    def bounded_time(self, time: Exact) -> Exact:
        """Return a time of which the run can keep the size."""

    def bounded_amount(self, amount: Exact) -> Exact:
        """Return an amount of which the run can keep the size."""

    def seconds(self, time: Exact) -> Fraction:
        """Return a time in seconds."""


class _FinerError(Exception):
    """A time is no multiple of the tick; it is one of a tick so many times as fine."""

    def __init__(self, times: int) -> None:
        super().__init__(times)
        self.times = times


class _Ticks:
    """Whole numbers: times in ticks, rates in bytes per second over `per_Bps`."""

    def __init__(self, per_s: int, per_Bps: int) -> None:  # noqa: N803
        self._per_s = per_s
        self._per_Bps = per_Bps

    def time(self, time_s: Fraction) -> int:
        return time_s.numerator * (self._per_s // time_s.denominator)

    def rate(self, rate_Bps: Fraction) -> int:  # noqa: N803
        return rate_Bps.numerator * (self._per_Bps // rate_Bps.denominator)

    def amount(self, size_bytes: int) -> int:
        return size_bytes * self._per_s * self._per_Bps

    def duration(self, amount: Exact, rate: Exact) -> int:
        whole, rest = divmod(amount, rate)
        if rest:
            assert isinstance(rate, int)
            raise _FinerError(rate // gcd(int(rest), rate))
        return int(whole)

    def bounded_time(self, time: Exact) -> Exact:
        return time

    def bounded_amount(self, amount: Exact) -> Exact:
        return amount

    def seconds(self, time: Exact) -> Fraction:
        return Fraction(time, self._per_s)


class _Fractions:
    """Fractions of seconds and bytes, rounded where they have grown too large."""

    def __init__(self) -> None:
        rounding = Rounding()
        self.bounded_time = rounding.time_s
        self.bounded_amount = rounding.bytes

    def time(self, time_s: Fraction) -> Fraction:
        return time_s

    def rate(self, rate_Bps: Fraction) -> Fraction:  # noqa: N803
        return rate_Bps

    def amount(self, size_bytes: int) -> Fraction:
        return Fraction(size_bytes)

    def duration(self, amount: Exact, rate: Exact) -> Fraction:
        return Fraction(amount) / rate

    def seconds(self, time: Exact) -> Fraction:
        return Fraction(time)


def exactly(times_s: Iterable[Fraction], rates_Bps: Iterable[Fraction], run: Callable[[ExactUnits], T]) -> T:  # noqa: N803
    """Return what `run` returns in the fastest arithmetic that is exact for it.

    `times_s` and `rates_Bps` are those that the run begins with. It is called again where an arithmetic did not serve.
    """
    rates_Bps = list(rates_Bps)  # noqa: N806
    per_Bps = lcm(*(rate.denominator for rate in rates_Bps))  # noqa: N806
    per_s = lcm(*{time.denominator for time in times_s}, *(rate.numerator for rate in rates_Bps if rate))
    for _ in range(_TRIES):
        if per_s.bit_length() > DENOMINATOR_BITS:
            break
        try:
            return run(_Ticks(per_s, per_Bps))
        except _FinerError as error:
            per_s *= error.times
    return run(_Fractions())
