"""The router of the measurements does what RFC 1812 asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctoolchain import compilers
from softswitch import Switch, load_program
from softswitch.native.choice import Choice
from tests.drawing import examples
from tests.engines import ENGINES

ROOT = Path(__file__).parents[3]
PROGRAM = load_program((ROOT / "bench/programs/router.json").read_bytes(), "router.json")
OUT, NEXT_MAC, OWN_MAC = 7, 0x0000_5E00_0102, 0xFE00_0000_0001


def configured(engine: str, *, rewrites_source: bool) -> Switch:
    switch = Switch(PROGRAM, native=Choice(engine, compilers()[-1:])(PROGRAM))
    ingress = "RouterIngress."
    switch.tables[ingress + "ipv4_lpm"].insert(((0, 0),), 0, ingress + "set_next_hop", [1])
    switch.tables[ingress + "next_hop"].insert((1,), 0, ingress + "send", [OUT, NEXT_MAC])
    if rewrites_source:
        switch.tables["RouterEgress.source_mac"].insert(
            (OUT,), 0, "RouterEgress.set_source", [OWN_MAC]
        )
    return switch


def checksum(header: bytes) -> int:
    """Return the checksum of RFC 1071 over an IPv4 header, its checksum field taken for zero."""
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2) if at != 10)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def summed(header: bytes) -> bytes:
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=examples(100))
@given(
    start=st.sampled_from([0x45, 0x45, 0x45, 0x46, 0x55, 0x05]),
    rest=st.binary(min_size=19, max_size=19) | st.just(bytes(19)),
    wrong=st.sampled_from([0, 0, 0, 1]),
    rewrites_source=st.booleans(),
    addresses=st.binary(min_size=12, max_size=12),
    payload=st.binary(max_size=8),
)
def test_a_router_sends_what_rfc_1812_asks_for(
    engine: str,
    start: int,
    rest: bytes,
    wrong: int,
    rewrites_source: bool,
    addresses: bytes,
    payload: bytes,
) -> None:
    header = summed(bytes([start]) + rest)
    header = header[:11] + bytes([header[11] ^ wrong]) + header[12:]
    switch = configured(engine, rewrites_source=rewrites_source)
    frame = addresses + b"\x08\x00" + header + payload
    expected: list[tuple[int, bytes]] = []
    if start == 0x45 and not wrong and header[8] > 1:
        source = OWN_MAC.to_bytes(6, "big") if rewrites_source else addresses[6:]
        routed = summed(header[:8] + bytes([header[8] - 1]) + header[9:])
        expected = [(OUT, NEXT_MAC.to_bytes(6, "big") + source + b"\x08\x00" + routed + payload)]
    assert switch.process(1, frame, 0) == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", range(34))
def test_a_packet_cut_short_leaves_no_bytes_of_its_header(engine: str, size: int) -> None:
    switch = configured(engine, rewrites_source=True)
    frame = bytes(12) + b"\x08\x00" + summed(b"\x45" + bytes(7) + b"\x40" + bytes(11))
    assert switch.process(1, frame[:size], 0) == []
    assert switch.stats.parser_errors == {"PacketTooShort": 1}
