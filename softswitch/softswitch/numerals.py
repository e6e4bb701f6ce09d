"""Numbers in texts. A program's may have more digits than Python writes, which is 4,300."""

from __future__ import annotations

__all__ = ["brief", "numeral"]

_DECIMAL_BITS = 14_000
"""The longest number in decimal digits: 4,215 of them."""

_BRIEF_CHARACTERS = 40


def numeral(value: int) -> str:
    """Return a number in decimal digits, or in hexadecimal ones if it is very long."""
    if value.bit_length() > _DECIMAL_BITS:
        return f"{value:#x}"
    return str(value)


def brief(value: int) -> str:
    """Return a number for an error's line, without the rest of its digits if it is long."""
    text = numeral(value)
    if len(text) <= _BRIEF_CHARACTERS:
        return text
    return text[: _BRIEF_CHARACTERS - 3] + "..."
