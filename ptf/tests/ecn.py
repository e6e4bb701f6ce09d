"""Explicit congestion notification (RFC 3168) by queue depth and by the virtual queue."""

from __future__ import annotations

import time

from echelon_ptf import entries, frames
from echelon_ptf.base import RECEIVER, EchelonTest, receive_all
from echelon_ptf.entries import Fixed
from echelon_ptf.frames import CE, ECT0, ECT1, NOT_ECT

_FRAME_BYTES = 500
_PAYLOAD_BYTES = _FRAME_BYTES - frames.HEADER_BYTES
_QUEUE = 3
_THRESHOLD_PACKETS = 6
_SENT_PACKETS = 14


class _DepthTest(EchelonTest):
    """A slow queue with a threshold."""

    def codes(self, ecn: int) -> list[int]:
        """Send a burst with the code point `ecn`, and return the code points with which it left, in
        order.
        """
        self.slow_queue(_QUEUE, packets_per_s=10, frame_bytes=_FRAME_BYTES)
        self.install(entries.ecn_threshold(RECEIVER, _QUEUE, _THRESHOLD_PACKETS, _FRAME_BYTES))
        flow = self.shim_flow(Fixed(_QUEUE))
        packet = bytes(flow.packet(ecn=ecn, payload_bytes=_PAYLOAD_BYTES))
        for _ in range(_SENT_PACKETS):
            self.send(packet)
        left = list(receive_all(self, _SENT_PACKETS))
        for frame in left:
            # The IPv4 checksum must cover the mark.
            expected = frames.as_forwarded(
                flow.packet(ecn=frames.ecn_of(frame), payload_bytes=_PAYLOAD_BYTES), queue=_QUEUE
            )
            self.assertEqual(frame.hex(), bytes(expected).hex())
        return [frames.ecn_of(frame) for frame in left]

    def assert_marked_from_threshold(self, codes: list[int], unmarked: int) -> None:
        """Check that the packets that found as many as the threshold before them are marked, and no
        earlier ones.
        """
        self.assertEqual(set(codes[:_THRESHOLD_PACKETS]), {unmarked}, codes)
        self.assertEqual(set(codes[-4:]), {CE}, codes)
        marks = [code == CE for code in codes]
        self.assertEqual(marks, sorted(marks), codes)


class ByDepth(_DepthTest):
    """A packet that finds as many before it in its queue as the threshold is marked."""

    def runTest(self) -> None:
        self.assert_marked_from_threshold(self.codes(ECT0), ECT0)


class ByDepthOfTheOtherCodePoint(_DepthTest):
    """ECT(1) is marked as ECT(0) is."""

    def runTest(self) -> None:
        self.assert_marked_from_threshold(self.codes(ECT1), ECT1)


class NotCapable(_DepthTest):
    """Packets of a sender that does not support ECN are not marked."""

    def runTest(self) -> None:
        self.assertEqual(self.codes(NOT_ECT), [NOT_ECT] * _SENT_PACKETS)


class OwnQueueOnly(EchelonTest):
    """Neither the depth of another queue nor a queue without a threshold causes marks."""

    def runTest(self) -> None:
        self.slow_queue(1, packets_per_s=50, frame_bytes=_FRAME_BYTES)
        self.install(entries.ecn_threshold(RECEIVER, _QUEUE, 1, _FRAME_BYTES))
        waiting, other = self.shim_flow(Fixed(1)), self.shim_flow(Fixed(_QUEUE))
        for _ in range(10):
            self.send(waiting.packet(ecn=ECT0, payload_bytes=_PAYLOAD_BYTES))
        self.send(other.packet(ecn=ECT0, payload_bytes=_PAYLOAD_BYTES))
        self.assertEqual([frames.ecn_of(frame) for frame in receive_all(self, 11)], [ECT0] * 11)


class WithoutCongestion(EchelonTest):
    """All four code points pass as they are, with and without thresholds."""

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(_QUEUE))
        codes = [NOT_ECT, ECT1, ECT0, CE]
        for threshold in (None, 100):
            if threshold is not None:
                self.install(entries.ecn_threshold(RECEIVER, _QUEUE, threshold, _FRAME_BYTES))
            self.assertEqual(
                [frames.ecn_of(self.carry(flow.packet(ecn=code))) for code in codes], codes
            )


class VirtualQueueMarks(EchelonTest):
    """Bytes that a slower line outside the switch cannot have sent yet count as its backlog."""

    port = 3

    def runTest(self) -> None:
        # 1 kbit/s: each packet is four seconds of its work.
        self.install(
            entries.virtual_queue(self.port, bits_per_ms=1, mark_above_bytes=4 * _FRAME_BYTES)
        )
        self.assertEqual(self.burst(ECT0), [ECT0] * 4 + [CE] * 4)
        self.assertEqual(self.burst(NOT_ECT), [NOT_ECT] * 8)

    def burst(self, ecn: int) -> list[int]:
        flow = self.shim_flow(Fixed(_QUEUE), port=self.port)
        packet = flow.packet(ecn=ecn, payload_bytes=_PAYLOAD_BYTES)
        return [frames.ecn_of(self.carry(packet, self.port)) for _ in range(8)]


class VirtualQueueDrainsWhileItIsUsed(EchelonTest):
    """A backlog shrinks when packets come more slowly than the line could send them."""

    port = 2

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(_QUEUE))
        # 80 kbit/s: the 65 ms that count at once drain 655 bytes.
        self.install(
            entries.virtual_queue(self.port, bits_per_ms=80, mark_above_bytes=2 * _FRAME_BYTES)
        )
        packet = bytes(flow.packet(ecn=ECT0, payload_bytes=_PAYLOAD_BYTES))
        for _ in range(8):
            self.send(packet)
        list(receive_all(self, 8))
        codes = []
        # Eight packets less 655 - 500 bytes at each one that follows: below two packets after 20.
        for _ in range(21):
            time.sleep(0.07)
            codes.append(frames.ecn_of(self.carry(packet)))
        self.assertEqual((codes[0], codes[-1]), (CE, ECT0), codes)
        self.assertEqual(codes, sorted(codes, reverse=True))


class VirtualQueueDrains(EchelonTest):
    """Packets that come no faster than the line are not marked, and the backlog is gone after a
    while.
    """

    port = 4

    def runTest(self) -> None:
        flow = self.shim_flow(Fixed(_QUEUE), port=self.port)
        self.install(
            # 800 kbit/s: 5 ms for a packet; 65 ms, the longest time that counts at once, for 13.
            entries.virtual_queue(self.port, bits_per_ms=800, mark_above_bytes=_FRAME_BYTES),
        )
        packet = bytes(flow.packet(ecn=ECT0, payload_bytes=_PAYLOAD_BYTES))
        for _ in range(2):
            for _ in range(12):
                self.send(packet)
            codes = [frames.ecn_of(frame) for frame in receive_all(self, 12, self.port)]
            self.assertEqual(codes[0], ECT0)
            self.assertIn(CE, codes)
            time.sleep(0.1)
        for _ in range(6):
            self.assertEqual(frames.ecn_of(self.carry(packet, self.port)), ECT0)
            time.sleep(0.02)
