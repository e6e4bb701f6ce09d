"""Frames against scapy-free arithmetic: fixed bytes worked out by hand, and the sources of the P4
program.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon_lab.endhosts import shim
from echelon_lab.endhosts.shim import AckSegment, DataSegment
from tests.drawing import examples
from tests.faults import naming

ADDRESS = shim.FlowAddress(
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "10.0.0.1",
    "10.0.0.2",
    0xC001,
    job=0x0102,
    flow=0x0304,
)


def test_plain_frame_byte_by_byte() -> None:
    frame = shim.ShimFrames(ADDRESS, epoch=7, packet_bytes=1250).data(DataSegment(2_500_000, 1250))
    assert len(frame) == 1250
    assert frame[:14].hex() == "020000000002" + "020000000001" + "0800"
    # 1236 = 0x04d4 bytes of IPv4, ECT(0), do not fragment, 64 hops, UDP. The checksum by hand:
    # 4502+04d4+0000+4000+4011+0a00+0001+0a00+0002 = ddea; its complement: 2215.
    assert frame[14:34].hex() == "450204d400004000" + "4011" + "2215" + "0a000001" + "0a000002"
    assert frame[34:42].hex() == "c001ef1004c00000"
    assert frame[42:54].hex() == "20" + "07" + "0102" + "0304" + "0000" + "002625a0"
    assert not any(frame[54:])
    stamped = shim.ShimFrames(ADDRESS, epoch=7, packet_bytes=1250).data(
        DataSegment(2_500_000, 1250), b"12345678"
    )
    assert stamped == frame[:54] + b"12345678" + frame[62:]


def test_acknowledgement_goes_back_and_says_what_it_answers() -> None:
    frames = shim.ShimFrames(ADDRESS, epoch=7, packet_bytes=1250)
    for drain in (False, True):
        for resent in (False, True):
            frame = frames.ack(AckSegment(1234, drain, resent))
            assert len(frame) == 64
            assert frame[:12].hex() == "020000000001020000000002"
            assert frame[26:34].hex() == "0a0000020a000001"
            assert frame[34:38].hex() == "c001ef10"
            assert frame[42] == 0x20 | shim.ACK | (shim.DRAIN if drain else 0)
            assert frame[43:54].hex() == "07" + "0102" + "0304" + f"{int(resent):04x}" + "000004d2"
            assert shim.internet_checksum(frame[14:34]) == 0
            ack = AckSegment(1234, drain, resent)
            assert shim.read_frame(frame) == (shim.flow_key(7, 0x0102, 0x0304), ack, shim.UNSTAMPED)


@given(
    marks=st.lists(st.booleans(), min_size=5, max_size=5),
    epoch=st.integers(0, 255),
    job=st.integers(0, 65535),
    flow=st.integers(0, 65535),
    remaining=st.integers(0, 2**32 - 1),
    length=st.integers(shim.MIN_FRAME_BYTES, 9000),
    usual=st.integers(shim.MIN_FRAME_BYTES, 9000),
    stamp=st.binary(min_size=8, max_size=8),
)
@settings(max_examples=examples(100))
def test_segments_are_read_back(
    marks: list[bool],
    epoch: int,
    job: int,
    flow: int,
    remaining: int,
    length: int,
    usual: int,
    stamp: bytes,
) -> None:
    address = shim.FlowAddress(
        "02:00:00:00:ff:01", "06:05:04:03:02:01", "10.255.1.2", "192.168.0.9", 65535, job, flow
    )
    segment = DataSegment(remaining, length, *marks)
    key = bytes([epoch, job >> 8, job & 255, flow >> 8, flow & 255])
    frame = shim.ShimFrames(address, epoch, usual).data(segment, stamp)
    assert len(frame) == length
    assert int.from_bytes(frame[16:18], "big") == length - 14
    assert shim.internet_checksum(frame[14:34]) == 0
    assert shim.read_frame(frame) == (key, segment, stamp)
    assert shim.read_frame(frame + bytes(9)) == (key, segment, stamp), "a link may pad"
    # A UDP socket carries the same bytes from the shim on.
    payload = shim.ShimPayloads(key).data(segment, stamp)
    assert payload == frame[42:]
    assert shim.read_payload(payload) == (key, segment, stamp)


def test_checksum_of_the_rfc_1071_example() -> None:
    assert shim.internet_checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF ^ 0xDDF2


@pytest.mark.parametrize(
    ("at", "value"),
    [(12, 0x86), (14, 0x46), (23, 6), (36, 0), (42, 0x10)],
    ids=["not IPv4", "options", "TCP", "other port", "other version"],
)
def test_foreign_frames_have_no_shim(at: int, value: int) -> None:
    frame = bytearray(shim.ShimFrames(ADDRESS, 0, 100).data(DataSegment(100, 100)))
    assert shim.read_frame(bytes(frame)) is not None
    frame[at] = value
    assert shim.read_frame(bytes(frame)) is None


def test_cut_frames_have_no_shim() -> None:
    frame = shim.ShimFrames(ADDRESS, 0, 100).data(DataSegment(100, 100))
    for length in range(shim.HEADER_BYTES):
        assert shim.read_frame(frame[:length]) is None
        assert shim.read_payload(frame[42:length]) is None
    assert shim.read_frame(frame[: shim.HEADER_BYTES]) is not None


def test_background_is_plain_udp_to_the_discard_port() -> None:
    frame = shim.background_frame(ADDRESS, 1250)
    assert len(frame) == 1250
    assert shim.read_frame(frame) is None
    assert frame[shim.UDP_DESTINATION] == b"\x00\x09"
    assert frame[15] & 3 == 2
    assert shim.internet_checksum(frame[14:34]) == 0


def test_packets_without_room_for_headers_are_refused() -> None:
    with pytest.raises(ValueError, check=naming(62, 63)):
        shim.ShimFrames(ADDRESS, 0, 62)


def test_layout_is_that_of_the_p4_header() -> None:
    source = (Path(__file__).parents[4] / "p4src/shared/headers.p4").read_text()
    body = re.search(r"header shim_t \{(.*?)\}", source, re.DOTALL)
    assert body is not None
    at, places = 42 * 8, {}
    for bits, name in re.findall(r"bit<(\d+)>\s+(\w+);", body[1]):
        places[name] = at, int(bits)
        at += int(bits)
    assert at == shim.HEADER_BYTES * 8
    flags = shim.LAST | shim.ALONE
    values = {
        "version": 2,
        "flags": flags,
        "epoch": 0xAB,
        "job": 0x1234,
        "flow": 0x5678,
        "marks": 3,
        "remaining": 99,
        "age_us": 0x01020304,
        "memory": 0x0506,
        "reserved": 0x0708,
    }
    address = shim.FlowAddress(
        "02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 1, 0x1234, 0x5678
    )
    segment = DataSegment(99, 70, last=True, alone=True, prompt=True, resent=True)
    frame = shim.ShimFrames(address, 0xAB, 70).data(segment, bytes([1, 2, 3, 4, 5, 6, 7, 8]))
    whole = int.from_bytes(frame, "big")
    for name, (first, bits) in places.items():
        assert whole >> (70 * 8 - first - bits) & ((1 << bits) - 1) == values[name], name
