"""Traffic of no job and of other protocols is forwarded; malformed packets are dropped."""

from __future__ import annotations

from echelon_ptf import entries, frames
from echelon_ptf.base import BEST_EFFORT_QUEUE, CONTROL_QUEUE, PORTS, RECEIVER, EchelonTest
from echelon_ptf.entries import Fixed
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_NOP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from echelon.model.p4program import constants

_NUMBERS = constants()
_MALFORMED, _CHECKSUM, _TTL, _NO_ROUTE = (
    _NUMBERS[f"DROP_{reason}"] for reason in ("MALFORMED", "CHECKSUM", "TTL", "NO_ROUTE")
)


class BestEffort(EchelonTest):
    """TCP, UDP, ICMP and an unknown protocol are forwarded in the best-effort queue."""

    def runTest(self) -> None:
        for frame in (
            frames.tcp(80, 40_000, 700),
            frames.udp(53, 53, 100),
            frames.ipv4() / ICMP() / Raw(b"ping"),
            frames.ipv4() / Raw(bytes(40)),
        ):
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class Sizes(EchelonTest):
    """Packets of all sizes pass, from the smallest to those of an ordinary link."""

    def runTest(self) -> None:
        for payload_bytes in (1, 6, 18, 1000, 1472):
            frame = frames.udp(9, 9, payload_bytes)
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class BestEffortQueueIsATable(EchelonTest):
    """The control plane chooses the queue of a class."""

    def runTest(self) -> None:
        best_effort = _NUMBERS["CLASS_BEST_EFFORT"]
        self.switch.modify(entries.class_queue(best_effort, 2))
        self.addCleanup(self.switch.modify, entries.class_queue(best_effort, BEST_EFFORT_QUEUE))
        self.assertEqual(self.queue_of(frames.udp(9, 9, 100)), 2)


class AcknowledgementsOfTheShim(EchelonTest):
    """Acknowledgements of any shim go to the control queue with DRAIN unchanged, and start and
    finish no flow.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        for job, number in ((flow.job, flow.number), (self.new_job(), self.new_flow())):
            for flags in (frames.ACK, frames.ACK | frames.DRAIN, frames.ACK | frames.LAST):
                frame = frames.shim(job, number, flags=flags)
                self.expect(frame, frames.as_forwarded(frame, queue=CONTROL_QUEUE))
        self.expect_no_event()


class AcknowledgementsOfTcp(EchelonTest):
    """Segments without payload (acknowledgements, SYN, FIN) of any connection go to the control
    queue.
    """

    def runTest(self) -> None:
        for flags in ("A", "S", "FA", "R"):
            frame = frames.tcp(80, 40_000, 0, flags=flags)
            self.expect(frame, frames.as_forwarded(frame, queue=CONTROL_QUEUE))


class LongestPrefixWins(EchelonTest):
    """The longest prefix that matches is used, and a shorter one where no longer one matches."""

    def runTest(self) -> None:
        self.install(entries.route("10.9.0.0/16", 3, 3), entries.route("10.9.8.0/24", 4, 4))
        for destination, port in (("10.9.8.7", 4), ("10.9.7.7", 3)):
            frame = frames.udp(9, 9, 100)
            frame[IP].dst = destination
            self.expect(
                frame, frames.as_forwarded(frame, dst=port, queue=BEST_EFFORT_QUEUE), port=port
            )


class NoRoute(EchelonTest):
    """A packet without a route is dropped and counted."""

    def runTest(self) -> None:
        frame = frames.udp(9, 9, 100)
        frame[IP].dst = "192.0.2.1"
        self.expect_dropped(frame, _NO_ROUTE)


class NoRouteForAClaimedFlow(EchelonTest):
    """A flow that the plan says nothing of goes by routes and starts nothing: when its entry is
    there, it does.
    """

    def runTest(self) -> None:
        job, flow = self.new_job(), self.new_flow()
        self.install(entries.shim_flow(job, flow, flow))
        frame = frames.shim(job, flow)
        self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))
        frame[IP].dst = "192.0.2.1"
        self.expect_dropped(frame, _NO_ROUTE)
        self.expect_no_event()
        self.install(entries.flow(flow, Fixed(3), RECEIVER, RECEIVER))
        self.expect(frame, frames.as_forwarded(frame, queue=3))


class EqualCostPaths(EchelonTest):
    """Connections spread over the members of a group, each with one way; flows with a path of their
    own keep that.
    """

    def runTest(self) -> None:
        self.install(entries.ecmp(7, [(2, 2), (3, 3)]), entries.spread("10.9.0.0/16", 7))
        ways: list[int] = []
        for src_port in range(40_000, 40_016):
            frame = frames.udp(src_port, 9, 100)
            frame[IP].dst = "10.9.8.7"
            taken = {self.way(frame) for _ in range(3)}
            self.assertEqual(len(taken), 1, "packets of one connection went different ways")
            ways += taken
        self.assertEqual(set(ways), {2, 3})
        flow = self.shim_flow(Fixed(3), port=4)
        frame = flow.packet()
        frame[IP].dst = "10.9.8.7"
        self.expect(frame, frames.as_forwarded(frame, dst=4, queue=3), port=4)

    def way(self, frame: Packet) -> int:
        self.send(frame)
        found = self.dataplane.poll(timeout=5)
        self.assertIsNotNone(found.packet, "nothing came out")
        expected = frames.as_forwarded(frame, dst=found.port, queue=BEST_EFFORT_QUEUE)
        self.assertEqual(found.packet.hex(), bytes(expected).hex())
        return int(found.port)


class TimeToLive(EchelonTest):
    """The time to live falls by one at each hop; a packet whose time is over is dropped and
    counted.
    """

    def runTest(self) -> None:
        for ttl in (255, 2):
            frame = frames.ipv4(ttl=ttl) / UDP(sport=9, dport=9) / Raw(bytes(50))
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))
        for ttl in (1, 0):
            self.expect_dropped(frames.ipv4(ttl=ttl) / UDP(sport=9, dport=9) / Raw(bytes(50)), _TTL)


class ChecksumOfIpv4(EchelonTest):
    """A packet with a wrong checksum is dropped and counted."""

    def runTest(self) -> None:
        frame = Ether(bytes(frames.udp(9, 9, 100)))
        frame[IP].chksum ^= 1
        self.expect_dropped(frame, _CHECKSUM)


class Options(EchelonTest):
    """A header with options is forwarded, its checksum kept right; ports behind options are not
    looked for.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        for count in (1, 4, 40):
            frame = flow.packet()
            frame[IP].options = [IPOption_NOP()] * count
            frame[IP].tos = 46 << 2
            self.expect(frame, frames.as_forwarded(frame, queue=None))
        self.expect_no_event()


class ChecksumCarry(EchelonTest):
    """The checksum is corrected behind options, not computed again (RFC 1141).

    It grows by 0x0100, plus the carry.
    """

    def runTest(self) -> None:
        wanted = {0x00, 0x7F, 0xFE, 0xFF}
        for identification in range(0, 1 << 16, 1 << 8):
            frame = frames.udp(9, 9, 64)
            frame[IP].options = [IPOption_NOP()] * 4
            frame[IP].id = identification
            upper = Ether(bytes(frame))[IP].chksum >> 8
            if upper in wanted:
                wanted.remove(upper)
                self.assertEqual(self.carry(frame).hex(), bytes(frames.as_forwarded(frame)).hex())
        self.assertEqual(wanted, set())


class Malformed(EchelonTest):
    """Packets that are cut short or contradict themselves are dropped and counted."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        shim, tcp, udp = (
            bytes(frame) for frame in (flow.packet(), frames.tcp(1, 2, 40), frames.udp(1, 2, 40))
        )
        not_4, short_udp = frames.udp(9, 9, 100), frames.udp(1, 2, 40)
        not_4[IP].version = 6
        short_udp[IP].len = 27
        short_header = bytearray(udp)
        short_header[14] = 0x44
        cases: dict[str, Packet | bytes] = {
            "IPv4 cut short": udp[:33],
            "UDP cut short": udp[:41],
            "TCP cut short": tcp[:53],
            "shim cut short": shim[:61],
            "version 6 in IPv4": not_4,
            "IPv4 header of 16 bytes": bytes(short_header),
            "TCP header of 16 bytes": frames.ipv4() / TCP(dataofs=4) / Raw(bytes(40)),
            "TCP header longer than the packet": frames.ipv4() / TCP(dataofs=15) / Raw(bytes(8)),
            "IPv4 too short for UDP": short_udp,
        }
        for what, frame in cases.items():
            with self.subTest(what):
                self.expect_dropped(frame, _MALFORMED)
        self.expect_no_event()


class Stations(EchelonTest):
    """Frames other than IPv4 go unchanged to known stations, in the best-effort queue."""

    def runTest(self) -> None:
        self.install(entries.station(2, 2), entries.station(3, 3))
        before = self.switch.queue_counter(RECEIVER, BEST_EFFORT_QUEUE).packets
        for host in (2, 3):
            head = Ether(src=frames.mac(1), dst=frames.mac(host))
            for frame in (
                head / ARP(op=2),
                head / IPv6() / UDP() / Raw(bytes(20)),
                Ether(bytes(head / Raw(bytes(46)))),
            ):
                self.send(frame)
                self.assertEqual(self.receive(host), bytes(frame))
        # Three frames to host 2.
        self.await_equal(
            before + 3, lambda: self.switch.queue_counter(RECEIVER, BEST_EFFORT_QUEUE).packets
        )


class UnknownStations(EchelonTest):
    """Frames to unknown stations are dropped and counted, broadcasts too."""

    def runTest(self) -> None:
        for destination in ("02:00:00:00:00:77", "ff:ff:ff:ff:ff:ff"):
            self.expect_dropped(Ether(src=frames.mac(1), dst=destination) / ARP(), _NO_ROUTE)


class Flooding(EchelonTest):
    """A broadcast goes to every member of the multicast group, where there is one."""

    def runTest(self) -> None:
        self.switch.insert_multicast(5, PORTS[1:])
        self.addCleanup(self.switch.delete_multicast, 5)
        self.install(entries.flood("ff:ff:ff:ff:ff:ff", 5))
        frame = Ether(src=frames.mac(1), dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=frames.address(3))
        self.send(frame)
        for port in PORTS[1:]:
            self.assertEqual(self.receive(port), bytes(frame))
        self.expect_silence()
