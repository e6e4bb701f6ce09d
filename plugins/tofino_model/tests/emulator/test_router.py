"""A router in hand-written assembly (`programs/edge.bfa`): parsers, tables, deparsers, and the ways
of a packet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from echelon_tofino_model.emulator import TofinoSwitch, load_assembly
from softswitch import CloneSession, ProgramError
from softswitch.errors import BadEntry, DuplicateEntry, NoSuchEntry, TableFull
from softswitch.native.fabric import EventLoop, VirtualFabric
from softswitch.tm import QueueConfig
from tests.faults import naming

TEXT = (Path(__file__).parent / "programs" / "edge.bfa").read_text()
GATEWAY = 0x02_00_00_00_00_09


@dataclass
class Router:
    """A switch with one route and the digests that it sent."""

    switch: TofinoSwitch
    learned: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)

    def send(self, packet: Packet, port: int = 1, now_ns: int = 0) -> list[tuple[int, Packet]]:
        return [(to, Ether(data)) for to, data in self.switch.process(port, bytes(packet), now_ns)]


@pytest.fixture
def router() -> Router:
    switch = TofinoSwitch(load_assembly(TEXT, "edge.bfa"))
    made = Router(switch)
    switch.on_digest = lambda _now_ns, name, fields: made.learned.append((name, fields))
    route = switch.program.tables["Ingress.route"]
    route.insert([(0x0A000000, 8)], "Ingress.forward", {"out": 5, "mac": GATEWAY})
    route.insert([(0x0A010000, 16)], "Ingress.forward", {"out": 6, "mac": GATEWAY + 1})
    return made


def frame(dst: str = "10.2.3.4", ttl: int = 64, tos: int = 0, length: int = 100) -> Packet:
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(
        src="10.9.9.9", dst=dst, ttl=ttl, tos=tos
    )
    return packet / UDP(sport=1000, dport=2000) / Raw(bytes(place % 251 for place in range(length)))


@given(st.integers(2, 255), st.integers(0, 400), st.integers(0, 255), st.integers(0, 63))
def test_routing_rewrites_the_header_and_its_checksum(
    ttl: int, length: int, last: int, dscp: int
) -> None:
    switch = TofinoSwitch(load_assembly(TEXT, "edge.bfa"))
    route = switch.program.tables["Ingress.route"]
    route.insert([(0x0A000000, 8)], "Ingress.forward", {"out": 5, "mac": GATEWAY})
    sent = frame(f"10.0.0.{last}", ttl=ttl, tos=dscp << 2, length=length)
    ((port, data),) = switch.process(1, bytes(sent), 0)
    expected = sent.copy()
    expected.dst = "02:00:00:00:00:09"
    expected[IP].ttl -= 1
    # Scapy computes the header checksum anew; the UDP checksum does not cover the time to live.
    expected[IP].chksum = None
    assert (port, data) == (5, bytes(expected))


def test_the_longest_prefix_wins(router: Router) -> None:
    assert [router.send(frame(dst))[0][0] for dst in ("10.1.2.3", "10.2.2.3")] == [6, 5]
    assert router.send(frame("11.0.0.1")) == []
    assert router.switch.stats.dropped == {"dropped by the program": 1}


def test_a_dead_packet_and_a_wrong_checksum_end(router: Router) -> None:
    assert router.send(frame(ttl=1)) == []
    wrong = frame()
    wrong[IP].chksum = 1
    assert router.send(wrong) == []
    assert len(router.send(frame(ttl=2))) == 1


def test_a_byte_that_a_checksum_lists_twice_counts_once(router: Router) -> None:
    """p4c lists the byte of the flags and the fragment offset for both fields."""
    old, new = "mask: [ 0..19 ]", "mask: [ 0, 0..5, 6, 6..7, 8..19 ]"
    assert old in TEXT
    other = Router(TofinoSwitch(load_assembly(TEXT.replace(old, new), "edge.bfa")))
    other.switch.program.tables["Ingress.route"].insert(
        [(0x0A000000, 8)], "Ingress.forward", {"out": 5, "mac": GATEWAY}
    )
    sent = frame()
    sent[IP].flags = "DF"
    assert router.send(sent) == other.send(sent) != []


def test_other_packets_have_no_port(router: Router) -> None:
    assert router.send(Ether(type=0x0806) / Raw(bytes(46))) == []
    assert router.switch.process(1, bytes(10), 0) == []
    assert router.switch.stats.dropped == {"no egress port": 1, "ingress parser error": 1}


def test_ranges_and_port_metadata_choose_the_queue(router: Router) -> None:
    router.switch.program.tables["Parser.$PORT_METADATA"].insert(
        [2], "set_port_metadata", {"class": 2}
    )

    def queue(port: int, length: int) -> int:
        (queued,) = router.switch.ingress(port, bytes(frame(length=length)), 0)
        return queued.queue

    headers = 28
    assert [queue(1, length - headers) for length in (28, 64, 65, 1000)] == [7, 7, 1, 1]
    assert [queue(2, length - headers) for length in (64, 65, 1000)] == [7, 3, 3]
    classes = router.switch.program.tables["Ingress.classes"]
    classes.set_default("Ingress.enqueue", {"queue": 0})
    assert queue(1, 1000) == 0


def test_the_mask_of_a_constant_entry_is_cut_to_the_width_of_its_field() -> None:
    """p4c writes the mask of the whole field where the key is a slice of it."""
    narrow = 'value: "0x2"\n          mask: "0xff"'
    assert narrow in TEXT
    wide = narrow.replace("0xff", "0xffffffff")
    found = []
    for text in (TEXT, TEXT.replace(narrow, wide)):
        classes = load_assembly(text, "edge.bfa").tables["Ingress.classes"]
        found.append([(entry.key, entry.action, entry.args) for entry in classes.entries()])
    assert found[0] == found[1]


def test_multicast_copies_have_their_replication_ids(router: Router) -> None:
    route = router.switch.program.tables["Ingress.route"]
    route.insert([(0xE0000000, 4)], "Ingress.spread", {"to": 77})
    router.switch.multicast_groups[77] = [(1, 10), (2, 20), (2, 21)]
    assert [port for port, _ in router.send(frame("224.0.0.5"))] == [1, 2, 2]


def test_direct_counters_count_the_entry(router: Router) -> None:
    for _ in range(3):
        router.send(frame("10.1.0.1", length=10))
    router.send(frame("10.7.0.1", length=10))
    entries = {
        entry.key[0]: (entry.packets, entry.bytes)
        for entry in router.switch.program.tables["Ingress.route"].entries()
    }
    # Tofino counts the frame check sequence of 4 bytes, too.
    octets = len(frame(length=10)) + 4
    assert entries == {(0x0A010000, 16): (3, 3 * octets), (0x0A000000, 8): (1, octets)}


def test_unknown_sources_are_learned_until_they_are_known(router: Router) -> None:
    router.send(frame(), port=300)
    assert router.learned == [("Ingress.unknown", {"src": 0x020000000001, "port": 300})]
    router.switch.program.tables["Ingress.sources"].insert([0x020000000001], "Ingress.known", {})
    router.send(frame())
    assert len(router.learned) == 1


def test_a_mirrored_packet_is_the_original_behind_its_header(router: Router) -> None:
    router.switch.program.tables["Ingress.special"].insert([1, 0], "Ingress.watch", {"session": 9})
    assert len(router.send(frame(tos=4))) == 1
    router.switch.clone_sessions[9] = CloneSession([(8, 0)], truncate_bytes=40)
    sent = frame(tos=4)
    both = dict(router.switch.process(1, bytes(sent), 0))
    assert both.keys() == {5, 8}
    assert both[8] == (b"\xa5" + bytes(sent))[:40]


def test_a_resubmitted_packet_comes_back_with_its_data(router: Router) -> None:
    special = router.switch.program.tables["Ingress.special"]
    special.insert([2, 0], "Ingress.again", {})
    (queued,) = router.switch.ingress(1, bytes(frame(tos=8, length=200)), 0)
    # The second time, the resubmitted tag 2 stands where the port metadata stood: class 2, so queue
    # 3.
    assert queued.queue == 3
    assert router.switch.packet_counts[0] == 1


def test_egress_sees_the_queue(router: Router) -> None:
    sent = frame()
    sent[UDP].dport = 7
    data = bytes(sent)
    (queued,) = router.switch.ingress(1, data, 0)
    cells = -(-len(data) // 80)
    (left,) = router.switch.egress(queued, 1_000, 1_000 + 2**18 + 5, 3, 0)
    assert left.packet is not None
    at = 14 + 20 + 8
    assert left.packet[at : at + 6] == (3 * cells).to_bytes(2, "big") + (5).to_bytes(4, "big")
    assert left.packet[at + 6 :] == data[at:]


def test_value_sets_extend_the_parser(router: Router) -> None:
    parser = router.switch.program.ingress.parser
    assert parser.spec.value_sets == ("other_types",)
    parser.value_sets["other_types"].append((0x88CC, 0xFFFF))
    assert router.send(Ether(type=0x88CC) / Raw(bytes(46))) == []


def test_tables_check_what_they_are_given(router: Router) -> None:
    tables = router.switch.program.tables
    route, classes = tables["Ingress.route"], tables["Ingress.classes"]
    with pytest.raises(DuplicateEntry):
        route.insert([(0x0A000000, 8)], "Ingress.spread", {"to": 1})
    with pytest.raises(NoSuchEntry):
        route.delete([(0x0B000000, 8)])
    with pytest.raises(BadEntry, check=naming("Ingress.route", "Ingress.unrouted", "default")):
        route.insert([(0x0B000000, 8)], "Ingress.unrouted", {})
    with pytest.raises(BadEntry, check=naming("Ingress.route", "Ingress.forward", "default")):
        route.set_default("Ingress.forward", {"out": 5, "mac": 0})
    with pytest.raises(BadEntry, check=naming("Ingress.route", "out", 512, 9)):
        route.insert([(0x0B000000, 8)], "Ingress.forward", {"out": 512, "mac": 0})
    with pytest.raises(BadEntry, check=naming("Ingress.forward", "mac")):
        route.insert([(0x0B000000, 8)], "Ingress.forward", {"out": 5})
    while len(classes) < classes.size:
        classes.insert(
            [(len(classes), 0xFFFF), (0, 0)], "Ingress.enqueue", {"queue": 1}, priority=5
        )
    with pytest.raises(TableFull):
        classes.insert([(99, 99), (0, 0)], "Ingress.enqueue", {"queue": 1}, priority=5)
    route.modify([(0x0A010000, 16)], "Ingress.forward", {"out": 7, "mac": 0})
    assert router.send(frame("10.1.0.1"))[0][0] == 7
    route.delete([(0x0A010000, 16)])
    assert router.send(frame("10.1.0.1"))[0][0] == 5


def test_a_link_in_virtual_time_serves_the_higher_queue_first(router: Router) -> None:
    loop = EventLoop()
    fabric = VirtualFabric(loop)
    node = fabric.add_switch("router", router.switch)
    arrived: list[int] = []
    source = fabric.add_host("source", lambda _now_ns, _data: None)
    fabric.add_host("sink", lambda _now_ns, data: arrived.append(len(data)))
    fabric.connect(("source", 0), (node, 1), 10**12, 0)
    fabric.connect(("sink", 0), (node, 5), 10**8, 1000)
    node.ports[5].configure(1, QueueConfig(level=1), 0)
    for length in (900, 901, 902, 20, 21):
        source.send(bytes(frame(length=length)))
    fabric.run()
    headers = 42
    # The first long packet is on the line when the short ones come, which overtake the others.
    assert arrived == [headers + length for length in (900, 20, 21, 901, 902)]
    fabric.check()


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        (
            "      miss: END\n      condition",
            "      miss: nowhere\n      condition",
            ("table", "'route'", "'nowhere'"),
        ),
        (
            "        next: by_type\n",
            "        next: nowhere\n",
            ("parser state", "'nowhere'"),
        ),
        ("  qid: qid\n", "  qid: nothing\n", ("field", "'nothing'")),
        ("type: VERIFY", "type: CLOT", ("VERIFY", "RESIDUAL")),
        (
            "    default_action: NoAction\n",
            "    default_action: Missing\n",
            ("default", "'Missing'"),
        ),
    ],
)
def test_a_mistake_is_refused_with_its_line(old: str, new: str, facts: tuple[str, ...]) -> None:
    assert TEXT.count(old) >= 1
    with pytest.raises(ProgramError, check=naming(*facts)) as caught:
        load_assembly(TEXT.replace(old, new, 1), "edge.bfa")
    assert re.fullmatch(r"edge\.bfa, line \d+", caught.value.place)
