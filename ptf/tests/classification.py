"""The tests of how a switch finds a packet's flow and iteration: by shim, by 5-tuple and bytes
seen, or not at all.
"""

from __future__ import annotations

import time

from echelon_ptf import entries, frames
from echelon_ptf.base import BEST_EFFORT_QUEUE, CONTROL_QUEUE, EchelonTest, skipped_on
from echelon_ptf.entries import Fixed
from scapy.layers.inet import IP, TCP, UDP
from scapy.packet import Raw

_GAP_S = 0.2
_FOREVER_S = 3600.0
_PAYLOAD = 500


class _ConnectionTest(EchelonTest):
    """A connection from host 1 to host 2 that carries 1000 bytes of a flow in queue 2, then 2000 of
    one in queue 5.
    """

    protocol = "tcp"
    dst_port = 5000
    gap_s = _FOREVER_S
    """The idle time after which the connection may open an iteration."""
    whole_bytes = 0
    """The bytes after which it opens one anyway; 0: it does not."""

    def setUp(self) -> None:
        super().setUp()
        self.job = self.new_job()
        self.src_port = self.connect(self.job, is_head=True)

    def connect(self, job: int, *, is_head: bool) -> int:
        """Install a new connection of `job`, and return its source port."""
        number = self.new_connection()
        src_port = 10_000 + number
        self.install(
            entries.segment(number, 0, 1000, self.ranked(Fixed(2))),
            entries.segment(number, 1000, 3000, self.ranked(Fixed(5))),
            entries.connection(
                self.protocol,
                src_port,
                self.dst_port,
                number=number,
                job=job,
                is_head=is_head,
                gap_us=round(self.gap_s * 1e6),
                head_bytes=2850,
                whole_bytes=self.whole_bytes,
            ),
        )
        return src_port

    def queues(self, packets: int, src_port: int | None = None) -> list[int]:
        """Send packets of `_PAYLOAD` bytes on the connection, and return their queues."""
        frame = getattr(frames, self.protocol)(src_port or self.src_port, self.dst_port, _PAYLOAD)
        return [self.queue_of(frame) for _ in range(packets)]


class ByShim(EchelonTest):
    """Job and flow of the shim name the flow; its path may differ from the route to its
    destination.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        frame = flow.packet()
        self.expect(frame, frames.as_forwarded(frame, queue=3))
        self.switch.modify(entries.flow(flow.flow, Fixed(3), port=3, host=2))
        frame = flow.packet(remaining=1)
        self.expect(frame, frames.as_forwarded(frame, queue=3), port=3)


class ByShimNeedsJobAndFlow(EchelonTest):
    """A flow of another job, or another flow of the job, is not recognised."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        for frame in (
            frames.shim(self.new_job(), flow.number),
            frames.shim(flow.job, self.new_flow()),
        ):
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class ShimOfAnotherVersion(EchelonTest):
    """A shim of another version is ignored: the datagram is classified by its connection, here an
    unknown one.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(3))
        frame = flow.packet(version=1)
        self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class ShimCutShort(EchelonTest):
    """A datagram to the shim's port that is too short for a shim is not recognised."""

    def runTest(self) -> None:
        for payload_bytes in (0, 4, 12, 19):
            frame = (
                frames.ipv4() / UDP(sport=4000, dport=frames.SHIM_PORT) / Raw(bytes(payload_bytes))
            )
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class ByBytesOfTcp(_ConnectionTest):
    """The position in the iteration tells flows of one connection apart; what is past the last one
    is nobody's.
    """

    def runTest(self) -> None:
        self.assertEqual(self.queues(8), [2, 2, 5, 5, 5, 5, BEST_EFFORT_QUEUE, BEST_EFFORT_QUEUE])


class ByBytesOfUdp(_ConnectionTest):
    """The same holds for UDP."""

    protocol = "udp"

    def runTest(self) -> None:
        self.assertEqual(self.queues(8), [2, 2, 5, 5, 5, 5, BEST_EFFORT_QUEUE, BEST_EFFORT_QUEUE])


@skipped_on(tna="the stages of a Tofino are full: its iterations begin after silence alone")
class IterationsWithoutSilence(_ConnectionTest):
    """An iteration begins behind the bytes of the one before, and connections count their own."""

    whole_bytes = 3000

    def runTest(self) -> None:
        iteration = [2, 2, 5, 5, 5, 5]
        self.assertEqual(self.queues(15), [*iteration, *iteration, 2, 2, 5])
        other = self.connect(self.job, is_head=False)
        self.assertEqual(self.queues(7, other), [*iteration, 2])
        self.assertEqual(self.queues(4), [5, 5, 5, 2])


@skipped_on(tna="the stages of a Tofino are full: its iterations begin after silence alone")
class ASilenceNearTheBorderIsTheBorder(_ConnectionTest):
    """Bytes beyond an iteration's plan do not move the next, if there is silence between them."""

    gap_s = _GAP_S
    whole_bytes = 3000

    def runTest(self) -> None:
        small = getattr(frames, self.protocol)(self.src_port, self.dst_port, 100)
        self.assertEqual(self.queues(6), [2, 2, 5, 5, 5, 5])
        self.assertEqual(self.queue_of(small), 2)
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(6), [2, 2, 5, 5, 5, 5])
        self.assertEqual(self.queues(1), [2])
        # In the middle of an iteration a silence means nothing.
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(6), [2, 5, 5, 5, 5, 2])


class AcknowledgementsMoveNothing(_ConnectionTest):
    """TCP segments without payload go to the control queue and do not count."""

    def runTest(self) -> None:
        self.assertEqual(self.queues(2), [2, 2])
        self.assertEqual(self.queue_of(frames.tcp(self.src_port, self.dst_port, 0)), CONTROL_QUEUE)
        self.assertEqual(self.queues(1), [5])


class TcpOptionsAreNotPayload(_ConnectionTest):
    """TCP options are not counted as payload."""

    def runTest(self) -> None:
        head = frames.ipv4() / TCP(
            sport=self.src_port, dport=self.dst_port, options=[("NOP", None)] * 20
        )
        self.assertEqual(self.queue_of(head), CONTROL_QUEUE)
        self.assertEqual(self.queue_of(head / Raw(bytes(999))), 2)
        self.assertEqual(self.queue_of(head / Raw(b"x")), 2)
        self.assertEqual(self.queues(1), [5])


class OtherConnections(_ConnectionTest):
    """A packet that differs in port, host, direction or protocol belongs to no job's connection."""

    def runTest(self) -> None:
        others = [
            frames.tcp(self.src_port, self.dst_port + 1, _PAYLOAD),
            frames.tcp(self.src_port, self.dst_port, _PAYLOAD, src=3),
            frames.tcp(self.dst_port, self.src_port, _PAYLOAD),
            frames.udp(self.src_port, self.dst_port, _PAYLOAD),
        ]
        for frame in others:
            self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))


class NextIteration(_ConnectionTest):
    """An iteration opens after a gap, once 95 % of the last one were seen; its flows start anew."""

    gap_s = _GAP_S

    def runTest(self) -> None:
        self.assertEqual(self.queues(6), [2, 2, 5, 5, 5, 5])
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(3), [2, 2, 5])


class GapAloneOpensNothing(_ConnectionTest):
    """A gap alone, as after a retransmission time-out or a stall, opens no iteration."""

    gap_s = _GAP_S

    def runTest(self) -> None:
        self.assertEqual(self.queues(3), [2, 2, 5])
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(1), [5])


class BytesAloneOpenNothing(EchelonTest):
    """The iteration continues without a gap, however many bytes pass."""

    def runTest(self) -> None:
        number = self.new_connection()
        self.install(
            entries.segment(number, 0, 1000, self.ranked(Fixed(2))),
            entries.connection(
                "udp",
                7,
                7,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=3_600_000_000,
                head_bytes=1000,
            ),
        )
        self.assertEqual(
            [self.queue_of(frames.udp(7, 7, 500)) for _ in range(6)], [2, 2, 0, 0, 0, 0]
        )


class OthersFollowTheHead(_ConnectionTest):
    """A connection that may not open an iteration counts from zero again when the head connection
    has opened one.
    """

    gap_s = _GAP_S

    def runTest(self) -> None:
        other = self.connect(self.job, is_head=False)
        self.assertEqual(self.queues(6), [2, 2, 5, 5, 5, 5])
        self.assertEqual(self.queues(6, other), [2, 2, 5, 5, 5, 5])
        time.sleep(2 * _GAP_S)
        self.assertEqual(self.queues(1, other), [BEST_EFFORT_QUEUE])
        self.assertEqual(self.queues(1), [2])
        self.assertEqual(self.queues(3, other), [2, 2, 5])


class IterationsWrapAround(EchelonTest):
    """Iterations that the switch counts go from 255 to 0 without a break, each with a start of its
    own.
    """

    def runTest(self) -> None:
        number, flow = self.new_connection(), self.ranked(Fixed(2))
        # Every packet has seen enough and waited long enough to open the next iteration.
        self.install(
            entries.segment(number, 0, 1000, flow),
            entries.connection(
                "udp",
                5,
                5,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=0,
                head_bytes=_PAYLOAD,
            ),
        )
        frame = frames.udp(5, 5, _PAYLOAD)
        iterations = 260
        self.assertEqual([self.queue_of(frame) for _ in range(iterations)], [2] * iterations)
        epochs = [self.next_event(flow).epoch for _ in range(iterations)]
        self.assertEqual(epochs, [(1 + n) % 256 for n in range(iterations)])


class Fragments(_ConnectionTest):
    """Later fragments have no ports to be recognised by, whatever bytes stand in their place."""

    def runTest(self) -> None:
        frame = frames.tcp(self.src_port, self.dst_port, _PAYLOAD)
        frame[IP].frag = 5
        self.expect(frame, frames.as_forwarded(frame, queue=BEST_EFFORT_QUEUE))
        self.assertEqual(self.queues(3), [2, 2, 5])
