"""The level leaves twice: as the priority of the switch's own queues and as DSCP."""

from __future__ import annotations

from collections.abc import Sequence

from echelon_ptf import entries, frames
from echelon_ptf.base import BEST_EFFORT_QUEUE, CONTROL_QUEUE, RECEIVER, EchelonTest, receive_all
from echelon_ptf.entries import Fixed
from scapy.layers.inet import IP
from scapy.packet import Packet

_FRAME_BYTES = 500
_LONG_FRAME_BYTES = 1500
_PAYLOAD_BYTES = _FRAME_BYTES - frames.HEADER_BYTES


class PriorityIsTheLevel(EchelonTest):
    """A packet of each level is counted in the queue of that number, and in no other."""

    def runTest(self) -> None:
        flows = [self.shim_flow(Fixed(queue)) for queue in range(8)]
        for queue, flow in enumerate(flows):
            before = [self.sent(q) for q in range(8)]
            for _ in range(queue + 1):
                self.carry(flow.packet())
            expected = [n + (queue + 1) * (q == queue) for q, n in enumerate(before)]
            self.await_equal(expected, lambda: [self.sent(q) for q in range(8)])

    def sent(self, queue: int) -> int:
        return self.switch.queue_counter(RECEIVER, queue).packets


class DscpIsTheLevel(EchelonTest):
    """The switch writes class selector code points, whatever the packet came with, and keeps the
    two ECN bits.
    """

    def runTest(self) -> None:
        for queue in range(8):
            flow = self.shim_flow(Fixed(queue))
            for ecn in (frames.NOT_ECT, frames.ECT1, frames.ECT0, frames.CE):
                frame = flow.packet(ecn=ecn)
                frame[IP].tos |= 46 << 2
                self.assertEqual(
                    self.carry(frame).hex(), bytes(frames.as_forwarded(frame, queue=queue)).hex()
                )


class DscpIsATable(EchelonTest):
    """Other code points are the control plane's choice; without one the packet keeps its own."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(5))
        frame = flow.packet()
        frame[IP].tos = 10 << 2
        self.switch.modify(entries.queue_dscp(5, 46))
        self.addCleanup(self.switch.modify, entries.queue_dscp(5, 5 << 3))
        self.assertEqual(self.carry(frame)[15] >> 2, 46)
        self.switch.delete(entries.queue_dscp(5, 5 << 3))
        self.addCleanup(self.switch.insert, entries.queue_dscp(5, 5 << 3))
        self.assertEqual(self.carry(frame)[15] >> 2, 10)


class _SlowPortTest(EchelonTest):
    def order_of_queues(self, packets: Sequence[Packet]) -> list[int]:
        """Return the queues of `packets` in the order of leaving; they come while a long packet
        keeps the port busy.
        """
        self.slow_port(packets_per_s=1, frame_bytes=_LONG_FRAME_BYTES)
        burst = [bytes(packet) for packet in packets]
        self.send(frames.udp(9, 9, _LONG_FRAME_BYTES - 42))
        for packet in burst:
            self.send(packet)
        self.assertEqual(len(self.receive()), _LONG_FRAME_BYTES)
        return [frames.queue_of(frame) for frame in receive_all(self, len(burst))]


class HighestLevelFirst(_SlowPortTest):
    """Packets that wait at a slow port leave by level."""

    def runTest(self) -> None:
        packets = [self.shim_flow(Fixed(queue)).packet() for queue in range(8)]
        self.assertEqual(self.order_of_queues(packets * 2), sorted([*range(8)] * 2, reverse=True))


class BestEffortWaits(_SlowPortTest):
    """Traffic of no job leaves after that of jobs, however much of it came first."""

    def runTest(self) -> None:
        claimed = self.shim_flow(Fixed(3)).packet()
        packets = [frames.udp(9, 9, 64)] * 8 + [claimed] * 3
        self.assertEqual(self.order_of_queues(packets), [3] * 3 + [BEST_EFFORT_QUEUE] * 8)


class ControlOvertakes(_SlowPortTest):
    """Acknowledgements, of the shim and of TCP, pass everything else that waits."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(6))
        packets = [flow.packet()] * 4 + [flow.packet(flags=frames.ACK), frames.tcp(80, 40_000, 0)]
        self.assertEqual(self.order_of_queues(packets), [CONTROL_QUEUE] * 2 + [6] * 4)


class OneQueueIsOneLine(EchelonTest):
    """Packets of one level leave in the order of their arrival, whatever their flows."""

    def runTest(self) -> None:
        self.slow_queue(2, packets_per_s=50, frame_bytes=_FRAME_BYTES)
        flows = [self.shim_flow(Fixed(2)) for _ in range(3)]
        for place in range(12):
            self.send(flows[place % 3].packet(remaining=place, payload_bytes=_PAYLOAD_BYTES))
        left = [frames.shim_of(frame).remaining for frame in receive_all(self, 12)]
        self.assertEqual(left, list(range(12)))
