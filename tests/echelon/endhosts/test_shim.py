"""Frames against scapy-free arithmetic: fixed bytes worked out by hand, and the sources of the P4 program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.endhosts import shim

ADDRESS = shim.FlowAddress(
    "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 0xC001, job=0x0102, flow=0x0304
)


def test_plain_frame_byte_by_byte() -> None:
    frames = shim.DataFrames(ADDRESS, epoch=7, packet_bytes=1250)
    frame = frames.head + (2_500_000).to_bytes(4, "big") + frames.payload
    assert len(frame) == 1250
    assert frame[:14].hex() == "020000000002" + "020000000001" + "0800"
    # 1236 = 0x04d4 bytes of IPv4, ECT(0), do not fragment, 64 hops, UDP. The checksum by hand:
    # 4502+04d4+0000+4000+4011+0a00+0001+0a00+0002 = ddea; its complement: 2215.
    assert frame[14:34].hex() == "450204d400004000" + "4011" + "2215" + "0a000001" + "0a000002"
    assert frame[34:42].hex() == "c001ef1004c00000"
    assert frame[42:54].hex() == "10" + "07" + "0102" + "0304" + "0000" + "002625a0"
    assert not any(frame[54:])


def test_plain_frame_is_what_build_builds() -> None:
    frames = shim.DataFrames(ADDRESS, 255, 200)
    assert frames.head + (999).to_bytes(4, "big") + frames.payload == frames.build(999, 200)
    prompt = frames.prompt_head + (999).to_bytes(4, "big") + frames.payload
    assert prompt == frames.build(999, 200, reserved=shim.PROMPT)
    assert prompt[shim.SHIM_RESERVED_AT] == shim.PROMPT == 2


def test_acknowledgement_goes_back_and_says_what_it_answers() -> None:
    acks = shim.AckFrames(ADDRESS, epoch=7)
    for drain in (False, True):
        for resent in (False, True):
            frame = acks.build(1234, drain, resent)
            assert len(frame) == 64
            assert frame[:12].hex() == "020000000001020000000002"
            assert frame[26:34].hex() == "0a0000020a000001"
            assert frame[34:38].hex() == "c001ef10"
            flags = shim.ACK | (shim.DRAIN if drain else 0)
            assert shim.parse_shim(frame) == shim.Shim(flags, 7, 0x0102, 0x0304, int(resent), 1234)
            assert shim.internet_checksum(frame[14:34]) == 0


@given(
    flags=st.integers(0, 15),
    epoch=st.integers(0, 255),
    job=st.integers(0, 65535),
    flow=st.integers(0, 65535),
    reserved=st.integers(0, 65535),
    remaining=st.integers(0, 2**32 - 1),
    length=st.integers(shim.MIN_FRAME_BYTES, 9000),
)
@settings(max_examples=100)
def test_built_frames_parse_back(
    flags: int, epoch: int, job: int, flow: int, reserved: int, remaining: int, length: int
) -> None:
    address = shim.FlowAddress("02:00:00:00:ff:01", "06:05:04:03:02:01", "10.255.1.2", "192.168.0.9", 65535, job, flow)
    frame = shim.DataFrames(address, epoch, length).build(remaining, length, flags, reserved)
    assert len(frame) == length
    assert int.from_bytes(frame[shim.IPV4_TOTAL_LENGTH], "big") == length - 14
    assert shim.internet_checksum(frame[14:34]) == 0
    parsed = shim.parse_shim(frame)
    assert parsed == shim.Shim(flags, epoch, job, flow, reserved, remaining)
    assert parsed is not None
    assert parsed.key == frame[shim.SHIM_KEY] == shim.flow_key(epoch, job, flow)
    assert frame[shim.SHIM_FLAGS_AT] & 0xF == flags
    assert frame[shim.SHIM_RESERVED_AT] == reserved & 0xFF


def test_checksum_of_the_rfc_1071_example() -> None:
    assert shim.internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF ^ 0xDDF2


@pytest.mark.parametrize(
    ("at", "value"),
    [(12, 0x86), (14, 0x46), (23, 6), (36, 0), (42, 0x20)],
    ids=["not IPv4", "options", "TCP", "other port", "other version"],
)
def test_foreign_frames_have_no_shim(at: int, value: int) -> None:
    frame = bytearray(shim.DataFrames(ADDRESS, 0, 100).build(100, 100))
    assert shim.has_shim(bytes(frame))
    frame[at] = value
    assert shim.parse_shim(bytes(frame)) is None


def test_cut_frames_have_no_shim() -> None:
    frame = shim.DataFrames(ADDRESS, 0, 100).build(100, 100)
    for length in range(shim.HEADER_BYTES):
        assert shim.parse_shim(frame[:length]) is None
    assert shim.parse_shim(frame[: shim.HEADER_BYTES]) is not None


def test_background_is_plain_udp_to_the_discard_port() -> None:
    frame = shim.background_frame(ADDRESS, 1250)
    assert len(frame) == 1250
    assert shim.parse_shim(frame) is None
    assert frame[shim.UDP_DESTINATION] == b"\x00\x09"
    assert frame[15] & 3 == 2
    assert shim.internet_checksum(frame[14:34]) == 0


def test_packets_without_room_for_headers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 55"):
        shim.DataFrames(ADDRESS, 0, 54)


def test_layout_is_that_of_the_p4_header() -> None:
    source = (Path(__file__).parents[3] / "p4src/shared/headers.p4").read_text()
    body = re.search(r"header shim_t \{(.*?)\}", source, re.DOTALL)
    assert body is not None
    at, places = 42 * 8, {}
    for bits, name in re.findall(r"bit<(\d+)>\s+(\w+);", body[1]):
        places[name] = at, int(bits)
        at += int(bits)
    assert at == shim.HEADER_BYTES * 8
    values = {"version": 1, "flags": 5, "epoch": 0xAB, "job": 0x1234, "flow": 0x5678, "reserved": 1, "remaining": 99}
    address = shim.FlowAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 1, 0x1234, 0x5678)
    whole = int.from_bytes(shim.DataFrames(address, 0xAB, 60).build(99, 60, flags=5, reserved=1), "big")
    for name, (first, bits) in places.items():
        assert whole >> (60 * 8 - first - bits) & ((1 << bits) - 1) == values[name], name
