"""Sender and receiver of one flow: every byte arrives once, a bounded window of packets in flight. No I/O, no clock.

The sender has at most `window` packets in flight that are not acknowledged; acknowledgements are cumulative and clock
out new packets. What is not acknowledged in time is sent again, the first missing packet first and then, one for each
acknowledgement, whatever else turns out to be missing; the receiver keeps what it has, in any order. A time-out that
was only impatience (the packet waited in a queue) is recognised by the answer to the original packet and costs one
packet (the Eifel idea, RFC 3522; here the mark of a retransmission is echoed instead of a timestamp).

The window opens from `initial` packets by one for each that is acknowledged (slow start, RFC 5681, without its
threshold): from one, as it is by default, a flow that has to wait in a low queue waits with one packet, and is ranked
anew when that has passed. Until it is fully open, packets ask with PROMPT to be acknowledged one by one; then each half
window is.

When a switch sets DRAIN, the receiver echoes it and the sender lets its window run empty once, then opens it again: the
switch can move the flow to a better queue without putting packets out of order. Switches that do not see their queues
learn it from ALONE, on a packet before which everything has been acknowledged. What may be in flight when the echo
reaches the sender is acknowledged one by one, so that the last one is, whatever its number.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.endhosts.shim import ALONE, DRAIN, LAST, MIN_FRAME_BYTES, PROMPT, RESENT, AckFrames, DataFrames

MAX_BACKOFF = 8
"""A sender whose packets go unanswered waits at most so many times as long as at first."""

_AT_ONCE = LAST | DRAIN


class Tally:
    """What happened to the packets of several flows."""

    __slots__ = ("duplicate", "reordered", "retransmitted")

    def __init__(self) -> None:
        self.retransmitted = 0
        """packets sent again"""
        self.duplicate = 0
        """packets received whose bytes had been received before"""
        self.reordered = 0
        """original packets whose bytes were new but which came after a packet sent later (retransmissions apart)"""


def last_packet_bytes(size_bytes: int, packet_bytes: int) -> int:
    """Length of the last packet of a flow of `size_bytes`.

    It is the rest that does not fill a packet, but no less than a legal frame: the packet before it is then shorter
    by as much. A flow shorter than a frame takes one frame.
    """
    return min(packet_bytes, max((size_bytes - 1) % packet_bytes + 1, MIN_FRAME_BYTES))


class Sender:
    """One flow's source. Every method returns the frames to send now, in order."""

    __slots__ = (
        "_acked",
        "_backoff",
        "_count",
        "_draining",
        "_frames",
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
        frames: DataFrames,
        size_bytes: int,
        window: int,
        retransmit_after_ns: int,
        tally: Tally | None = None,
        *,
        initial: int = 1,
    ) -> None:
        packet_bytes = frames.packet_bytes
        if window < 1 or retransmit_after_ns < 1:
            raise ValueError("window and retransmit_after_ns must be at least 1")
        if packet_bytes < 2 * MIN_FRAME_BYTES:
            raise ValueError(f"packets of {packet_bytes} bytes cannot make room for a last one: give more")
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        """on the wire"""
        self._frames = frames
        self._packet_bytes = packet_bytes
        self._count = -(-self.size_bytes // packet_bytes)
        self._last_bytes = last_packet_bytes(self.size_bytes, packet_bytes)
        self._window = window
        self._initial = min(initial, window)
        self._open = self._initial  # packets that may be in flight by now
        self._retransmit_after_ns = retransmit_after_ns
        self._tally = Tally() if tally is None else tally
        self._next = 0  # first packet, counted from 0, that was never sent
        self._acked = 0  # first packet that is not acknowledged
        self._recover = 0  # packets before this one may be lost
        self._draining = False
        self._backoff = 1
        self.timeouts = 0
        """time-outs since something was acknowledged"""
        self.deadline_ns = 0
        """when to call `on_timeout`, unless an acknowledgement moves it"""

    @property
    def finished(self) -> bool:
        """Whether everything is acknowledged."""
        return self._acked == self._count

    @property
    def in_flight(self) -> int:
        """Packets sent and not acknowledged."""
        return self._next - self._acked

    def start(self, now_ns: int) -> Sequence[bytes]:
        """The first packets."""
        self.deadline_ns = now_ns + self._retransmit_after_ns
        return self._new()

    def on_ack(self, now_ns: int, missing_bytes: int, drain: bool, resent: bool) -> Sequence[bytes]:
        """The receiver says that all but the last `missing_bytes` have arrived; it answers a packet that carried DRAIN,
        or that was a retransmission. Impossible and outdated acknowledgements are ignored."""
        acked = self._packets_before(missing_bytes)
        if not self._acked < acked <= self._next:
            if drain and acked == self._acked < self._next:
                self._draining = True
            return ()
        self._open = min(self._window, self._open + acked - self._acked)
        self._acked = acked
        self._backoff = 1
        self.timeouts = 0
        self.deadline_ns = now_ns + self._retransmit_after_ns
        again = None
        if acked < self._recover:
            if resent:
                again = self._again(acked)
            else:
                self._recover = acked  # the originals are on their way after all
        if drain:
            self._draining = True
        if self._draining and acked == self._next:
            self._draining = False
            self._open = self._initial
        new = self._new()
        return new if again is None else [again, *new]

    def on_timeout(self, now_ns: int) -> Sequence[bytes]:
        """Nothing was acknowledged for too long: the first missing packet once more."""
        if self.finished:
            return ()
        self.timeouts += 1
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self.deadline_ns = now_ns + self._backoff * self._retransmit_after_ns
        self._recover = self._next
        return [self._again(self._acked)]

    def _packets_before(self, missing_bytes: int) -> int:
        """How many packets lie before the last `missing_bytes`."""
        if missing_bytes <= self._last_bytes:
            return self._count - (missing_bytes > 0)
        return (self.size_bytes - missing_bytes) // self._packet_bytes

    def _new(self) -> list[bytes]:
        out: list[bytes] = []
        if self._draining:
            return out
        first = self._next
        end = min(self._acked + self._open, self._count)
        if end <= first:
            return out
        self._next = end
        # The last two may be shorter, the last carries LAST.
        plain_end = min(end, self._count - 2)
        frames = self._frames
        opening = self._open < self._window
        head = frames.prompt_head if opening else frames.head
        payload, packet_bytes = frames.payload, frames.packet_bytes
        reserved = PROMPT if opening else 0
        if first == self._acked:
            out.append(self._build(first, ALONE, reserved))
            first += 1
        remaining = self.size_bytes - first * packet_bytes
        for _ in range(first, plain_end):
            out.append(head + remaining.to_bytes(4, "big") + payload)
            remaining -= packet_bytes
        out.extend(self._build(index, 0, reserved) for index in range(max(first, plain_end), end))
        return out

    def _again(self, index: int) -> bytes:
        self._tally.retransmitted += 1
        return self._build(index, 0, RESENT)

    def _build(self, index: int, flags: int, reserved: int) -> bytes:
        if index == self._count - 1:
            return self._frames.build(self._last_bytes, self._last_bytes, flags | LAST, reserved)
        remaining = self.size_bytes - index * self._packet_bytes
        length_bytes = min(self._packet_bytes, remaining - self._last_bytes)
        return self._frames.build(remaining, length_bytes, flags, reserved)


class Receiver:
    """One flow's destination; `size_bytes`, `packet_bytes` and `window` are the sender's."""

    __slots__ = (
        "_ahead",
        "_every",
        "_frames",
        "_furthest",
        "_prompt_to",
        "_tally",
        "_unanswered",
        "_window_bytes",
        "missing_bytes",
        "size_bytes",
    )

    def __init__(
        self, frames: AckFrames, size_bytes: int, packet_bytes: int, window: int, tally: Tally | None = None
    ) -> None:
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        self.missing_bytes = self.size_bytes
        """bytes from the first missing one to the end; 0: everything has arrived"""
        self._frames = frames
        self._window_bytes = window * packet_bytes
        self._every = max(1, window // 2)
        self._tally = Tally() if tally is None else tally
        self._unanswered = 0
        # What remains behind the last packet that may be in flight when the last echo of DRAIN reaches the sender.
        self._prompt_to = self.size_bytes
        self._furthest = self.size_bytes + 1  # smallest `remaining` of an original so far
        # Packets that arrived ahead of something missing: first byte, and the byte after the last.
        self._ahead: dict[int, int] = {}

    def on_packet(self, remaining: int, length_bytes: int, flags: int, reserved: int) -> bytes | None:
        """A data packet of `length_bytes` arrived. Returns the acknowledgement to send, if any.

        Every half window is acknowledged; a packet at once if it is the last, a retransmission or a duplicate, asks for
        that or for draining, comes while something before it is missing, or is one of the window behind an
        acknowledgement that asked for draining.
        """
        missing = self.missing_bytes
        if length_bytes > remaining or remaining > self.size_bytes:
            return None  # not of this flow
        resent = reserved & RESENT != 0
        at_once = reserved or flags & _AT_ONCE
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
            drain = flags & DRAIN != 0
            if drain:
                self._prompt_to = self.missing_bytes - self._window_bytes
            return self._frames.build(self.missing_bytes, drain, resent)
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
