"""The program's registers, where P4Runtime reaches them."""

from __future__ import annotations

from echelon_ptf import frames
from echelon_ptf.base import RECEIVER, EchelonTest, receive_all
from echelon_ptf.control import UnsupportedError
from echelon_ptf.entries import Deadline, Fixed
from echelon_ptf.frames import DRAIN

_WRITTEN = 1 << 8
"""The bit of a register of epochs that tells that its lower eight bits were written."""


class _RegisterTest(EchelonTest):
    """A test that is skipped where the target does not let controllers read registers."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.switch.register("queue_left", 0)
        except UnsupportedError as error:
            self.skipTest(str(error))


class ReferenceTime(_RegisterTest):
    """The reference of an EchelonFlow is when its head flow started, and of which iteration."""

    def runTest(self) -> None:
        echelonflow = self.new_echelonflow()
        self.assertEqual(self.switch.register("reference_epoch", echelonflow), 0)
        flow = self.shim_flow(Deadline(echelonflow, self.profile(1, below={})))
        for epoch in (0, 1, 200):
            event = self.start(flow, epoch)
            self.assertEqual(self.switch.register("reference_us", echelonflow), event.time_us)
            self.assertEqual(self.switch.register("reference_epoch", echelonflow), _WRITTEN | epoch)


class PlaceOfAFlow(_RegisterTest):
    """A flow's registers hold iteration, queue and sequence number of its last packet, which has
    left.
    """

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(5))
        for epoch in (3, 4):
            self.carry(flow.packet(epoch))
            self.assertEqual(self.switch.register("flow_epoch", flow.flow), _WRITTEN | epoch)
            self.assertEqual(self.switch.register("stream_queue", flow.flow), 5)
            number = self.switch.register("stream_sequence", flow.flow)
            self.assertEqual(self.switch.register("queue_entered", RECEIVER * 8 + 5), number)
            self.assertEqual(self.switch.register("queue_left", RECEIVER * 8 + 5), number)


class SequenceNumbersWrapAround(_RegisterTest):
    """Promotion waits for the packets of the flow, and no longer, also after 2**32 packets of a
    queue.
    """

    def runTest(self) -> None:
        slow, frame_bytes = 3, 500
        self.slow_queue(slow, packets_per_s=10, frame_bytes=frame_bytes)
        for register in ("queue_entered", "queue_left"):
            self.switch.set_register(register, RECEIVER * 8 + slow, (1 << 32) - 3)
        flow = self.shim_flow(Fixed(slow))
        packets = [
            flow.packet(remaining=place, payload_bytes=frame_bytes - frames.HEADER_BYTES)
            for place in range(7)
        ]
        for frame in packets[:5]:
            self.send(frame)
        self.rerank(flow, Fixed(6))
        self.send(packets[5])
        left = list(receive_all(self, 6))
        self.assertEqual([frames.shim_of(frame).remaining for frame in left], list(range(6)))
        self.assertEqual(
            [int(frames.shim_of(frame).flags) & DRAIN for frame in left], [0] * 5 + [DRAIN]
        )
        self.assertEqual(self.switch.register("queue_left", RECEIVER * 8 + slow), 3)
        self.assertEqual(self.queue_of(packets[6]), 6)
