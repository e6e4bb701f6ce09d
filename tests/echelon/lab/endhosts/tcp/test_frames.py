"""Frames against scapy: another implementation of the same formats."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from echelon_lab.endhosts.tcp.frames import (
    ACK,
    CE,
    ECT0,
    FIN,
    HEADER_BYTES,
    KEY,
    NOT_ECT,
    PSH,
    STAMP_BYTES,
    SYN,
    Options,
    SegmentFrames,
    TcpAddress,
    parse,
    parse_options,
    window_scale,
)
from tests.faults import naming

u32 = st.integers(0, 2**32 - 1)
octet = st.integers(0, 255)
addresses = st.builds(
    lambda a, b, sport, dport: TcpAddress(
        "02:00:00:00:00:0a",
        "02:00:00:00:00:0b",
        ".".join(map(str, a)),
        ".".join(map(str, b)),
        sport,
        dport,
    ),
    st.tuples(*[octet] * 4),
    st.tuples(*[octet] * 4),
    st.integers(0, 65535),
    st.integers(0, 65535),
)


def same_checksums(frame: bytes) -> None:
    """Check the checksums against Scapy, which fills in what is deleted."""
    given_packet = Ether(frame)
    wanted = Ether(frame)
    del wanted[IP].chksum, wanted[TCP].chksum
    wanted = Ether(wanted.build())
    assert (given_packet[IP].chksum, given_packet[TCP].chksum) == (
        wanted[IP].chksum,
        wanted[TCP].chksum,
    )


@settings(deadline=None)
@given(
    addresses,
    u32,
    u32,
    st.sampled_from([ACK, ACK | PSH, ACK | FIN]),
    st.integers(0, 8946),
    st.sampled_from([NOT_ECT, ECT0]),
    st.integers(0, 65535),
    st.integers(0, 70000),
    st.none() | st.tuples(u32, u32),
)
def test_segments_as_scapy_has_them(
    address: TcpAddress,
    seq: int,
    ack: int,
    flags: int,
    length: int,
    ecn: int,
    window: int,
    before: int,
    stamps: tuple[int, int] | None,
) -> None:
    frames = SegmentFrames(address, window, stamped=stamps is not None)
    frames.identification = before & 0xFFFF
    stamp, echo = stamps or (7, 8)
    frame = frames.build(seq, ack, flags, length, ecn, stamp, echo)
    options = 0 if stamps is None else STAMP_BYTES
    assert len(frame) == max(60, HEADER_BYTES + options + length)
    packet = Ether(frame)
    assert (packet.src, packet.dst) == (address.src_mac, address.dst_mac)
    ip, tcp = packet[IP], packet[TCP]
    assert (ip.src, ip.dst, ip.len, ip.tos) == (
        address.src_ip,
        address.dst_ip,
        40 + options + length,
        ecn,
    )
    assert (ip.flags, ip.ihl, ip.id) == ("DF", 5, before & 0xFFFF)
    assert (tcp.sport, tcp.dport, tcp.seq, tcp.ack) == (
        address.src_port,
        address.dst_port,
        seq,
        ack,
    )
    assert (int(tcp.flags), tcp.window, tcp.dataofs) == (flags, window, 5 + options // 4)
    assert [option for option in tcp.options if option[0] != "NOP"] == (
        [("Timestamp", stamps)] if stamps else []
    )
    same_checksums(frame)
    assert parse(frame)[:7] == (ecn, length, before & 0xFFFF, seq, ack, flags, window)
    assert parse(frame)[7:] == (stamps or (None, 0))
    assert frame[KEY] == address.key


@settings(deadline=None)
@given(
    addresses,
    u32,
    u32,
    st.integers(1, 65535),
    st.integers(0, 14),
    st.integers(0, 65535),
    st.tuples(u32, u32),
)
def test_syns_as_scapy_has_them(
    address: TcpAddress,
    seq: int,
    ack: int,
    mss: int,
    scale: int,
    window: int,
    stamps: tuple[int, int],
) -> None:
    frame = SegmentFrames(address).build_syn(
        seq, ack, SYN | ACK, Options(mss, scale, stamps), window
    )
    tcp = Ether(frame)[TCP]
    wanted = {"MSS": mss, "WScale": scale, "Timestamp": stamps}
    assert dict(option for option in tcp.options if option[0] != "NOP") == wanted
    assert (tcp.seq, tcp.ack, int(tcp.flags), tcp.window) == (seq, ack, SYN | ACK, window)
    same_checksums(frame)
    assert parse(frame).length_bytes == 0
    assert parse_options(frame) == Options(mss, scale, stamps)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_options_of_any_bytes_are_read_or_left_alone(options: bytes) -> None:
    padded = options + bytes(-len(options) % 4)
    frame = bytearray(SegmentFrames(ADDRESS).build(0, 0, SYN)[:HEADER_BYTES] + padded)
    frame[46] = (20 + len(padded)) // 4 << 4
    found = parse_options(bytes(frame))
    assert found.mss_bytes is None or 0 <= found.mss_bytes <= 65535
    assert found.window_scale is None or 0 <= found.window_scale <= 14


def test_options_of_a_kernel() -> None:
    # Linux: MSS 1460, SACK permitted, timestamps, NOP, window scale 7.
    options = bytes.fromhex("020405b4 0402 080a 01020304 00000000 01 030307".replace(" ", ""))
    frame = bytearray(SegmentFrames(ADDRESS).build(0, 0, SYN)[:HEADER_BYTES] + options)
    frame[46] = (20 + len(options)) // 4 << 4
    assert parse_options(bytes(frame)) == Options(1460, 7, (0x01020304, 0))


ADDRESS = TcpAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 40000, 9)


def test_frames_are_numbered_in_the_order_of_sending() -> None:
    frames = SegmentFrames(ADDRESS)
    sent = [
        frames.build_syn(0, 0, SYN, Options(1000, 0), 1000),
        *(frames.build(1, 1, ACK, 10) for _ in range(3)),
    ]
    assert [parse(frame).identification for frame in sent] == [0, 1, 2, 3]


def test_a_mark_on_the_way_is_seen() -> None:
    frame = bytearray(SegmentFrames(ADDRESS).build(1, 1, ACK, 100, ECT0))
    frame[15] |= CE
    assert parse(bytes(frame)).ecn == CE


@pytest.mark.parametrize(
    ("window", "scale"), [(1, 0), (65535, 0), (65536, 1), (1_000_000, 4), ((1 << 30) - 1, 14)]
)
def test_window_scale(window: int, scale: int) -> None:
    assert window_scale(window) == scale
    assert window >> scale <= 65535


def test_a_window_beyond_tcp_is_refused() -> None:
    with pytest.raises(ValueError, check=naming(1 << 30)):
        window_scale(1 << 30)
