"""Promotion without reordering: a flow changes its queue only when the packet that it sent last has
left.

Queues are slowed so that packets wait; every packet carries its place in the flow in `remaining`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from echelon_ptf import entries, frames
from echelon_ptf.base import RECEIVER, EchelonTest, Flow, receive_all, skipped_on
from echelon_ptf.entries import Attained, Fixed
from echelon_ptf.frames import ALONE, DRAIN

from echelon.model.p4program import constants

_FRAME_BYTES = 500
_PACKETS_PER_S = 5
_SLOW, _FAST, _FASTER = 1, 4, 6
_HOUR_US = 3_600_000_000
_UNSEEN = (
    "ingress of a Tofino cannot know which packets have left: a flow moves by ALONE or the port's"
    " hold time"
)
_NO_EXPIRY = "egress of a Tofino does not know for how long a rank holds"
_FOREVER = constants()["HOLD_FOREVER"]


def _packet(flow: Flow, place: int, epoch: int = 1) -> bytes:
    return bytes(
        flow.packet(epoch, remaining=place, payload_bytes=_FRAME_BYTES - frames.HEADER_BYTES)
    )


class _PromotionTest(EchelonTest):
    """A slow queue, and a flow that is in it."""

    def setUp(self) -> None:
        super().setUp()
        self.slow_queue(_SLOW, _PACKETS_PER_S, _FRAME_BYTES)
        self.flow = self.shim_flow(Fixed(_SLOW))

    def send_all(self, places: Sequence[int], epoch: int = 1) -> None:
        # All packets are made first, because scapy is too slow to send a burst otherwise.
        for packet in [_packet(self.flow, place, epoch) for place in places]:
            self.send(packet)

    def assert_left(self, expected: Sequence[tuple[int, int, int]]) -> None:
        """Check the next packets, as (place in the flow, queue, DRAIN)."""
        seen = []
        for frame in receive_all(self, len(expected)):
            shim = frames.shim_of(frame)
            seen.append((shim.remaining, frames.queue_of(frame), int(shim.flags) & DRAIN))
        self.assertEqual(seen, list(expected))


class AtOnceWhenNothingWaits(_PromotionTest):
    """The earlier packets have left: the next one goes to the wanted queue, up or down."""

    def runTest(self) -> None:
        for place, queue in enumerate((_SLOW, _FAST, _FASTER, _SLOW)):
            self.rerank(self.flow, Fixed(queue))
            self.send_all([place])
            self.assert_left([(place, queue, 0)])


@skipped_on(tna=_UNSEEN)
class WaitsForEarlierPackets(_PromotionTest):
    """While packets of the flow wait in the lower queue, later ones follow them there, and ask the
    sender to drain.
    """

    def runTest(self) -> None:
        self.send_all(range(6))
        self.rerank(self.flow, Fixed(_FAST))
        self.send_all(range(6, 9))
        self.assert_left(
            [
                *((place, _SLOW, 0) for place in range(6)),
                *((place, _SLOW, DRAIN) for place in range(6, 9)),
            ]
        )
        self.send_all([9])
        self.assert_left([(9, _FAST, 0)])


@skipped_on(tna=_UNSEEN)
class GoesBackInOrder(_PromotionTest):
    """A flow that changes to a lower queue keeps its order in the same way."""

    def runTest(self) -> None:
        self.slow_queue(_FAST, _PACKETS_PER_S, _FRAME_BYTES)
        self.rerank(self.flow, Fixed(_FAST))
        self.send_all(range(4))
        self.rerank(self.flow, Fixed(0))
        self.send_all([4])
        self.assert_left([*((place, _FAST, 0) for place in range(4)), (4, _FAST, DRAIN)])
        self.send_all([5])
        self.assert_left([(5, 0, 0)])


@skipped_on(tna=_UNSEEN)
class LastPacketDecides(_PromotionTest):
    """Other flows' packets in the lower queue hold nobody back."""

    def runTest(self) -> None:
        self.send_all([0])
        self.assert_left([(0, _SLOW, 0)])
        other = self.shim_flow(Fixed(_SLOW))
        for place in range(100, 106):
            self.send(_packet(other, place))
        self.rerank(self.flow, Fixed(_FAST))
        self.send_all([1])
        seen = [frames.shim_of(frame).remaining for frame in receive_all(self, 7)]
        self.assertLess(seen.index(1), 6, f"waited for packets of another flow: {seen}")
        self.assertEqual([place for place in seen if place >= 100], list(range(100, 106)))


class OtherFlowsAreNotHeld(_PromotionTest):
    """A flow of the higher queue overtakes the packets that wait in the lower one."""

    def runTest(self) -> None:
        self.send_all(range(6))
        other = self.shim_flow(Fixed(_FAST))
        self.send(_packet(other, 100))
        seen = [frames.shim_of(frame).remaining for frame in receive_all(self, 7)]
        self.assertLess(seen.index(100), 6)
        self.assertEqual([place for place in seen if place != 100], list(range(6)))


class NextIterationStartsAnew(_PromotionTest):
    """The first packet of a flow in an iteration goes where it belongs, whatever still waits of the
    last one.
    """

    def runTest(self) -> None:
        self.send_all(range(6))
        self.rerank(self.flow, Fixed(_FAST))
        self.send_all([100], epoch=2)
        seen = [
            (frames.shim_of(frame).remaining, frames.queue_of(frame))
            for frame in receive_all(self, 7)
        ]
        self.assertLess(seen.index((100, _FAST)), 6)
        self.assertEqual([place for place, _ in seen if place != 100], list(range(6)))


@skipped_on(tna=_UNSEEN)
class TardyWhileItWaits(_PromotionTest):
    """The level rises with time while packets wait: order is kept, and the first packet after they
    have left rises.
    """

    def runTest(self) -> None:
        profile = self.profile(_SLOW, below={-500_000: _FAST})
        self.flow = self.deadline_flow(profile)
        late = _packet(self.flow, 14)
        self.send_all(range(14))
        # When the fourth has left, three intervals have passed, and ten packets wait.
        left = list(receive_all(self, 4))
        self.send(late)
        left += receive_all(self, 11)
        shims = [frames.shim_of(frame) for frame in left]
        self.assertEqual([shim.remaining for shim in shims], list(range(15)))
        self.assertEqual({frames.queue_of(frame) for frame in left}, {_SLOW})
        self.assertTrue(int(shims[14].flags) & DRAIN)
        self.send_all([15])
        self.assert_left([(15, _FAST, 0)])


@skipped_on(tna=_NO_EXPIRY)
class OutOfDateRankAsksToDrain(_PromotionTest):
    """A packet that waited longer than its rank held says so as it leaves; one that left at once
    does not.
    """

    def runTest(self) -> None:
        profile = self.profile(_SLOW, below={-450_000: _FAST})
        self.flow = self.deadline_flow(profile)
        self.send_all(range(8))
        flags = [int(frames.shim_of(frame).flags) & DRAIN for frame in receive_all(self, 8)]
        self.assertEqual(flags[0], 0)
        self.assertEqual(flags[-2:], [DRAIN, DRAIN])
        self.assertEqual(flags, sorted(flags))


class RankThatHoldsDoesNot(_PromotionTest):
    """A packet whose rank still holds does not ask to drain, however long it waits."""

    def runTest(self) -> None:
        self.flow = self.deadline_flow(self.profile(_SLOW, below={-60_000_000: _FAST}))
        self.send_all(range(5))
        self.assert_left([(place, _SLOW, 0) for place in range(5)])


@skipped_on(tna=_UNSEEN)
class ThroughAllLevels(EchelonTest):
    """A flow that is sent without a pause while its deadline passes rises level by level and is
    never reordered.
    """

    def runTest(self) -> None:
        steps = {-level * 150_000: level for level in range(1, 8)}
        flow = self.deadline_flow(self.profile(0, below=steps))
        packets, pause_s = 130, 0.01
        for packet in [_packet(flow, place) for place in range(packets)]:
            self.send(packet)
            time.sleep(pause_s)
        left = list(receive_all(self, packets))
        self.assertEqual([frames.shim_of(frame).remaining for frame in left], list(range(packets)))
        queues = [frames.queue_of(frame) for frame in left]
        self.assertEqual(queues, sorted(queues))
        self.assertEqual((queues[0], queues[-1]), (0, 7))


class WithoutShim(EchelonTest):
    """Flows known by their bytes are held back in the same way, and nothing is written into their
    packets.
    """

    def runTest(self) -> None:
        self.slow_queue(_SLOW, _PACKETS_PER_S, _FRAME_BYTES)
        number, profile = self.new_connection(), self.new_profile()
        self.install(
            *entries.by_bytes(profile, [800], [_SLOW, _FAST]),
            entries.segment(number, 0, 1 << 20, self.ranked(Attained(self.new_group(), profile))),
            entries.connection(
                "tcp",
                4,
                4,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=3_600_000_000,
                head_bytes=1 << 20,
            ),
        )
        sent = [frames.tcp(4, 4, 400, seq=place) for place in range(4)]
        for frame in sent:
            self.send(frame)
        left = list(receive_all(self, 4))
        self.assertEqual(left, [bytes(frames.as_forwarded(frame, queue=_SLOW)) for frame in sent])
        self.assertEqual(self.queue_of(frames.tcp(4, 4, 400, seq=4)), _FAST)


@skipped_on(tna=_UNSEEN)
class NextFlowOfAConnection(EchelonTest):
    """Flows known by their bytes keep the order of their connection: the next one starts in its own
    queue when the last packet of the one before has left, and in that one's queue until then. The
    next iteration starts anew."""

    def runTest(self) -> None:
        self.slow_queue(_SLOW, _PACKETS_PER_S, _FRAME_BYTES)
        number, job = self.new_connection(), self.new_job()
        self.install(
            entries.segment(number, 0, 1200, self.ranked(Fixed(_SLOW))),
            entries.segment(number, 1200, 3200, self.ranked(Fixed(_FAST))),
            entries.connection(
                "tcp", 6, 6, number=number, job=job, is_head=True, gap_us=1, head_bytes=3200
            ),
        )
        sent = [frames.tcp(6, 6, 400, seq=place) for place in range(10)]
        for frame in sent[:6]:
            self.send(frame)
        left = list(receive_all(self, 6))
        self.assertEqual(
            left, [bytes(frames.as_forwarded(frame, queue=_SLOW)) for frame in sent[:6]]
        )
        for frame in sent[6:8]:
            self.assertEqual(self.queue_of(frame), _FAST)
        for frame in sent[8:]:
            self.assertEqual(self.queue_of(frame), _SLOW)


class _HoldTest(EchelonTest):
    """A flow in a queue that is behind the switch."""

    def held_flow(self, us: int) -> Flow:
        self.install(entries.promotion_hold(RECEIVER, _SLOW, us))
        return self.shim_flow(Fixed(_SLOW))

    def assert_carried(self, flow: Flow, flags: int, queue: int, left_flags: int) -> None:
        shim = frames.shim_of(frame := self.carry(flow.packet(flags=flags)))
        self.assertEqual((frames.queue_of(frame), int(shim.flags)), (queue, left_flags))


class StaysForTheHoldTime(_HoldTest):
    """A flow stays in a queue behind the switch, and asks to drain, though all its packets have
    left the switch.
    """

    def runTest(self) -> None:
        for us in (_HOUR_US, _FOREVER):
            flow = self.held_flow(us)
            self.assert_carried(flow, 0, _SLOW, 0)
            for queue in (_FAST, 0):
                self.rerank(flow, Fixed(queue))
                for _ in range(2):
                    self.assert_carried(flow, 0, _SLOW, DRAIN)
            self.doCleanups()


class AloneNeedNotWait(_HoldTest):
    """A packet that is the only one of its flow on the way changes the queue at once, and those
    behind it follow.
    """

    def runTest(self) -> None:
        for us in (_HOUR_US, _FOREVER):
            flow = self.held_flow(us)
            self.assert_carried(flow, ALONE, _SLOW, ALONE)
            self.rerank(flow, Fixed(_FAST))
            self.assert_carried(flow, 0, _SLOW, DRAIN)
            self.assert_carried(flow, ALONE, _FAST, ALONE)
            self.assert_carried(flow, 0, _FAST, 0)
            self.doCleanups()


class RisesAfterTheHoldTime(_HoldTest):
    """None of the flow's packets can still wait after the hold time without a packet."""

    def runTest(self) -> None:
        flow = self.held_flow(50_000)
        self.assert_carried(flow, 0, _SLOW, 0)
        self.rerank(flow, Fixed(_FAST))
        time.sleep(0.1)
        self.assert_carried(flow, 0, _FAST, 0)


@skipped_on(tna=_UNSEEN)
class OnlyThatQueueIsHeld(_HoldTest):
    """Other queues of the port are left as soon as the last packet has left the switch."""

    def runTest(self) -> None:
        self.held_flow(_FOREVER)
        flow = self.shim_flow(Fixed(_FAST))
        self.assert_carried(flow, 0, _FAST, 0)
        self.rerank(flow, Fixed(_SLOW))
        self.assert_carried(flow, 0, _SLOW, 0)


class HeldWithoutShim(_HoldTest):
    """Flows known by their bytes stay in the same way, and their packets stay as they are."""

    def runTest(self) -> None:
        self.held_flow(_HOUR_US)
        number, profile = self.new_connection(), self.new_profile()
        self.install(
            *entries.by_bytes(profile, [800], [_SLOW, _FAST]),
            entries.segment(number, 0, 1 << 20, self.ranked(Attained(self.new_group(), profile))),
            entries.connection(
                "tcp",
                5,
                5,
                number=number,
                job=self.new_job(),
                is_head=True,
                gap_us=_HOUR_US,
                head_bytes=1 << 20,
            ),
        )
        for place in range(4):
            frame = frames.tcp(5, 5, 400, seq=place)
            self.assertEqual(self.carry(frame), bytes(frames.as_forwarded(frame, queue=_SLOW)))


class HeldInTheSwitchToo(WaitsForEarlierPackets):
    """A hold time that is over does not let a packet pass those that are still in the switch."""

    def setUp(self) -> None:
        super().setUp()
        self.install(entries.promotion_hold(RECEIVER, _SLOW, 0))
