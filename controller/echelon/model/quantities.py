"""Exact quantities from text: ``"10 ms"``, ``"2.5 MB"``, ``"10 Mbit/s"``.

A quantity is a decimal number and a unit. Units are case-sensitive (`Mbit/s` is not `mbit/s`).
Decimal prefixes are powers of 1000; `Ki`, `Mi`, `Gi` and `Ti` are powers of 1024. A number without
a unit is refused, so that no file depends on what its reader assumes; only 0 needs no unit. `µs` is
the same as `us`.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.errors import Code, CodedError
from echelon.model.spellings import as_ascii, meant

_QUANTITY = re.compile(
    r"(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?)\s*(?P<unit>(?:[A-Za-z]\S*)?)",
    re.ASCII,
)

_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]{1,2})?|[0-9]+/[0-9]+", re.ASCII)

MAX_TEXT = 64
"""The length of the longest text that is parsed; a longer quantity is a mistake."""

# Lists may refer to each other, so their full text may be arbitrarily long.
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxlist = 4
_SHORT.maxdict = 4
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = MAX_TEXT


class QuantityError(CodedError, ValueError):
    """The text is not a quantity of the kind wanted.

    The message is one line and says what to write instead.
    """

    code: Code = "not-a-quantity"


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    units: Mapping[str, Fraction | int]
    example: str
    largest: int
    largest_text: str
    indivisible: str | None = None
    """The unit of which there must be a whole number. None: any rational number is allowed."""

    def parse(self, value: object) -> Fraction:
        match = _QUANTITY.fullmatch(as_ascii(_text(value, self)).strip())
        if match is None:
            raise self.no_quantity(value)
        number = Fraction(match["number"])
        unit = match["unit"]
        if not unit and number != 0:
            raise self.without_unit(value)
        if unit and unit not in self.units:
            right = meant(unit, self.name, self.units)
            advice = self.choice() if right is None else f"write {right}; {self.choice()}"
            reason = f"is not a unit of {self.name} ({advice})"
            raise QuantityError(f"{excerpt(unit)} {reason}", code="unknown-unit")
        amount = number * self.units[unit] if unit else number
        if amount < 0:
            reason = f"is negative (a {self.name} is 0 or more)"
            raise QuantityError(f"{excerpt(value)} {reason}", code="too-small")
        if amount > self.largest:
            reason = f"is too large (a {self.name} is at most {self.largest_text})"
            raise QuantityError(f"{excerpt(value)} {reason}", code="too-large")
        if self.indivisible and amount.denominator != 1:
            raise QuantityError(
                f"{excerpt(value)} is not a whole number of {self.indivisible} (round it)"
            )
        return amount

    def no_quantity(self, value: object) -> QuantityError:
        reason = f"is not a {self.name} (write it as in {self.example})"
        return QuantityError(f"{excerpt(value)} {reason}")

    def without_unit(self, value: object) -> QuantityError:
        reason = f"has no unit (write for example {self.example}; {self.choice()})"
        return QuantityError(f"{excerpt(value)} {reason}", code="missing-unit")

    def choice(self) -> str:
        return f"use {', '.join(self.units)}"


_DURATION = _Kind(
    name="duration",
    units={
        "s": 1,
        "ms": Fraction(1, 10**3),
        "us": Fraction(1, 10**6),
        "ns": Fraction(1, 10**9),
        "min": 60,
        "h": 3600,
    },
    example="10 ms",
    largest=10**4 * 3600,
    largest_text="10000 h",
)
_SIZE = _Kind(
    name="size",
    units={
        "B": 1,
        "kB": 10**3,
        "MB": 10**6,
        "GB": 10**9,
        "TB": 10**12,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
        "TiB": 2**40,
    },
    example="2.5 MB",
    largest=10**15,
    largest_text="1000 TB",
    indivisible="bytes",
)
_RATE = _Kind(
    name="rate",
    units={
        "bit/s": 1,
        "kbit/s": 10**3,
        "Mbit/s": 10**6,
        "Gbit/s": 10**9,
        "Tbit/s": 10**12,
    },
    example="10 Mbit/s",
    largest=10**13,
    largest_text="10000 Gbit/s",
    indivisible="bits per second",
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
    """Return a decimal number or a fraction, as in ``0.01``, ``1e-2``, ``1/100``.

    Raises `QuantityError`.

    The exponent has two digits at most, because a longer one could take for ever to evaluate.
    """
    if len(text) <= MAX_TEXT and _NUMBER.fullmatch(text):
        with suppress(ValueError, ZeroDivisionError):
            return Fraction(text)
    raise QuantityError(
        f"{excerpt(text)} is not a number (write for example 0.01)", code="not-a-number"
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
    integer, decimals = divmod(round(value * 10**12), 10**12)
    return f"{integer}.{decimals:012d}".rstrip("0").rstrip(".")


def excerpt(value: object) -> str:
    """Return `value` as a message shows it: short, on one line, and in YAML's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
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
            raise kind.without_unit(value)
    raise kind.no_quantity(value)


def one_line(text: str) -> str:
    """Return `text` on one line, with control characters escaped for terminals."""
    text = " ".join(text.split())
    if text.isprintable():
        return text
    return "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
