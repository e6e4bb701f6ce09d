"""Calculations against published check values and independent implementations."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import hashes
from tests.drawing import examples

CHECK = b"123456789"


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [
        ("crc16", 0xBB3D),  # CRC-16/ARC
        ("crc16_custom", 0xBB3D),
        ("crc32", 0xCBF43926),
        ("crc32_custom", 0xCBF43926),
        ("crcCCITT", 0x29B1),  # CRC-16/IBM-3740, also called CCITT-FALSE
        ("crc8_custom", 0xF4),  # CRC-8/SMBUS
        ("crc64_custom", 0x46A5A9388A5BEFFE),  # ISO 3309, initial value 0
        ("identity", 0x3132333435363738),
    ],
)
def test_check_values(algorithm: str, value: int) -> None:
    assert hashes.make(algorithm)(CHECK) == value


def test_internet_checksum_example_of_rfc_1071() -> None:
    assert hashes.csum16(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


def test_xxh64_published_values() -> None:
    assert hashes.xxh64(b"") == 0xEF46DB3751D8E999
    assert hashes.xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert hashes.xxh64(b"abc") == 0x44BC2CF5AD770999
    assert hashes.xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1


def test_toeplitz_examples_of_the_rss_specification() -> None:
    """The suite is Microsoft's for receive-side scaling: source, destination and ports are hashed
    in that order.
    """
    key = bytes.fromhex(
        "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
    )
    function = hashes.toeplitz(key)
    source, destination = bytes([66, 9, 149, 187]), bytes([161, 142, 100, 80])
    ports = (2794).to_bytes(2, "big") + (1766).to_bytes(2, "big")
    assert function(source + destination) == 0x323E8FC2
    assert function(source + destination + ports) == 0x51CCC178
    assert hashes.make("toeplitz")(source) == 0


def bitwise_crc(parameters: hashes.Crc, data: bytes) -> int:
    """Return the CRC by definition, one bit at a time."""
    value = parameters.initial
    for byte in data:
        bits = f"{byte:08b}"
        for bit in bits[::-1] if parameters.reflected else bits:
            top = value >> (parameters.width - 1)
            value = value << 1 & (1 << parameters.width) - 1
            if top ^ int(bit):
                value ^= parameters.polynomial
    return (
        hashes.reverse(value, parameters.width) if parameters.reflected else value
    ) ^ parameters.final


@settings(max_examples=examples(100))
@given(st.binary(max_size=40), st.sampled_from(sorted(hashes.CRC_CUSTOM)))
def test_crc_by_definition(data: bytes, name: str) -> None:
    assert hashes.make(name)(data) == bitwise_crc(hashes.CRC_CUSTOM[name], data)


@settings(max_examples=examples(60))
@given(
    st.binary(max_size=20),
    st.sampled_from([8, 12, 16, 32]),
    st.integers(1, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_crc_of_any_parameters(
    data: bytes, width: int, polynomial: int, initial: int, reflected: bool
) -> None:
    full = (1 << width) - 1
    parameters = hashes.Crc(
        width, polynomial & full, initial & full, polynomial >> 3 & full, reflected
    )
    assert hashes.crc(parameters)(data) == bitwise_crc(parameters, data)


def carry_loop(words: Sequence[int]) -> int:
    """Return the checksum of RFC 1071, section 4.1."""
    total = 0
    for word in words:
        total += word
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@settings(max_examples=examples(200))
@given(
    st.binary(max_size=64)
    | st.sampled_from([b"", b"\0\0", b"\xff\xff", b"\xff\xff\xff\xff", b"\0"])
)
def test_internet_checksum(data: bytes) -> None:
    padded = data + bytes(len(data) % 2)
    words = [padded[i] << 8 | padded[i + 1] for i in range(0, len(padded), 2)]
    assert hashes.csum16(data) == carry_loop(words)


@settings(max_examples=examples(100))
@given(st.binary(max_size=64))
def test_others_by_definition(data: bytes) -> None:
    assert hashes.make("crc32")(data) == zlib.crc32(data)
    padded = data + bytes(-len(data) % 4)
    xor = 0
    for i in range(0, len(padded), 4):
        xor ^= int.from_bytes(padded[i : i + 4], "big")
    assert hashes.make("xor32")(data) == xor
    assert hashes.make("xor16")(data) == xor >> 16 ^ xor & 0xFFFF
    assert hashes.make("identity")(data) == int.from_bytes(data[:8], "big")


def test_round_robins_keep_their_own_state() -> None:
    first, second = hashes.make("round_robin"), hashes.make("round_robin")
    assert [first(b"a"), first(b"a"), second(b"a"), first(b"b")] == [0, 1, 0, 2]
    same = hashes.make("round_robin_consistent")
    assert [same(b"a"), same(b"b"), same(b"a"), same(b"c")] == [0, 1, 0, 2]
