"""Control Pause: a sender over TCP that never pauses changes its queue in order, and always sends
everything.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.frames import ipv4, ones_complement, shim

from echelon.model.p4program import constants, program
from echelon.switches.lowering.capabilities import OuterQueues
from echelon.switches.lowering.intent import QueueSetting
from echelon.switches.lowering.parts import hold_part
from echelon.switches.targets.virtual import Urgency
from echelon_lab.endhosts.tcp.frames import ACK, SegmentFrames, TcpAddress, parse
from echelon_lab.endhosts.tcp.sender import TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection, TcpStack
from softswitch import Program, load_program
from softswitch.native.fabric import EventLoop, VirtualFabric
from softswitch.tm import QueueConfig
from tests.drawing import examples
from tests.engines import fast_switch

MS = 1_000_000
RATE_BPS = 10_000_000
SENDER, RECEIVER, RIVAL = 1, 2, 3
"""Hosts, at the ports of their numbers."""
ADDRESS = TcpAddress("02:00:00:00:00:01", "02:00:00:00:00:02", "10.0.0.1", "10.0.0.2", 100, 200)
CONNECTION, CONTROL_QUEUE, RIVAL_QUEUE = 7, 7, 4
LOW, HIGH = 1, 6
OUTER = OuterQueues(depth_packets=400, frame_bytes=1250)
MIN_RATE_BPS = RATE_BPS // 100


def ip(host: int) -> int:
    return 0x0A000000 | host


@pytest.fixture(scope="module")
def compiled() -> Program:
    return load_program(program().binary.read_bytes(), "echelon.json")


@dataclass
class Run:
    """One connection through a switch whose slow port it shares with a rival in another queue."""

    compiled: Program
    pauses: bool = True
    lost_data: Sequence[int] = ()
    """The numbers of the packets that get lost behind the switch."""
    lost_answers: Sequence[int] = ()
    window_bytes: int = 20_000
    holds: bool = False
    """Whether the switch takes its queues for queues behind it."""
    flow_bytes: int = 1 << 31
    """The bytes of the connection that belong to its flow."""
    tally: TcpTally = field(default_factory=TcpTally)
    data: list[tuple[int, int]] = field(default_factory=list)
    """Time and queue of each packet of data that has left the switch."""
    windows: list[int] = field(default_factory=list)
    """The windows in the acknowledgements that reach the sender, as they are on the wire."""

    def __post_init__(self) -> None:
        self.loop = EventLoop()
        network = VirtualFabric(self.loop)
        self.switch = fast_switch(self.compiled)
        node = network.add_switch("s", self.switch)
        self.host = network.add_host("h1", self._answered)
        self.sent = 0
        receiver = network.add_host("h2", self._arrived)
        self.rival = network.add_host("h3", lambda _now_ns, _frame: None)
        for port, host in enumerate(("h1", "h2", "h3"), start=1):
            network.connect(
                (host, 0), ("s", port), RATE_BPS if port == RECEIVER else 100 * RATE_BPS, 1000
            )
        for queue in range(8):
            floor_bps = 0 if queue == CONTROL_QUEUE else MIN_RATE_BPS
            node.ports[RECEIVER].configure(
                queue, QueueConfig(level=queue, min_rate_bps=floor_bps), 0
            )
        self._install()
        self.sending, self.receiving = TcpStack(self.loop, self), TcpStack(self.loop, receiver)
        tcp = TcpSettings(receive_window_bytes=self.window_bytes)
        self.connection = Connection(
            self.sending, self.receiving, ADDRESS, tcp, self._lost, self.tally
        )
        self.connection.establish()

    def _install(self) -> None:
        i, c = "EchelonIngress.", "EchelonIngress.classifier."
        tables = self.switch.tables
        for host in (SENDER, RECEIVER):
            tables[i + "forwarding.ipv4_lpm"].insert(
                ((ip(host), 32),), 0, i + "forwarding.route", [host, host]
            )
        tables[i + "traffic_class"].insert(
            (constants()["CLASS_CONTROL"],), 0, i + "set_class_queue", [CONTROL_QUEUE]
        )
        for queue in range(8):
            tables[i + "marking.queue_to_dscp"].insert(
                (queue,), 0, i + "marking.set_dscp", [queue << 3]
            )
        ends = (ip(SENDER), ip(RECEIVER), 100, 200)
        tables[c + "tcp_connection"].insert(
            ends, 0, c + "set_connection", [CONNECTION, 2, 1, 1 << 31, 1 << 31, 0, 1]
        )
        tables[c + "segment"].insert(
            (CONNECTION, (0, self.flow_bytes - 1)), 1, c + "set_segment", [0, self.flow_bytes]
        )
        self.flow = tables[i + "flow.flow"].insert((0,), 0, "fixed", [RECEIVER, RECEIVER, LOW])
        tables[c + "shim_flow"].insert((9, 1), 0, c + "set_flow", [1])
        tables[i + "flow.flow"].insert((1,), 0, "fixed", [RECEIVER, RECEIVER, RIVAL_QUEUE])
        if self.pauses:
            back = (ip(RECEIVER), ip(SENDER), 200, 100)
            tables[i + "pause.tcp_answer"].insert(
                back, 0, i + "pause.set_answered", [CONNECTION, 1]
            )
        if self.holds:
            floors = [
                QueueSetting(RECEIVER, queue, queue, 1, MIN_RATE_BPS, None) for queue in range(7)
            ]
            for entry in hold_part(floors, OUTER).entries:
                key = tuple(value for _, value in entry.match)
                values = [value for _, value in entry.actions[0].arguments]
                tables[i + "promotion.promotion_hold"].insert(
                    key, 0, i + "promotion.wait_after_last", values
                )

    def rerank(self, queue: int) -> None:
        self.switch.tables["EchelonIngress.flow.flow"].modify(
            self.flow, "fixed", [RECEIVER, RECEIVER, queue]
        )

    def contend(self, packets: int) -> None:
        """Let the rival send that many packets at once."""
        for number in range(packets):
            self.rival.send(
                ipv4(ip(RIVAL), ip(RECEIVER), 17, shim(9, 1, 1, number, payload=bytes(1000)))
            )

    def send(self, data: bytes, urgency: Urgency | None = None, /) -> None:
        """Send a frame of the sender's."""
        segment = parse(data)
        self.sent = max(self.sent, segment.seq + segment.length_bytes)
        self.host.send(data, urgency)

    def _arrived(self, now_ns: int, frame: bytes) -> None:
        if frame[23] != 6:
            return
        self.data.append((now_ns, frame[15] >> 5))
        if len(self.data) - 1 not in self.lost_data:
            self.receiving.deliver(now_ns, frame)

    def _answered(self, now_ns: int, frame: bytes) -> None:
        length = int.from_bytes(frame[16:18], "big")
        pseudo = frame[26:34] + struct.pack("!HH", 6, length - 20)
        assert ones_complement(pseudo + frame[34 : 14 + length]) == 0, "the checksum is right"
        answer = parse(frame)
        assert answer.window or answer.ack < self.sent, "a closed window is not the last word"
        self.windows.append(answer.window)
        if len(self.windows) - 1 not in self.lost_answers:
            self.sending.deliver(now_ns, frame)

    def _lost(self) -> None:
        raise AssertionError("the connection was given up")

    @property
    def queues(self) -> list[int]:
        """The queues of the data, each once for the packets in a row that had it."""
        seen = [queue for _, queue in self.data]
        return seen[:1] + [after for before, after in pairwise(seen) if before != after]


def promoted(compiled: Program, **more: object) -> Run:
    """Return the run of 400 packets that are worth a higher queue from the hundredth millisecond
    on.
    """
    run = Run(compiled, **more)  # type: ignore[arg-type]
    run.connection.write(400 * 1000)
    run.loop.call_at(100 * MS, run.rerank, HIGH)
    run.loop.run()
    assert run.connection.received_bytes == 400 * 1000
    assert run.tally.reordered == run.tally.retransmitted == 0
    return run


def test_a_connection_that_never_pauses_stays_in_its_queue_unless_it_is_paused(
    compiled: Program,
) -> None:
    assert promoted(compiled, pauses=False).queues == [LOW]
    paused = promoted(compiled)
    assert paused.queues == [LOW, HIGH]
    # The window was closed for as long as the packets of one window waited, and the line idle for
    # less than it takes them to pass.
    assert 0 < paused.windows.count(0) <= 20
    assert max(after - before for (before, _), (after, _) in pairwise(paused.data)) < 20 * MS


def test_bytes_that_no_flow_claims_are_not_paused(compiled: Program) -> None:
    """A flow ends, perhaps with a packet that has to stay; what comes after it has its window."""
    for at_ms in range(50, 80, 2):
        run = Run(compiled, flow_bytes=100 * 1000)
        run.loop.call_at(at_ms * MS, run.rerank, HIGH)
        run.connection.write(300 * 1000)
        run.loop.run()
        assert run.connection.received_bytes == 300 * 1000
        assert 0 not in run.windows[-50:]


def test_a_forged_packet_stalls_nobody(compiled: Program) -> None:
    """It seems a megabyte ahead, so that no acknowledgement covers what the switch has seen."""
    run = Run(compiled)
    forged = SegmentFrames(ADDRESS, stamped=True).build(
        zlib.crc32(ADDRESS.key) + (1 << 20) & 0xFFFFFFFF, 0, ACK, 1000
    )
    run.loop.call_at(50 * MS, run.send, forged)
    run.loop.call_at(100 * MS, run.rerank, HIGH)
    run.connection.write(400 * 1000)
    run.loop.run()
    assert run.connection.received_bytes == 400 * 1000


def test_acknowledgements_are_untouched_without_an_entry(compiled: Program) -> None:
    assert set(promoted(compiled, pauses=False).windows) == {20_000}


def test_behind_the_switch_a_connection_rises_when_all_is_acknowledged(compiled: Program) -> None:
    """The hold time of these queues is half a minute, and the run takes less than a second."""
    assert promoted(compiled, pauses=False, holds=True).queues == [LOW]
    run = promoted(compiled, holds=True)
    assert run.queues == [LOW, HIGH]
    assert run.data[-1][0] < 1000 * MS


def test_what_is_sent_again_counts_once(compiled: Program) -> None:
    """The flow ends at its last byte, although packets were sent twice on the way."""
    run = Run(compiled, lost_data=[3, 40, 41])
    run.connection.write(100 * 1000)
    run.loop.run()
    assert run.connection.received_bytes == 100 * 1000
    assert run.tally.retransmitted >= 3
    assert (
        run.switch.registers["EchelonIngress.classifier.connection_bytes"].read(CONNECTION)
        == 100 * 1000
    )


changes = st.lists(
    st.tuples(st.integers(0, 600), st.sampled_from([LOW, 3, RIVAL_QUEUE, HIGH])), max_size=12
)
rivals = st.lists(st.tuples(st.integers(0, 600), st.integers(1, 200)), max_size=4)
losses = st.sets(st.integers(0, 300), max_size=8)


@given(changes, rivals, losses, losses, st.sampled_from([20_000, 200_000]), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_every_byte_arrives_in_order(
    compiled: Program,
    reranks: list[tuple[int, int]],
    contention: list[tuple[int, int]],
    lost_data: set[int],
    lost_answers: set[int],
    window_bytes: int,
    holds: bool,
) -> None:
    """Whatever is lost and whenever ranks change, nothing is stuck and no packet is overtaken."""
    run = Run(
        compiled,
        lost_data=sorted(lost_data),
        lost_answers=sorted(lost_answers),
        window_bytes=window_bytes,
        holds=holds,
    )
    for at_ms, queue in reranks:
        run.loop.call_at(at_ms * MS, run.rerank, queue)
    for at_ms, packets in contention:
        run.loop.call_at(at_ms * MS, run.contend, packets)
    run.connection.write(300 * 1000)
    run.loop.run()
    assert run.connection.received_bytes == 300 * 1000
    assert run.tally.reordered == 0
