"""Checksums verified on arrival and updated on departure, against RFC 1071 on the bytes of the
packet.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softswitch import Switch
from tests.drawing import examples


def ones_complement(data: bytes) -> int:
    """Return the checksum of RFC 1071, section 4.1, on bytes."""
    data += bytes(len(data) % 2)
    total = 0
    for i in range(0, len(data), 2):
        total += data[i] << 8 | data[i + 1]
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def with_checksum(header: bytes, at: int, value: int) -> bytes:
    return header[:at] + value.to_bytes(2, "big") + header[at + 2 :]


def udp_sum(ip: bytes, udp: bytes, payload: bytes) -> int:
    pseudo = ip[12:20] + bytes([0, ip[9]]) + udp[4:6]
    return ones_complement(pseudo + with_checksum(udp, 6, 0) + payload)


@pytest.fixture(scope="module")
def switch(new_switch: Callable[[str], Switch]) -> Switch:
    return new_switch("checksums")


@settings(max_examples=examples(200))
@given(
    st.binary(min_size=20, max_size=20),
    st.binary(min_size=8, max_size=8),
    st.binary(max_size=33) | st.sampled_from([b"\xff\xff", bytes(64), b"\0"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_verify_and_update(
    switch: Switch,
    ip: bytes,
    udp: bytes,
    payload: bytes,
    is_udp: bool,
    good_ip: bool,
    good_udp: bool,
) -> None:
    ip = ip[:9] + (b"\x11" if is_udp else b"\x06") + ip[10:]
    right = ones_complement(with_checksum(ip, 10, 0))
    ip = with_checksum(ip, 10, right if good_ip else right ^ 0x0101)
    wanted = good_ip
    if is_udp:
        right = udp_sum(ip, udp, payload)
        udp = with_checksum(udp, 6, right if good_udp else right ^ 0x8000)
        # A checksum of 0 means that the sender computed none.
        wanted = wanted and (good_udp or udp[6:8] == b"\0\0")
    data = ip + udp + payload
    ((port, packet),) = switch.process(0, data, 0)
    assert port == (1 if wanted else 2)
    assert len(packet) == len(data)
    sent_ip, sent_udp, sent_payload = packet[:20], packet[20:28], packet[28:]
    assert sent_ip[8] == (ip[8] - 1) % 256
    assert ones_complement(with_checksum(sent_ip, 10, 0)) == int.from_bytes(sent_ip[10:12], "big")
    assert sent_payload == payload
    if is_udp:
        assert int.from_bytes(sent_udp[6:8], "big") == udp_sum(sent_ip, sent_udp, payload)
    else:
        assert sent_udp == udp


def test_a_header_of_zeros_but_for_the_checksum(switch: Switch) -> None:
    """The sum of zeros is the only one with the checksum 0xffff; other sums that are 0 modulo 65535
    have the checksum 0.
    """
    ((port, _),) = switch.process(0, with_checksum(bytes(20), 10, 0xFFFF), 0)
    assert port == 1
    ((port, _),) = switch.process(0, bytes(20), 0)
    assert port == 2
    ((port, _),) = switch.process(0, bytes(16) + b"\xff\xff\0\0", 0)
    assert port == 1
