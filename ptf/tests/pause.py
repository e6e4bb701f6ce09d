"""A pause for senders over TCP: acknowledgements close the window while a connection has to stay in
its queue.
"""

from __future__ import annotations

from echelon_ptf import entries, frames
from echelon_ptf.base import (
    BEST_EFFORT_QUEUE,
    RECEIVER,
    SENDER,
    EchelonTest,
    receive_all,
    skipped_on,
)
from echelon_ptf.entries import Fixed
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether

_PAYLOAD = 500
_PACKETS_PER_S = 5
_SLOW, _FAST = 1, 4
_DST_PORT = 5000
_HOUR_US = 3_600_000_000
_NO_ROOM = "the stages of a Tofino are full: it does not look at sequence numbers"


class _PauseTest(EchelonTest):
    """A connection whose flow of 6000 bytes is in a slow queue."""

    def setUp(self) -> None:
        super().setUp()
        self.number = self.new_connection()
        self.src_port = 10_000 + self.number
        self.flow = self.ranked(Fixed(_SLOW))
        connection = entries.connection(
            "tcp",
            self.src_port,
            _DST_PORT,
            number=self.number,
            job=self.new_job(),
            is_head=True,
            gap_us=_HOUR_US,
            head_bytes=6000,
            in_sequence=True,
        )
        self.install(entries.segment(self.number, 0, 6000, self.flow), connection)

    def send_data(self, *places: int) -> None:
        """Send packets by their places in the connection."""
        for place in places:
            self.send(frames.tcp(self.src_port, _DST_PORT, _PAYLOAD, seq=1000 + place * _PAYLOAD))

    def window(self, packets: int) -> int:
        """Acknowledge so many packets, and return the window that the sender hears of; the checksum
        must be right.
        """
        ack = frames.tcp(
            _DST_PORT, self.src_port, 0, src=RECEIVER, dst=SENDER, ack=1000 + packets * _PAYLOAD
        )
        self.send(ack, RECEIVER)
        heard = Ether(self.receive(SENDER))
        again = heard.copy()
        del again[TCP].chksum
        self.assertEqual(heard[TCP].chksum, Ether(bytes(again))[TCP].chksum, "TCP checksum")
        return int(heard[TCP].window)

    def queues(self, packets: int) -> list[int]:
        return [frames.queue_of(frame) for frame in receive_all(self, packets)]


@skipped_on(tna=_NO_ROOM)
class ClosesTheWindowWhileItStays(_PauseTest):
    """The window is closed from the first packet that has to stay, until all that was sent is
    acknowledged.
    """

    def runTest(self) -> None:
        self.slow_queue(_SLOW, _PACKETS_PER_S, _PAYLOAD + 54)
        self.install(entries.answers(_DST_PORT, self.src_port, number=self.number))
        self.send_data(0, 1, 2)
        self.settle()
        open_window = self.window(1)
        self.assertGreater(open_window, 0)
        self.switch.modify(entries.flow(self.flow, Fixed(_FAST), RECEIVER, RECEIVER))
        self.send_data(3)
        self.settle()
        self.assertEqual([self.window(packets) for packets in (1, 3, 4)], [0, 0, open_window])
        self.assertEqual(self.queues(4), [_SLOW] * 4)
        self.send_data(4)
        self.assertEqual(self.queues(1), [_FAST])
        self.assertEqual(self.window(4), open_window)


@skipped_on(tna=_NO_ROOM)
class TouchesNothingUnlessAsked(_PauseTest):
    """A connection without an entry for its acknowledgements keeps its window, even if it has to
    stay.
    """

    def runTest(self) -> None:
        self.slow_queue(_SLOW, _PACKETS_PER_S, _PAYLOAD + 54)
        self.send_data(0, 1)
        self.settle()
        self.switch.modify(entries.flow(self.flow, Fixed(_FAST), RECEIVER, RECEIVER))
        self.send_data(2)
        self.settle()
        self.assertGreater(self.window(1), 0)
        self.assertEqual(self.queues(3), [_SLOW] * 3)


@skipped_on(tna=_NO_ROOM)
class CountsWhatIsSentAgainOnce(_PauseTest):
    """A packet that is sent again belongs to its own flow, and moves no other."""

    def runTest(self) -> None:
        following = self.ranked(Fixed(_FAST))
        self.install(entries.segment(self.number, 6000, 7000, following))
        seen = []
        for place in (0, 1, 1, 0, 2, *range(3, 14), 11, 13, 14):
            self.send_data(place)
            seen += self.queues(1)
        self.assertEqual(seen, [_SLOW] * 14 + [_FAST, _FAST, _SLOW, _FAST, BEST_EFFORT_QUEUE])
