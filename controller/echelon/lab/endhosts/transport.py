"""Sender and receiver of one flow: every byte arrives once, with a bounded window of packets in flight.

No I/O, no clock, and no packet format: both ends exchange segments (`echelon.lab.endhosts.segments`).

The sender has at most `window` unacknowledged packets in flight. Acknowledgements are cumulative and clock out new
packets. A packet that is not acknowledged in time is sent again: first the first missing packet, then one more missing
packet for each acknowledgement. The receiver keeps what it has, in any order. A time-out that was only impatience (the
packet waited in a queue) is recognised by the answer to the original packet and costs one packet. This is the idea of
Eifel (RFC 3522), but with an echoed mark of retransmissions in place of a time stamp.

The window opens from `initial` packets by one for each packet that is acknowledged: slow start (RFC 5681) without its
threshold. The default is one packet, so that a flow that has to wait in a low queue waits with one packet and is ranked
anew when that packet has passed. Until the window is fully open, packets ask to be acknowledged one by one (`prompt`).
From then on, one acknowledgement answers half a window.

When a switch asks for draining (`drain`), the receiver echoes it and the sender lets its window run empty once, then
opens it again. The switch can then move the flow to a better queue without reordering its packets. Switches that do not
see their queues learn it from `alone`. Packets that may be in flight when the echo reaches the sender are acknowledged
one by one, so that the last of them is, whatever its number.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.lab.endhosts.segments import AckSegment, DataSegment, PacketTally
from echelon.lab.endhosts.shim import MIN_FRAME_BYTES

MAX_BACKOFF = 8
"""Longest wait of a sender whose packets go unanswered, in multiples of its first wait."""


def last_packet_bytes(size_bytes: int, packet_bytes: int) -> int:
    """Return the length of the last packet of a flow of `size_bytes`.

    It is the rest that does not fill a packet, but at least a legal frame. The packet before it is then shorter by as
    much. A flow shorter than a frame takes one frame.
    """
    return min(packet_bytes, max((size_bytes - 1) % packet_bytes + 1, MIN_FRAME_BYTES))


class FlowSender:
    """The source of one flow of `size_bytes`. Every method returns the segments to send now, in order.

    Raises `ValueError` for a window or a time-out below 1, and for packets too short to leave room for a last one.
    """

    __slots__ = (
        "_acked",
        "_backoff",
        "_count",
        "_draining",
        "_initial",
        "_last_bytes",
        "_next",
        "_open",
        "_packet_bytes",
        "_recover",
        "_retransmit_after_ns",
        "_tally",
        "_window",
        "deadline_ns",
        "size_bytes",
        "timeouts",
    )

    def __init__(
        self,
        size_bytes: int,
        packet_bytes: int,
        window: int,
        retransmit_after_ns: int,
        tally: PacketTally | None = None,
        *,
        initial: int = 1,
    ) -> None:
        if window < 1 or retransmit_after_ns < 1:
            raise ValueError("window and retransmit_after_ns must be at least 1")
        if packet_bytes < 2 * MIN_FRAME_BYTES:
            raise ValueError(f"packets of {packet_bytes} bytes cannot make room for a last one: give more")
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        """Size of the flow on the wire."""
        self._packet_bytes = packet_bytes
        self._count = -(-self.size_bytes // packet_bytes)
        self._last_bytes = last_packet_bytes(self.size_bytes, packet_bytes)
        self._window = window
        self._initial = min(initial, window)
        self._open = self._initial  # packets that may be in flight by now
        self._retransmit_after_ns = retransmit_after_ns
        self._tally = PacketTally() if tally is None else tally
        self._next = 0  # first packet, counted from 0, that was never sent
        self._acked = 0  # first packet that is not acknowledged
        self._recover = 0  # packets before this one may be lost
        self._draining = False
        self._backoff = 1
        self.timeouts = 0
        """Time-outs since the last acknowledgement."""
        self.deadline_ns = 0
        """Time to call `on_timeout`, unless an acknowledgement moves it."""

    @property
    def finished(self) -> bool:
        """Whether everything is acknowledged."""
        return self._acked == self._count

    @property
    def in_flight(self) -> int:
        """Packets sent and not acknowledged."""
        return self._next - self._acked

    def start(self, now_ns: int) -> Sequence[DataSegment]:
        """Return the first segments."""
        self.deadline_ns = now_ns + self._retransmit_after_ns
        return self._new()

    def on_ack(self, now_ns: int, ack: AckSegment) -> Sequence[DataSegment]:
        """Take an acknowledgement. Impossible and outdated ones are ignored."""
        acked = self._packets_before(ack.missing_bytes)
        if not self._acked < acked <= self._next:
            if ack.drain and acked == self._acked < self._next:
                self._draining = True
            return ()
        self._open = min(self._window, self._open + acked - self._acked)
        self._acked = acked
        self._backoff = 1
        self.timeouts = 0
        self.deadline_ns = now_ns + self._retransmit_after_ns
        again = None
        if acked < self._recover:
            if ack.resent:
                again = self._again(acked)
            else:
                self._recover = acked  # the originals are on their way after all
        if ack.drain:
            self._draining = True
        if self._draining and acked == self._next:
            self._draining = False
            self._open = self._initial
        new = self._new()
        return new if again is None else [again, *new]

    def postpone(self, now_ns: int) -> None:
        """Wait for acknowledgements anew from now on: packets have not left yet."""
        self.deadline_ns = now_ns + self._backoff * self._retransmit_after_ns

    def on_timeout(self, now_ns: int) -> Sequence[DataSegment]:
        """Return the first missing segment once more: nothing was acknowledged for too long."""
        if self.finished:
            return ()
        self.timeouts += 1
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self.deadline_ns = now_ns + self._backoff * self._retransmit_after_ns
        self._recover = self._next
        return [self._again(self._acked)]

    def _packets_before(self, missing_bytes: int) -> int:
        """Return how many packets lie before the last `missing_bytes`."""
        if missing_bytes <= self._last_bytes:
            return self._count - (missing_bytes > 0)
        return (self.size_bytes - missing_bytes) // self._packet_bytes

    def _new(self) -> list[DataSegment]:
        first = self._next
        end = min(self._acked + self._open, self._count)
        if self._draining or end <= first:
            return []
        self._next = end
        prompt = self._open < self._window
        out = [self._segment(first, alone=first == self._acked, prompt=prompt)]
        # Most packets are full ones, which need no look at their place in the flow: the last two may be shorter.
        size_bytes, packet_bytes = self.size_bytes, self._packet_bytes
        full_end = max(first + 1, min(end, self._count - 2))
        out += [
            DataSegment(size_bytes - index * packet_bytes, packet_bytes, False, False, False, prompt)
            for index in range(first + 1, full_end)
        ]
        out += [self._segment(index, prompt=prompt) for index in range(full_end, end)]
        return out

    def _again(self, index: int) -> DataSegment:
        self._tally.retransmitted += 1
        return self._segment(index, resent=True)

    def _segment(self, index: int, *, alone: bool = False, prompt: bool = False, resent: bool = False) -> DataSegment:
        last_bytes = self._last_bytes
        if index == self._count - 1:
            return DataSegment(last_bytes, last_bytes, last=True, alone=alone, prompt=prompt, resent=resent)
        remaining = self.size_bytes - index * self._packet_bytes
        # The last but one may be shorter, to make room for the last.
        length_bytes = min(self._packet_bytes, remaining - last_bytes)
        return DataSegment(remaining, length_bytes, alone=alone, prompt=prompt, resent=resent)


class FlowReceiver:
    """The destination of one flow. `size_bytes`, `packet_bytes` and `window` are the sender's."""

    __slots__ = (
        "_ahead",
        "_every",
        "_furthest",
        "_prompt_to",
        "_tally",
        "_unanswered",
        "_window_bytes",
        "missing_bytes",
        "size_bytes",
    )

    def __init__(self, size_bytes: int, packet_bytes: int, window: int, tally: PacketTally | None = None) -> None:
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        """Size of the flow on the wire."""
        self.missing_bytes = self.size_bytes
        """Bytes from the first missing one to the end; 0 when everything has arrived."""
        self._window_bytes = window * packet_bytes
        self._every = max(1, window // 2)
        self._tally = PacketTally() if tally is None else tally
        self._unanswered = 0
        # The part behind the last packet that may be in flight when the last echo of `drain` reaches the sender.
        self._prompt_to = self.size_bytes
        self._furthest = self.size_bytes + 1  # smallest `remaining` of an original so far
        # Packets that arrived ahead of something missing: first byte, and the byte after the last.
        self._ahead: dict[int, int] = {}

    def on_segment(self, segment: DataSegment) -> AckSegment | None:
        """Take a segment; return the acknowledgement to send, if any.

        Every half window is acknowledged. A segment is acknowledged at once if it is the last, a retransmission or a
        duplicate, if it asks for that or for draining, if something before it is missing, or if it is one of the window
        behind an acknowledgement that asked for draining.
        """
        missing, remaining, length_bytes = self.missing_bytes, segment.remaining, segment.length_bytes
        if length_bytes > remaining or remaining > self.size_bytes:
            return None  # not of this flow
        resent, drain = segment.resent, segment.drain
        at_once = segment.prompt or resent or drain or segment.last
        if remaining == missing and not self._ahead:
            self.missing_bytes = missing - length_bytes
            if not resent:
                self._furthest = remaining
        else:
            at_once = True
            self._out_of_order(remaining, length_bytes, resent)
        self._unanswered += 1
        if at_once or remaining > self._prompt_to or self._unanswered >= self._every:
            self._unanswered = 0
            if drain:
                self._prompt_to = self.missing_bytes - self._window_bytes
            return AckSegment(self.missing_bytes, drain, resent)
        return None

    def _out_of_order(self, remaining: int, length_bytes: int, resent: bool) -> None:
        start = self.size_bytes - remaining
        end = start + length_bytes
        done = self.size_bytes - self.missing_bytes
        if end <= done or start in self._ahead:
            self._tally.duplicate += 1
            return
        if not resent:
            if remaining > self._furthest:
                self._tally.reordered += 1
            else:
                self._furthest = remaining
        if start > done:
            self._ahead[start] = end
            return
        done = end
        while done in self._ahead:
            done = self._ahead.pop(done)
        self.missing_bytes = self.size_bytes - done
