"""Rates and times in the words of ns-3's classes DataRate and Time, such as 400Gbps and 0.005ms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_RATE = re.compile(r"(\d+(?:\.\d+)?)([kKMGT]?i?)(bps|b/s|Bps|B/s)")
_DELAY = re.compile(r"(\d+(?:\.\d+)?)(min|s|ms|us|ns|ps|fs)?")

_PREFIXES = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_PER_SECOND: Mapping[str, Fraction | int] = {
    "s": 1,
    "ms": 10**3,
    "us": 10**6,
    "ns": 10**9,
    "ps": 10**12,
    "fs": 10**15,
    "min": Fraction(1, 60),
}


def rate_bps(word: str) -> int | None:
    """Return the bits per second of a data rate; None: it is none, or less than 1 bit/s."""
    match = _RATE.fullmatch(word)
    if match is None:
        return None
    number, prefix, unit = match.groups()
    prefix = prefix.replace("K", "k")
    if prefix not in _PREFIXES:
        return None
    rate = Fraction(number) * _PREFIXES[prefix]
    if unit.startswith("B"):
        rate *= 8
    return int(rate) or None


def delay_s(word: str) -> Fraction | None:
    """Return the seconds of a time, whose unit is s if there is none; None: it is no time."""
    match = _DELAY.fullmatch(word)
    if match is None:
        return None
    number, unit = match.groups()
    return Fraction(number) / _PER_SECOND[unit or "s"]
