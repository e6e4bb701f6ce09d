"""Hashes against `zlib`, and against the definition of an exclusive-or hash."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from plugins.tofino_model.tests.emulator.conftest import Words, one_action

WORD = st.integers(0, 2**32 - 1)


def hashed(expression: str, seed: int = 0) -> Words:
    """Return a program that sends the lowest 32 bits of a hash in W0."""
    return Words(
        one_action(
            "- set w.a, hash_dist(0, 1, 0..31)",
            before=f"""\
    hash_dist:
      0: {{ hash: 2, mask: 0xffff, shift: 0 }}
      1: {{ hash: 2, mask: 0xffff, shift: 0 }}
    input_xbar:
      exact group 0: {{ 0: w.a, 32: w.b, 64: h.a }}
      hash 4:
        0..31: {expression}
      hash group 2:
        table: [4]
        seed: {seed:#x}
""",
        )
    )


CRC32 = hashed(
    "slice(stripe(crc_rev(0x82608edb, 0xffffffff, 0xffffffff, 80, { 48: w.a, 16: w.b, 0: h.a }, {"
    " })), 0..31)",
    seed=zlib.crc32(bytes(10)),
)
XOR = hashed("xor(32, { 32: w.a, 0: w.b })")
MIXED = hashed("stripe(w.a(16..31), w.b(0..15)) ^ w.b")


@given(WORD, WORD, st.integers(0, 2**16 - 1))
def test_crc32_of_several_fields(a: int, b: int, c: int) -> None:
    assert CRC32(a, b, c, 0, 0, 0)[0] == zlib.crc32(struct.pack("!IIH", a, b, c))


@given(WORD, WORD)
def test_exclusive_or_and_stripes(a: int, b: int) -> None:
    assert XOR(a, b, 0, 0, 0, 0)[0] == a ^ b
    assert MIXED(a, b, 0, 0, 0, 0)[0] == (a >> 16 | (b & 0xFFFF) << 16) ^ b


@given(WORD, WORD)
def test_a_random_hash_is_linear(a: int, b: int) -> None:
    assert (
        RANDOM(a, 0, 0, 0, 0, 0)[0] ^ RANDOM(b, 0, 0, 0, 0, 0)[0] == RANDOM(a ^ b, 0, 0, 0, 0, 0)[0]
    )


RANDOM = hashed("random(w.a, w.b)")
