"""The 64-bit words that the fields of a table's key share, for those who write entries and those who look them up."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch import ir
from softswitch.errors import ProgramError

from .text import words


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """``places`` has (word, shift) of each field, None for a range; ``size`` is in words."""

    places: tuple[tuple[int, int] | None, ...]
    size: int
    ranges: tuple[int, ...]
    """The positions of the fields that are ranges."""
    kind: str
    """exact, longest or best, after the entry that a look-up finds."""


def key_layout(spec: ir.TableSpec) -> KeyLayout:
    """Put a table's fields into words: in order, and a field that has not more than 64 bits into one word."""
    places: list[tuple[int, int] | None] = []
    ranges: list[int] = []
    word, used = 0, 0
    for i, key in enumerate(spec.keys):
        if key.match == "range":
            if key.width > 64:
                raise ProgramError(spec.place, f"a range of {key.width} bits is not one that the native engine has")
            ranges.append(i)
            places.append(None)
            continue
        if used and used + key.width > 64:
            word, used = word + 1, 0
        places.append((word, used))
        if key.width > 64:
            word += words(key.width)
        else:
            used += key.width
    kinds = {key.match for key in spec.keys}
    kind = "best" if ranges or spec.match in ("ternary", "range") else "longest" if "lpm" in kinds else "exact"
    return KeyLayout(tuple(places), word + (used > 0), tuple(ranges), kind)


def split(number: int, count: int) -> list[int]:
    """Return the ``count`` lowest words of a number."""
    return [number >> 64 * i & 0xFFFF_FFFF_FFFF_FFFF for i in range(count)]
