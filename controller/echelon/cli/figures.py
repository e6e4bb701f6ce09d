"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

T = TypeVar("T", int, float)

NONE = "-"
"""The text shown where there is no number."""

_BARS = "▁▂▃▄▅▆▇█"
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_RATE_UNITS = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s"))
_SIZE_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))
_AGE_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float | None, digits: int = 4) -> str:
    """Return a duration to `digits` significant digits, in a unit that keeps it short: ``1 ms``."""
    return _time(seconds, f".{digits}g")


def measured(seconds: float | None) -> str:
    """Return a duration to four significant digits: ``12.50 ms``.

    All of them are shown, so that columns line up.
    """
    return _time(seconds, "#.4g")


def _time(seconds: float | None, form: str) -> str:
    if seconds is None:
        return NONE
    if seconds == 0:
        return "0 s"
    size = abs(seconds)
    factor, unit = _unit(size, _TIME_UNITS)
    if size < 1000:
        return f"{seconds / factor:{form}} {unit}"
    return f"{seconds:.0f} s"


def _unit(size: float, units: Sequence[tuple[T, str]]) -> tuple[T, str]:
    """Return the largest unit that fits into `size`, or else the smallest."""
    for factor, name in units:
        if size >= factor:
            return factor, name
    return units[-1]


def rate(bits_per_second: int) -> str:
    factor, unit = _unit(bits_per_second, _RATE_UNITS)
    return f"{bits_per_second / factor:g} {unit}"


def size(size_bytes: float | None) -> str:
    """Return a size to four significant digits: ``40.02 MB``."""
    if size_bytes is None:
        return NONE
    factor, unit = _unit(size_bytes, _SIZE_UNITS)
    return f"{size_bytes / factor:.4g} {unit}"


def ratio(value: float | None) -> str:
    """Return a slowdown or another ratio: ``1.273``."""
    if value is None:
        return NONE
    return f"{value:.3f}"


def percent(part: float) -> str:
    if part:
        return f"{part:.1%}"
    return NONE


def age(seconds: float) -> str:
    """Return how long ago something was, in whole units: ``3 min``."""
    age_s = max(int(seconds), 0)
    unit_s, name = _unit(age_s, _AGE_UNITS)
    return f"{age_s // unit_s} {name}"


def local_time(time_s: float, timespec: str = "seconds") -> str:
    """Return seconds since the epoch as a date and time of day of this place."""
    return datetime.fromtimestamp(time_s).astimezone().isoformat(" ", timespec)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars between their smallest and largest."""
    last = values[-width:]
    if not last:
        return ""
    low = min(last)
    high = max(last)
    # Insignificant differences are not stretched to the full height.
    if high - low <= 1e-3 * max(abs(low), abs(high)):
        return _BARS[0] * len(last)
    top = len(_BARS) - 1
    bars = ""
    for value in last:
        share = (value - low) / (high - low)
        bars += _BARS[round(share * top)]
    return bars


def clipped(name: str, most: int) -> str:
    """Return a name of at most `most` characters."""
    if len(name) <= most:
        return name
    return f"{name[: most - 1]}…"


def held(entries: int | None, wanted: int) -> str:
    """Return ``12`` if all entries are held, else ``10/12``; ``?/12`` if that is not known."""
    if entries is None:
        return f"?/{wanted}"
    if entries == wanted:
        return str(entries)
    return f"{entries}/{wanted}"


def fields(match: Mapping[str, str]) -> str:
    """Return the fields of a table entry: ``port=1, dst=10.0.0.2``."""
    return ", ".join(f"{name}={value}" for name, value in match.items()) or "any packet"


def problem(switch: str, text: str) -> str:
    """Return the problem of a switch, to be read after its name."""
    return text.removeprefix(f"switch {switch}: ")
