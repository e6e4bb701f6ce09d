"""Fields of Protocol buffers as bytes.

Messages are their fields one after the other, so they need no object.
"""

from __future__ import annotations

from functools import lru_cache


def varint(number: int) -> bytes:
    """Return an unsigned number as Protocol buffers write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, content: bytes) -> bytes:
    """Return a field of type message or bytes."""
    return delimiter(number, len(content)) + content


@lru_cache(maxsize=1 << 14)
def delimiter(number: int, size: int) -> bytes:
    """Return the bytes before the `size` bytes of a field of type message or bytes."""
    return varint(number << 3 | 2) + varint(size)


@lru_cache(maxsize=1 << 14)
def counted(number: int, value: int) -> bytes:
    """Return a field of an integer type."""
    return varint(number << 3) + varint(value)
