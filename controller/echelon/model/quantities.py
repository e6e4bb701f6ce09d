"""Exact quantities from text: ``"10 ms"``, ``"2.5 MB"``, ``"10 Mbit/s"``.

A quantity is a decimal number and a unit. Units are case-sensitive (`Mbit/s` is not `mbit/s`).
Decimal prefixes are powers of 1000; `Ki`, `Mi`, `Gi` and `Ti` are powers of 1024. A number without
a unit is refused, so that no file depends on what its reader assumes; only 0 needs no unit.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.errors import Code, CodedError

_QUANTITY = re.compile(
    r"(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*(?P<unit>(?:[A-Za-zµ]\S*)?)",
    re.ASCII,
)

_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]{1,2})?|[0-9]+/[0-9]+", re.ASCII)

MAX_TEXT = 64
"""The length of the longest text that is parsed; a longer quantity is a mistake."""

# Lists may refer to each other, so their full text may be arbitrarily long.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 4, 4
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_TEXT


class QuantityError(CodedError, ValueError):
    """The text is not a quantity of the kind wanted.

    The message is one line and says what to write instead.
    """

    code: Code = "not-a-quantity"


@dataclass(frozen=True, slots=True)
class _Kind:
    what: str
    units: Mapping[str, Fraction]
    example: str
    largest: Fraction
    largest_text: str
    whole: str | None = None
    """The unit of which there must be a whole number. None: any rational number is allowed."""

    def parse(self, value: object) -> Fraction:
        match = _QUANTITY.fullmatch(_text(value, self).strip())
        if match is None:
            raise QuantityError(
                f"{shown(value)} is not a {self.what} (write it as in {self.example})"
            )
        number = Fraction(match["number"])
        unit = match["unit"]
        if not unit and number != 0:
            raise QuantityError(
                f"{shown(value)} has no unit (write for example {self.example}; {self.choice()})",
                code="missing-unit",
            )
        if unit and unit not in self.units:
            raise QuantityError(
                f"{shown(unit)} is not a unit of {self.what} ({self.choice()})", code="unknown-unit"
            )
        amount = number * self.units[unit] if unit else number
        if amount < 0:
            raise QuantityError(
                f"{shown(value)} is negative (a {self.what} is 0 or more)", code="too-small"
            )
        if amount > self.largest:
            raise QuantityError(
                f"{shown(value)} is too large (a {self.what} is at most {self.largest_text})",
                code="too-large",
            )
        if self.whole and amount.denominator != 1:
            raise QuantityError(f"{shown(value)} is not a whole number of {self.whole} (round it)")
        return amount

    def choice(self) -> str:
        return f"use {', '.join(self.units)}"


_DURATION = _Kind(
    what="duration",
    units={
        "s": Fraction(1),
        "ms": Fraction(1, 10**3),
        "us": Fraction(1, 10**6),
        "ns": Fraction(1, 10**9),
        "min": Fraction(60),
        "h": Fraction(3600),
    },
    example="10 ms",
    largest=Fraction(10**4 * 3600),
    largest_text="10000 h",
)
_SIZE = _Kind(
    what="size",
    units={
        "B": Fraction(1),
        "kB": Fraction(10**3),
        "MB": Fraction(10**6),
        "GB": Fraction(10**9),
        "TB": Fraction(10**12),
        "KiB": Fraction(2**10),
        "MiB": Fraction(2**20),
        "GiB": Fraction(2**30),
        "TiB": Fraction(2**40),
    },
    example="2.5 MB",
    largest=Fraction(10**15),
    largest_text="1000 TB",
    whole="bytes",
)
_RATE = _Kind(
    what="rate",
    units={
        "bit/s": Fraction(1),
        "kbit/s": Fraction(10**3),
        "Mbit/s": Fraction(10**6),
        "Gbit/s": Fraction(10**9),
    },
    example="10 Mbit/s",
    largest=Fraction(10**13),
    largest_text="10000 Gbit/s",
    whole="bits per second",
)


def duration_s(value: object) -> Fraction:
    """Return the exact seconds of a duration of at most 10000 h. Raises `QuantityError`."""
    return _DURATION.parse(value)


def size_bytes(value: object) -> int:
    """Return the bytes of a size, a whole number up to 10^15. Raises `QuantityError`."""
    return int(_SIZE.parse(value))


def rate_bps(value: object) -> int:
    """Return the bits per second of a rate, a whole number up to 10^13. Raises `QuantityError`."""
    return int(_RATE.parse(value))


def number(text: str) -> Fraction:
    """Return a decimal number or a fraction, as in ``0.01``, ``1e-2``, ``1/100``. Raises
    `QuantityError`.

    The exponent has two digits at most, because a longer one could take for ever to evaluate.
    """
    if len(text) <= MAX_TEXT and _NUMBER.fullmatch(text):
        with suppress(ValueError, ZeroDivisionError):
            return Fraction(text)
    raise QuantityError(
        f"{shown(text)} is not a number (write for example 0.01)", code="not-a-number"
    )


def duration_text(seconds: Fraction) -> str:
    """Return a duration as a file writes it, rounded to picoseconds."""
    return f"{_decimal(seconds)} s"


def size_text(size: int) -> str:
    """Return a size in bytes as a file writes it."""
    return f"{size} B"


def rate_text(bits_per_second: int) -> str:
    """Return a rate as a file writes it."""
    return f"{bits_per_second} bit/s"


def _decimal(value: Fraction) -> str:
    whole, rest = divmod(round(value * 10**12), 10**12)
    return f"{whole}.{rest:012d}".rstrip("0").rstrip(".")


def shown(value: object) -> str:
    """Return `value` as a message shows it: on one line, short, and with YAML's words for null,
    true and false.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        if isinstance(value, int):
            str(value)  # reprlib describes it from Python 3.14 on
        return " ".join(_SHORT.repr(value).split())
    except ValueError:  # an integer of more digits than Python is willing to print
        return "a number of thousands of digits"


def _text(value: object, kind: _Kind) -> str:
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    # YAML reads a bare 0 as an integer. To Python, True is an integer too.
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value == 0:
            return "0"
        if isinstance(value, int) or value * 0 == 0:  # neither infinite nor not-a-number
            raise QuantityError(
                f"{shown(value)} has no unit (write for example {kind.example}; {kind.choice()})",
                code="missing-unit",
            )
    raise QuantityError(f"{shown(value)} is not a {kind.what} (write it as in {kind.example})")
