"""Writing a fabric file for people to read and change."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.fabric.load import FabricSpec, HostSpec, LinkSpec, SwitchSpec

_WIDTH = 120
_RATES = {10**9: "Gbit/s", 10**6: "Mbit/s", 10**3: "kbit/s"}
_DURATIONS = {Fraction(1): "s", Fraction(1, 10**3): "ms", Fraction(1, 10**6): "us", Fraction(1, 10**9): "ns"}
_DECIMALS = 3
"""The most decimals of a number; a smaller unit is used if it needs more."""


def fabric_text(spec: FabricSpec, about: str) -> str:
    """Return YAML from which `load_fabric_spec` reads `spec` again, below a comment with the text `about`.

    Delays are rounded to nanoseconds.
    """
    comment = [f"# {line}" for line in textwrap.wrap(about, _WIDTH - 2)]
    lines = [
        *comment,
        f"fabric: {spec.fabric}",
        *_named("hosts", spec.hosts),
        *_named("switches", spec.switches),
        "links:",
        *(f"  - {_link(link)}" for link in spec.links),
    ]
    return "".join(f"{line}\n" for line in lines)


def _named(key: str, named: Mapping[str, HostSpec] | Mapping[str, SwitchSpec]) -> Sequence[str]:
    fixed = {name: spec.model_dump(exclude_none=True) for name, spec in named.items()}
    if any(fixed.values()):
        return [f"{key}:", *(f"  {name}: {_flow(values)}" for name, values in fixed.items())]
    whole = f"{key}: [{', '.join(fixed)}]"
    if len(whole) <= _WIDTH:
        return [whole]
    # A name with hyphens must not be broken.
    folded = textwrap.wrap(f"{', '.join(fixed)}]", _WIDTH - 2, break_on_hyphens=False, break_long_words=False)
    return [f"{key}: [", *(f"  {line}" for line in folded)]


def _link(link: LinkSpec) -> str:
    values: dict[str, object] = {"between": f"[{', '.join(link.between)}]", "rate": _rate(link.rate)}
    if link.delay:
        values["delay"] = _duration(link.delay)
    if link.ports:
        values["ports"] = _flow(link.ports)
    return _flow(values)


def _flow(values: Mapping[str, object]) -> str:
    # Without quotes, YAML would read some MAC addresses as numbers in base 60.
    words = (f'{key}: "{value}"' if key == "mac" else f"{key}: {value}" for key, value in values.items())
    return f"{{{', '.join(words)}}}"


def _rate(bits_per_second: int) -> str:
    for unit_bps, name in _RATES.items():
        if bits_per_second >= unit_bps and (text := _decimal(Fraction(bits_per_second, unit_bps))):
            return f"{text} {name}"
    return f"{bits_per_second} bit/s"


def _duration(seconds: Fraction) -> str:
    for unit_s, name in _DURATIONS.items():
        if seconds >= unit_s and (text := _decimal(seconds / unit_s)):
            return f"{text} {name}"
    return f"{float(round(seconds, 9)):.9f} s"


def _decimal(value: Fraction) -> str | None:
    """Return `value` with few decimals, or None if that would round it."""
    scaled = value * 10**_DECIMALS
    if scaled.denominator != 1:
        return None
    whole, rest = divmod(scaled.numerator, 10**_DECIMALS)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".")
