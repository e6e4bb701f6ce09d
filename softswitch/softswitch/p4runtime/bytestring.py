"""Canonical byte strings, P4Runtime's form of integers (specification, section "Bytestrings").

A value is sent as the shortest big-endian string that holds it, never as the empty string. A
receiver accepts any number of leading zeros and judges the value alone, which must fit the bit
width that the P4Info gives.
"""

from __future__ import annotations

__all__ = ["OutOfRangeError", "decode", "decode_signed", "encode", "encode_signed"]


class OutOfRangeError(ValueError):
    """The byte string is empty, or its value does not fit the field's width."""


def encode(value: int) -> bytes:
    """Return the canonical string of an unsigned value; zero is one zero byte."""
    size = (value.bit_length() + 7) // 8 or 1
    return value.to_bytes(size, "big")


def decode(data: bytes, width: int) -> int:
    """Return the unsigned value of `data`, a ``bit<width>``.

    Raises:
        OutOfRangeError: the string is empty or the value needs more than `width` bits.
    """
    value = int.from_bytes(data, "big")
    if value >> width or not data:
        raise OutOfRangeError(_complaint(data, f"bit<{width}>"))
    return value


def encode_signed(value: int) -> bytes:
    """Return the canonical two's complement string of a signed value."""
    magnitude = value if value >= 0 else ~value
    # One more bit for the sign.
    bits = magnitude.bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def decode_signed(data: bytes, width: int) -> int:
    """Return the signed value of `data`, an ``int<width>`` in two's complement.

    Raises:
        OutOfRangeError: the string is empty or the value does not fit `width` bits.
    """
    value = int.from_bytes(data, "big", signed=True)
    half = 1 << (width - 1)
    if not data or not -half <= value < half:
        raise OutOfRangeError(_complaint(data, f"int<{width}>"))
    return value


def _complaint(data: bytes, type_name: str) -> str:
    if not data:
        return f"the byte string is empty; a {type_name} value needs at least one byte"
    if len(data) <= 24:
        text = data.hex()
    else:
        text = f"{data[:24].hex()}... ({len(data)} bytes)"
    return f"0x{text} does not fit {type_name}"
