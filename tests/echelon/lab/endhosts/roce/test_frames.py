"""Packets of RoCE against scapy, which was written by others, and against a captured packet."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from echelon_lab.endhosts.roce.frames import (
    ACK,
    ACKNOWLEDGE,
    HEADER_BYTES,
    NAK_SEQUENCE,
    NUMBERS,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Packet,
    PairFrames,
    QueuePairAddress,
    invariant_crc,
    parse,
)
from tests.drawing import examples

_OPCODES = (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY)
_NUMBERS = st.integers(0, NUMBERS - 1)


def address(src_pair: int = 0x101, dst_pair: int = 0x202) -> QueuePairAddress:
    return QueuePairAddress(
        "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 0xC123, src_pair, dst_pair
    )


def by_scapy(frame: bytes) -> Ether:
    """Return scapy's frame with the same content, whose checksums, lengths and CRC it computes
    anew.
    """
    seen = Ether(frame)
    for layer, names in ((IP, ("len", "chksum")), (UDP, ("len",)), (BTH, ("icrc",))):
        for name in names:
            setattr(seen[layer], name, None)
    return seen


@settings(max_examples=examples(200), deadline=None)
@given(
    opcode=st.sampled_from(_OPCODES),
    pair=_NUMBERS,
    psn=_NUMBERS,
    payload=st.integers(0, 300),
    message=st.integers(1, 2**31),
    asks=st.booleans(),
    before=st.integers(0, 3),
)
def test_scapy_builds_and_reads_the_same_frames(
    opcode: int, pair: int, psn: int, payload: int, message: int, asks: bool, before: int
) -> None:
    frames = PairFrames(address(dst_pair=pair))
    for _ in range(before):
        frames.write(WRITE_ONLY, 0, 1, 1, asks=False)
    frame = frames.write(opcode, psn, payload, message, asks=asks)
    assert bytes(by_scapy(frame)) == frame
    bth = Ether(frame)[BTH]
    assert (bth.opcode, bth.dqpn, bth.psn, bth.ackreq, bth.padcount) == (
        opcode,
        pair,
        psn,
        asks,
        -payload % 4,
    )
    assert parse(frame) == Packet(opcode, pair, psn, asks, payload, 0, before)


@settings(max_examples=examples(100), deadline=None)
@given(psn=_NUMBERS, syndrome=st.sampled_from((ACK, NAK_SEQUENCE)), messages=st.integers(0, 2**30))
def test_acknowledgements_are_scapys(psn: int, syndrome: int, messages: int) -> None:
    frame = PairFrames(address().reversed()).acknowledge(psn, syndrome, messages)
    assert bytes(by_scapy(frame)) == frame
    seen = Ether(frame)
    assert (seen[BTH].opcode, seen[BTH].dqpn, seen[BTH].psn) == (ACKNOWLEDGE, 0x101, psn)
    assert (seen[AETH].syndrome, seen[AETH].msn) == (syndrome, messages % NUMBERS)
    assert parse(frame) == Packet(ACKNOWLEDGE, 0x101, psn, False, 0, syndrome, 0)


def test_the_crc_of_a_captured_packet() -> None:
    """A congestion notification of a ConnectX-4 Lx, which scapy's own tests have, too
    (test/contrib/roce.uts).
    """
    captured = bytes.fromhex(
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000"
        "0118" + "00" * 20 + "82fd002a"
    )
    assert invariant_crc(captured[:-4]) == captured[-4:]
    assert parse(captured) == Packet(0x81, 0x118, 0, False, 16, 0, 0x718C)


@pytest.mark.parametrize("payload", [0, 5, 1024])
def test_what_routers_change_leaves_the_crc_right_and_nothing_else_does(payload: int) -> None:
    frame = PairFrames(address()).write(WRITE_FIRST, 77, payload, 4096, asks=True)
    may_change = {
        15,
        22,
        24,
        25,
        40,
        41,
        46,
    }  # type of service, time to live, checksums, congestion bits
    for at in range(14, len(frame)):
        other = bytearray(frame)
        other[at] ^= random.Random(at).randrange(1, 256)
        other_is_right = invariant_crc(bytes(other[:-4])) == bytes(other[-4:])
        assert other_is_right == (at in may_change), at
        if at not in may_change:
            assert parse(bytes(other)) is None, at


def test_other_frames_are_nobodys() -> None:
    frame = PairFrames(address()).write(WRITE_ONLY, 1, 100, 100, asks=True)
    assert parse(frame + bytes(20)) == parse(frame), "a link may pad frames"
    assert all(parse(frame[:length]) is None for length in range(len(frame)))
    short = bytearray(frame)
    short[16:18] = (HEADER_BYTES - 14).to_bytes(2, "big")
    assert parse(bytes(short)) is None
