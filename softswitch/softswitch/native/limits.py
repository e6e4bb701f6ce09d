"""The limits of a program's C: what its compilers take, and what a thread's stack holds.

The bounds of `softswitch.load.bounds` keep programs below these limits, which are measured on the
code itself, so that nothing depends on how well the bounds foresee it.
"""

from __future__ import annotations

import re

from softswitch.errors import TooLarge

__all__ = [
    "MAX_EXPRESSION_BYTES",
    "MAX_LINE_BYTES",
    "MAX_TEXT_BYTES",
    "check_text",
    "too_large",
]

MAX_TEXT_BYTES = 4 << 20
"""The longest C of a program. That of the largest program of this repository has 0.5 MB."""

MAX_EXPRESSION_BYTES = 1 << 17
"""The longest C of one expression, which compilers read in calls in calls."""

MAX_LINE_BYTES = 1 << 18
"""The longest line: an expression, or a constant of the widest field (20 characters a word)."""

MAX_FRAME_BYTES = 1 << 19
"""The arrays of one function. At most six such functions call each other, on a stack of 8 MiB."""

_ARRAY = re.compile(r" *(?:const )?(uint64_t|uint8_t) \w+\[(\d*)\]( = \{.*)?")
_WIDTHS = {"uint64_t": 8, "uint8_t": 1}


def check_text(name: str, lines: list[str]) -> None:
    """Refuse a program whose functions have too large arrays.

    Raises :class:`TooLarge`.
    """
    frame_bytes = 0
    for line in lines:
        if line.startswith("}"):
            frame_bytes = 0
            continue
        # Compilers give each array of a function a place of its own.
        array = _ARRAY.match(line)
        if array is None:
            continue
        kind, count, values = array.groups()
        items = int(count) if count else (values or "").count(",") + 1
        frame_bytes += items * _WIDTHS[kind]
        if frame_bytes > MAX_FRAME_BYTES:
            raise too_large(name, "the numbers of a function", frame_bytes, MAX_FRAME_BYTES)


def too_large(
    name: str,
    part: str,
    size: int,
    limit: int,
) -> TooLarge:
    """Return the error about a program's code, or a part of it, of over ``size`` bytes."""
    return TooLarge(name, f"{part}: over {size:,} bytes, at most {limit:,} are allowed")
