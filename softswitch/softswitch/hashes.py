"""The calculations that BMv2 registers: functions from bytes to an integer of at most 64 bits.

CRC parameters are those of the catalogue of parametrised CRC algorithms (width, polynomial, initial
value, reflection, final exclusive-or). The Internet checksum is RFC 1071.
"""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

Hash = Callable[[bytes], int]

_M64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Crc:
    """The parameters of a CRC; ``reflected`` holds for input and output alike."""

    width: int
    polynomial: int
    initial: int
    final: int
    reflected: bool


CRC16 = Crc(16, 0x8005, 0, 0, True)
_CRC8 = Crc(8, 0x07, 0, 0, False)
_CRC32 = Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True)
_CRC64 = Crc(64, 0x1B, 0, 0, True)
CRC_CUSTOM: Mapping[str, Crc] = {
    "crc8_custom": _CRC8,
    "crc16_custom": CRC16,
    "crc32_custom": _CRC32,
    "crc64_custom": _CRC64,
}


@cache
def crc_table(parameters: Crc) -> tuple[int, ...]:
    width = parameters.width
    entries = []
    if parameters.reflected:
        polynomial = reverse(parameters.polynomial, width)
        for byte in range(256):
            value = byte
            for _ in range(8):
                value = value >> 1 ^ polynomial if value & 1 else value >> 1
            entries.append(value)
    else:
        top = 1 << (width - 1)
        full = (1 << width) - 1
        for byte in range(256):
            value = byte << (width - 8)
            for _ in range(8):
                carry = value & top
                value = value << 1 & full
                if carry:
                    value ^= parameters.polynomial
            entries.append(value)
    return tuple(entries)


def reverse(value: int, width: int) -> int:
    """Return the lowest ``width`` bits in the opposite order."""
    return int(f"{value:0{width}b}"[::-1], 2)


def crc(parameters: Crc) -> Hash:
    """Return a CRC of whole bytes, computed by table (Sarwate's algorithm)."""
    table = crc_table(parameters)
    final = parameters.final
    if parameters.reflected:
        initial = reverse(parameters.initial, parameters.width)

        def reflected(data: bytes) -> int:
            value = initial
            for byte in data:
                value = value >> 8 ^ table[(value ^ byte) & 0xFF]
            return value ^ final

        return reflected

    shift = parameters.width - 8
    full = (1 << parameters.width) - 1

    def plain(data: bytes) -> int:
        value = parameters.initial
        for byte in data:
            value = (value << 8 & full) ^ table[value >> shift ^ byte]
        return value ^ final

    return plain


def crc_ccitt(data: bytes) -> int:
    """Return CRC-16 with polynomial 0x1021 and initial value 0xFFFF, not reflected."""
    return binascii.crc_hqx(data, 0xFFFF)


def csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071).

    It is the complement of the ones' complement sum of the big-endian 16-bit words.
    """
    if len(data) & 1:
        data += b"\0"
    total = int.from_bytes(data, "big")
    # 2**16 is 1 modulo 65535, so the remainder is the ones' complement sum, except that only 0
    # itself sums to 0.
    return 65534 - (total - 1) % 65535 if total else 65535


def xor(width_bytes: int) -> Hash:
    """Return the exclusive or of the big-endian words, the last one padded with zeros."""

    def xor_words(data: bytes) -> int:
        data += bytes(-len(data) % width_bytes)
        value = 0
        for i in range(0, len(data), width_bytes):
            value ^= int.from_bytes(data[i : i + width_bytes], "big")
        return value

    return xor_words


def identity(data: bytes) -> int:
    """Return the first eight bytes."""
    return int.from_bytes(data[:8], "big")


def toeplitz(key: bytes) -> Hash:
    """Return the Toeplitz hash of 32 bits.

    The key is repeated if the input is longer. BMv2 starts with a key of zeros.
    """

    def hash_words(data: bytes) -> int:
        data += bytes(-len(data) % 4)
        bits = len(data) * 8
        if not bits:
            return 0
        repeated = key * ((bits + 32) // (8 * len(key)) + 1)
        window = int.from_bytes(repeated, "big")
        length = len(repeated) * 8
        number = int.from_bytes(data, "big")
        value = 0
        for i in range(bits):
            if number >> (bits - 1 - i) & 1:
                value ^= window >> (length - 32 - i) & 0xFFFFFFFF
        return value

    return hash_words


_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> (64 - count)) & _M64


def _round(accumulator: int, word: int) -> int:
    return _rotated((accumulator + word * _P2) & _M64, 31) * _P1 & _M64


def _word(
    data: bytes,
    offset: int,
    size: int,
) -> int:
    return int.from_bytes(data[offset : offset + size], "little")


def xxh64(data: bytes) -> int:
    """Return XXH64 with seed 0 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    length = len(data)
    offset = 0
    if length >= 32:
        lanes = [(_P1 + _P2) & _M64, _P2, 0, -_P1 & _M64]
        while offset + 32 <= length:
            for i in range(4):
                lanes[i] = _round(lanes[i], _word(data, offset, 8))
                offset += 8
        turned = map(_rotated, lanes, (1, 7, 12, 18))
        value = sum(turned) & _M64
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _M64
    else:
        value = _P5
    value = (value + length) & _M64
    while offset + 8 <= length:
        value ^= _round(0, _word(data, offset, 8))
        value = (_rotated(value, 27) * _P1 + _P4) & _M64
        offset += 8
    if offset + 4 <= length:
        value ^= _word(data, offset, 4) * _P1 & _M64
        value = (_rotated(value, 23) * _P2 + _P3) & _M64
        offset += 4
    for byte in data[offset:]:
        value ^= byte * _P5 & _M64
        value = _rotated(value, 11) * _P1 & _M64
    value = (value ^ value >> 33) * _P2 & _M64
    value = (value ^ value >> 29) * _P3 & _M64
    return value ^ value >> 32


def round_robin() -> Hash:
    """Return 0, 1, 2, ... whatever the input."""
    calls = 0

    def count(data: bytes) -> int:
        nonlocal calls
        calls += 1
        return calls - 1

    return count


def round_robin_consistent() -> Hash:
    """Return 0, 1, 2, ... per distinct input."""
    seen: dict[bytes, int] = {}
    return lambda data: seen.setdefault(data, len(seen))


_STATELESS: Mapping[str, Hash] = {
    "crc32": zlib.crc32,
    "crcCCITT": crc_ccitt,
    "csum16": csum16,
    "cksum16": csum16,
    "identity": identity,
    "xxh64": xxh64,
}
_MAKERS: Mapping[str, Callable[[], Hash]] = {
    "crc16": partial(crc, CRC16),
    "xor16": partial(xor, 2),
    "xor32": partial(xor, 4),
    "toeplitz": partial(toeplitz, bytes(4)),
    "round_robin": round_robin,
    "round_robin_consistent": round_robin_consistent,
    "crc8_custom": partial(crc, CRC_CUSTOM["crc8_custom"]),
    "crc16_custom": partial(crc, CRC_CUSTOM["crc16_custom"]),
    "crc32_custom": partial(crc, CRC_CUSTOM["crc32_custom"]),
    "crc64_custom": partial(crc, CRC_CUSTOM["crc64_custom"]),
}

ALGORITHMS = frozenset((*_STATELESS, *_MAKERS))
"""The names that a program may use."""


def make(algorithm: str) -> Hash:
    """Return a calculation: a new instance, with its own state, if it has one."""
    if algorithm in _STATELESS:
        return _STATELESS[algorithm]
    return _MAKERS[algorithm]()
