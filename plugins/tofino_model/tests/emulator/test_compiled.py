"""A program as p4c's Tofino back end compiles it: `programs/gate.p4` and the `gate.bfa` made of it.

Scapy builds the expected packets and computes their checksums.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from echelon_tofino_model.emulator import TofinoSwitch, load_assembly
from softswitch.errors import ProgramError
from tests.faults import naming

TEXT = (Path(__file__).parent / "programs" / "gate.bfa").read_text()
NEXT, OWN, HOST = "02:00:00:00:00:09", "02:00:00:00:00:0b", "02:00:00:00:00:01"
TRANSLATED = {1: 7001, 3: 7003}
"""The destination port of each class that has a translation."""


def gate(text: str = TEXT) -> TofinoSwitch:
    switch = TofinoSwitch(load_assembly(text, "gate.bfa"))
    tables = switch.program.tables
    for prefix, length, port in ((0x0A000000, 8, 5), (0x0A010000, 16, 6), (0x0A010203, 32, 7)):
        args = {"port": port, "next": 0x020000000009}
        tables["Ingress.route"].insert([(prefix, length)], "Ingress.forward", args)
    for kind, port in TRANSLATED.items():
        tables["Ingress.translation"].insert([kind], "Ingress.translate", {"port": port})
    tables["Egress.leaving"].insert([5], "Egress.leave", {"own": 0x02000000000B})
    return switch


def class_of(port: int, tos: int) -> int:
    if port == 53:
        return 3
    if 1000 <= port <= 1999:
        return 1 if tos & 0xC0 == 0x80 else 2
    return 0


def frame(dst: str, dport: int, tos: int, load: bytes) -> bytes:
    ip = IP(src="10.9.9.9", dst=dst, tos=tos, ttl=64)
    return bytes(Ether(src=HOST, dst=OWN) / ip / UDP(sport=5000, dport=dport) / load)


def expected(data: bytes, port: int, count: int) -> bytes:
    """Return a packet as it must leave through ``port``, the ``count``-th of its class."""
    packet = Ether(data)
    kind = class_of(packet[UDP].dport, packet[IP].tos)
    packet.dst = NEXT
    if port == 5:
        packet.src = OWN
    packet[IP].ttl -= 1
    packet[IP].id = count
    if kind in TRANSLATED:
        packet[UDP].dport, packet[IP].tos = TRANSLATED[kind], 0xB8
    else:
        packet[IP].flags = "DF"
    del packet[IP].chksum, packet[UDP].chksum
    return bytes(packet)


PLACES = {"10.200.0.1": 5, "10.1.0.1": 6, "10.1.2.3": 7}
PORTS = st.sampled_from([53, 54, 999, 1000, 1500, 1999, 2000]) | st.integers(0, 0xFFFF)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(PLACES)),
            PORTS,
            st.integers(0, 255),
            # Below Ethernet's shortest frame a packet has padding that scapy takes for no part of
            # the datagram.
            st.binary(min_size=18, max_size=64),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_packets_leave_as_the_source_says(packets: list[tuple[str, int, int, bytes]]) -> None:
    switch = gate()
    counts = dict.fromkeys(range(4), 0)
    octets = dict.fromkeys(range(4), 0)
    for dst, dport, tos, load in packets:
        data = frame(dst, dport, tos, load)
        kind = class_of(dport, tos)
        counts[kind] += 1
        octets[kind] += len(data) - 14
        assert switch.process(3, data, 0) == [
            (PLACES[dst], expected(data, PLACES[dst], counts[kind]))
        ]
    register = switch.program.registers["Ingress.counts"].register
    assert [register.read(kind) for kind in range(4)] == [
        (counts[kind], octets[kind]) for kind in range(4)
    ]


def test_the_default_action_of_a_switch_statement_decides_what_follows() -> None:
    switch = gate()
    ((_, data),) = switch.process(3, frame("10.1.0.1", 1500, 0, bytes(18)), 0)
    assert Ether(data)[IP].flags == "DF"
    switch.program.tables["Ingress.translation"].set_default("Ingress.translate", {"port": 99})
    ((_, data),) = switch.process(3, frame("10.1.0.1", 1500, 0, bytes(18)), 0)
    assert (Ether(data)[UDP].dport, Ether(data)[IP].tos, int(Ether(data)[IP].flags)) == (
        99,
        0xB8,
        0,
    )


def test_packets_without_a_route_are_dropped() -> None:
    switch = gate()
    assert switch.process(3, frame("192.0.2.1", 53, 0, bytes(18)), 0) == []
    assert switch.process(3, bytes(12) + b"\x86\xdd" + bytes(46), 0) == []
    assert switch.stats.dropped == {"dropped by the program": 2}


def test_a_parser_that_lost_its_selects_is_noticed() -> None:
    """p4c's change 5063 dropped the selects of parsers: each state kept its last row only."""
    state = "      match: [ half ]\n      0x0800:\n"
    assert state in TEXT
    head, _, tail = TEXT.partition(state)
    broken = head + tail[tail.index("      0x****:\n") :].replace("0x****:", "*:", 1)
    data = frame("10.1.0.1", 53, 0, bytes(18))
    assert gate().process(3, data, 0) == [(6, expected(data, 6, 1))]
    assert gate(broken).process(3, data, 0) == []


def test_the_output_of_a_compiler_that_ended_early_is_refused() -> None:
    cut = TEXT[: TEXT.index("    instruction: route_0$atcam")]
    facts = ("'route_0$atcam$lt0'", "actions")
    with pytest.raises(ProgramError, check=naming(*facts)) as caught:
        load_assembly(cut, "gate.bfa")
    assert re.fullmatch(r"gate\.bfa, line \d+", caught.value.place)


def test_a_partition_that_stands_for_a_part_of_the_key_is_refused() -> None:
    old = "excluded_field_msb_bits: ["
    assert old in TEXT
    with pytest.raises(ProgramError, check=naming("LPM", "key")) as caught:
        load_assembly(
            TEXT.replace(old, f"{old} {{ field_name: hdr.ipv4.dst, msb_bits_excluded: 7 }}, "),
            "gate.bfa",
        )
    assert re.fullmatch(r"gate\.bfa, line \d+", caught.value.place)
