"""Other spellings of units: those that are read, and the right ones for those that are refused.

`µs` is read as `us`, for both of Unicode's signs. A spelling that other programs use but that could
be read in two ways (`Gbps`, `Mb`, `100G`, `sec`) is refused, and the message says what to write.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["as_ascii", "meant"]

_MICRO = "\u00b5\u03bc"
"""The micro sign, which keyboards type, and the Greek letter, into which Unicode normalizes it."""

_ASCII = str.maketrans(
    {
        **dict.fromkeys(_MICRO, "u"),
        # Word processors and web pages put these spaces between a number and its unit.
        **dict.fromkeys("\u00a0\u2007\u2009\u202f", " "),
    }
)

_PREFIXES = ("", "k", "M", "G", "T")
_RATE_ENDINGS = ("bps", "b/s", "bit", "bits", "bits/s", "bitps", "bit/sec", "bits/sec")


def _rates() -> dict[str, str]:
    """Return what rates mean that are written in another way, as `Gbps` and `100G`."""
    meanings: dict[str, str] = {}
    for prefix in _PREFIXES:
        right = f"{prefix}bit/s"
        for ending in _RATE_ENDINGS:
            meanings[prefix + ending] = right
        meanings[f"{prefix}B/s"] = f"{right}: a byte has 8 bits"
    for prefix in _PREFIXES[1:]:
        meanings[prefix] = f"{prefix}bit/s"
    return meanings


def _sizes() -> dict[str, str]:
    """Return what sizes mean that are written in another way, as `KB`, `Mb` and `Gi`."""
    meanings: dict[str, str] = {}
    for prefix in _PREFIXES:
        right = f"{prefix}B"
        meanings[f"{prefix}byte"] = right
        meanings[f"{prefix}bytes"] = right
        meanings[f"{prefix}b"] = f"{right} for bytes; bits are 8 to a byte"
    for prefix in _PREFIXES[1:]:
        meanings[prefix] = f"{prefix}B"
        binary = prefix.upper()
        meanings[f"{binary}i"] = f"{binary}iB"
    meanings["KB"] = "kB"
    return meanings


_DURATIONS = {
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
    "msecs": "ms",
    "millisecond": "ms",
    "milliseconds": "ms",
    "usec": "us",
    "usecs": "us",
    "microsecond": "us",
    "microseconds": "us",
    "nsec": "ns",
    "nsecs": "ns",
    "nanosecond": "ns",
    "nanoseconds": "ns",
    "m": "min",
    "mins": "min",
    "minute": "min",
    "minutes": "min",
    "hr": "h",
    "hrs": "h",
    "hour": "h",
    "hours": "h",
    "d": "24 h for a day",
    "day": "24 h for a day",
    "days": "24 h for a day",
}

_MEANINGS = {"duration": _DURATIONS, "size": _sizes(), "rate": _rates()}


def as_ascii(text: str) -> str:
    """Return a quantity with `u` for both micro signs and plain spaces."""
    return text.translate(_ASCII)


def meant(unit: str, kind: str, units: Iterable[str]) -> str | None:
    """Return what to write instead of a unit that is refused; None where nobody can know.

    Args:
        unit: the unit as it was written.
        kind: `duration`, `size` or `rate`.
        units: the units of that kind.
    """
    meanings = _MEANINGS[kind]
    if unit in meanings:
        return meanings[unit]
    choices = dict(meanings)
    for right in units:
        choices[right] = right
    folded = unit.casefold()
    alike = {right for spelling, right in choices.items() if spelling.casefold() == folded}
    # `mb` may be MB or Mb: two different answers are none.
    if len(alike) != 1:
        return None
    return alike.pop()
