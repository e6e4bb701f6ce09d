"""Sender and receiver of one flow.

Every byte arrives once, with a bounded window of packets in flight.

No I/O, no clock, and no packet format: both ends exchange segments (`echelon_lab.endhosts.shim`).

The sender has at most `window` unacknowledged packets in flight, or flows of a job between the same
two hosts share a window (`Stream`), each place of which goes to the most urgent. Acknowledgements
are cumulative and clock out new packets. A packet that is not acknowledged in time is sent again:
first the first missing packet, then one more missing packet for each acknowledgement. The receiver
keeps what it has, in any order. A time-out that was only impatience (the packet waited in a queue)
is recognised by the answer to the original packet and costs one packet. This is the idea of Eifel
(RFC 3522), but with an echoed mark of retransmissions in place of a time stamp.

The window opens from `initial` packets by one for each packet that is acknowledged: slow start (RFC
5681) without its threshold. With one packet, a flow that has to wait in a low queue waits with one
packet and is ranked anew when that packet has passed. Until the window is fully open, packets ask
to be acknowledged one by one (`prompt`). From then on, one acknowledgement answers `every` packets.

When a switch asks for draining (`drain`), the receiver echoes it and the sender lets its window run
empty once, then opens it again. The switch can then move the flow to a better queue without
reordering its packets. Switches that do not see their queues learn it from `alone`. Packets that
may be in flight when the echo reaches the sender are acknowledged one by one, so that the last of
them is, whatever its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from echelon.model.errors import RunError
from echelon.switches.targets.virtual import Clock
from echelon_lab.endhosts.shim import MIN_FRAME_BYTES, AckSegment, DataSegment, PacketTally

MAX_BACKOFF = 8
"""Longest wait of a sender whose packets go unanswered, in multiples of its first wait."""


def last_packet_bytes(size_bytes: int, packet_bytes: int) -> int:
    """Return the length of the last packet of a flow of `size_bytes`.

    It is the rest that does not fill a packet, but at least a legal frame. The packet before it is
    then shorter by as much. A flow shorter than a frame takes one frame.
    """
    return min(packet_bytes, max((size_bytes - 1) % packet_bytes + 1, MIN_FRAME_BYTES))


class FlowSender:
    """The source of one flow of `size_bytes`.

    Every method returns the segments to send now, in order.

    Raises `ValueError` for a window or a time-out below 1, and for packets too short to leave room
    for a last one.
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
        "_shares",
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
        shares: bool = False,
    ) -> None:
        if window < 1 or retransmit_after_ns < 1:
            raise ValueError("window and retransmit_after_ns must be at least 1")
        if packet_bytes < 2 * MIN_FRAME_BYTES:
            raise ValueError(
                f"packets of {packet_bytes} bytes cannot make room for a last one: give more"
            )
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        """Size of the flow on the wire."""
        self._packet_bytes = packet_bytes
        self._count = -(-self.size_bytes // packet_bytes)
        self._last_bytes = last_packet_bytes(self.size_bytes, packet_bytes)
        self._window = window
        self._initial = min(initial, window)
        self._open = self._initial  # packets that may be in flight by now
        self._retransmit_after_ns = retransmit_after_ns
        if tally is None:
            self._tally = PacketTally()
        else:
            self._tally = tally
        self._next = 0  # first packet, counted from 0, that was never sent
        self._acked = 0  # first packet that is not acknowledged
        self._recover = 0  # packets before this one may be lost
        self._draining = False
        self._shares = shares  # a stream's window: it says when to send
        self._backoff = 1
        self.timeouts = 0
        """Time-outs since the last acknowledgement."""
        self.deadline_ns = 0
        """Time to call `on_timeout`, unless an acknowledgement moves it."""

    @property
    def finished(self) -> bool:
        """Return whether everything is acknowledged."""
        return self._acked == self._count

    @property
    def in_flight(self) -> int:
        """Packets sent and not acknowledged."""
        return self._next - self._acked

    @property
    def waits(self) -> bool:
        """Return whether it has a packet to send, and may."""
        return self._next < self._count and not self._draining

    def send_next(self, now_ns: int, prompt: bool) -> DataSegment:
        """Return the next segment, for which there is a place in the window of the stream."""
        alone = self._next == self._acked
        if alone:
            self.postpone(now_ns)  # it may have waited for a place for long
        index = self._next
        self._next += 1
        return self._segment(index, alone=alone, prompt=prompt)

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
        repeated = None
        if acked < self._recover:
            if ack.resent:
                repeated = self._resend(acked)
            else:
                self._recover = acked  # the originals are on their way after all
        if ack.drain:
            self._draining = True
        if self._draining and acked == self._next:
            self._draining = False
            self._open = self._initial
        new = self._new()
        if repeated is None:
            return new
        return [repeated, *new]

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
        return [self._resend(self._acked)]

    def _packets_before(self, missing_bytes: int) -> int:
        """Return how many packets lie before the last `missing_bytes`."""
        if missing_bytes <= self._last_bytes:
            return self._count - (missing_bytes > 0)
        return (self.size_bytes - missing_bytes) // self._packet_bytes

    def _new(self) -> list[DataSegment]:
        if self._shares:
            return []
        first = self._next
        end = min(self._acked + self._open, self._count)
        if self._draining or end <= first:
            return []
        self._next = end
        prompt = self._open < self._window
        alone = first == self._acked
        out = [self._segment(first, alone=alone, prompt=prompt)]
        # Most packets are full ones, which need no look at their place in the flow: the last two
        # may be shorter.
        size_bytes = self.size_bytes
        packet_bytes = self._packet_bytes
        full_end = max(first + 1, min(end, self._count - 2))
        for index in range(first + 1, full_end):
            left_bytes = size_bytes - index * packet_bytes
            out.append(DataSegment(left_bytes, packet_bytes, False, False, False, prompt))
        for index in range(full_end, end):
            out.append(self._segment(index, prompt=prompt))
        return out

    def _resend(self, index: int) -> DataSegment:
        self._tally.retransmitted += 1
        return self._segment(index, resent=True)

    def _segment(
        self,
        index: int,
        *,
        alone: bool = False,
        prompt: bool = False,
        resent: bool = False,
    ) -> DataSegment:
        last_bytes = self._last_bytes
        if index == self._count - 1:
            return DataSegment(
                last_bytes,
                last_bytes,
                last=True,
                alone=alone,
                prompt=prompt,
                resent=resent,
            )
        remaining = self.size_bytes - index * self._packet_bytes
        # The last but one may be shorter, to make room for the last.
        length_bytes = min(self._packet_bytes, remaining - last_bytes)
        return DataSegment(
            remaining,
            length_bytes,
            alone=alone,
            prompt=prompt,
            resent=resent,
        )


class FlowReceiver:
    """The destination of one flow. `size_bytes`, `packet_bytes` and `window` are the sender's.

    One acknowledgement answers `every` packets.
    """

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

    def __init__(
        self,
        size_bytes: int,
        packet_bytes: int,
        window: int,
        tally: PacketTally | None = None,
        *,
        every: int,
    ) -> None:
        self.size_bytes = max(size_bytes, MIN_FRAME_BYTES)
        """Size of the flow on the wire."""
        self.missing_bytes = self.size_bytes
        """Bytes from the first missing one to the end; 0 when everything has arrived."""
        self._window_bytes = window * packet_bytes
        self._every = every
        if tally is None:
            self._tally = PacketTally()
        else:
            self._tally = tally
        self._unanswered = 0
        # The part behind the last packet that may be in flight when the last echo of `drain`
        # reaches the sender.
        self._prompt_to = self.size_bytes
        self._furthest = self.size_bytes + 1  # smallest `remaining` of an original so far
        # Packets that arrived ahead of something missing: first byte, and the byte after the last.
        self._ahead: dict[int, int] = {}

    def on_segment(self, segment: DataSegment) -> AckSegment | None:
        """Take a segment; return the acknowledgement to send, if any.

        `every` packets are acknowledged together. A segment is acknowledged at once if it is the
        last, a retransmission or a duplicate, if it asks for that or for draining, if something
        before it is missing, or if it is one of the window behind an acknowledgement that asked for
        draining.
        """
        missing = self.missing_bytes
        remaining = segment.remaining
        length_bytes = segment.length_bytes
        if length_bytes > remaining or remaining > self.size_bytes:
            return None  # not of this flow
        resent = segment.resent
        drain = segment.drain
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

    def answer(self) -> AckSegment | None:
        """Return the acknowledgement of what has none yet; None: everything has one."""
        if not self._unanswered:
            return None
        self._unanswered = 0
        return AckSegment(self.missing_bytes)

    def _out_of_order(
        self,
        remaining: int,
        length_bytes: int,
        resent: bool,
    ) -> None:
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


CREDIT_SEGMENTS = 2
"""Number of segments by which a sender may catch up after it had nothing to send."""


class SegmentPacer:
    """Segments on their way to `transmit`. Until the first rate is told, they pass at once."""

    __slots__ = ("_at_ns", "_clock", "_debt_bytes", "_rate_Bps", "_timer", "_transmit", "_waiting")

    def __init__(self, clock: Clock, transmit: Callable[[DataSegment], None]) -> None:
        self._clock = clock
        self._transmit = transmit
        self._rate_Bps: float | None = None
        self._waiting: deque[DataSegment] = deque()
        self._debt_bytes = 0.0
        """Bytes that have to be paid for, at the rate, before the next segment may leave.

        A negative number is a credit.
        """
        self._at_ns = 0
        """The time when the debt was last brought up to date."""
        self._timer = 0
        """The number of the newest timer; older ones do nothing."""

    @property
    def holds(self) -> bool:
        """Return whether segments wait for their time."""
        return bool(self._waiting)

    def offer(self, segment: DataSegment) -> None:
        """Send a segment when it is its turn."""
        if self._rate_Bps is None:
            self._transmit(segment)
            return
        self._waiting.append(segment)
        if len(self._waiting) == 1:
            self._go_on()

    def pace(self, rate_Bps: float | None) -> None:  # noqa: N803
        """Send at this rate from now on, in bytes per second on the wire. None: without a limit."""
        self._pay()
        self._rate_Bps = rate_Bps
        self._go_on()

    def _pay(self) -> None:
        """Bring the debt up to date."""
        now_ns = self._clock.now_ns
        if self._rate_Bps is None:
            self._debt_bytes = 0.0
        else:
            self._debt_bytes -= self._rate_Bps * (now_ns - self._at_ns) / NS_PER_S
        self._at_ns = now_ns

    def _go_on(self) -> None:
        """Send what may leave now, and set a timer for the next segment."""
        self._pay()
        self._timer += 1
        rate_Bps = self._rate_Bps  # noqa: N806
        while self._waiting and rate_Bps != 0:
            length_bytes = self._waiting[0].length_bytes
            self._debt_bytes = max(self._debt_bytes, -CREDIT_SEGMENTS * length_bytes)
            if rate_Bps is not None and self._debt_bytes > 0:
                wait_ns = int(self._debt_bytes / rate_Bps * NS_PER_S) + 1
                self._clock.call_at(self._clock.now_ns + wait_ns, self._on_timer, self._timer)
                return
            self._debt_bytes += length_bytes
            self._transmit(self._waiting.popleft())

    def _on_timer(self, timer: int) -> None:
        if timer == self._timer:
            self._go_on()


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """The place of a flow among those that share a window."""

    stream: Hashable
    """What they have in common: the job, and the host at the other end."""
    window: int
    initial: int
    urgency: Callable[[int], tuple[float, ...]]
    """The flow's urgency at a time in nanoseconds."""


class Stream:
    """The flows of a job from one host to another that are under way and share a window.

    Each place goes to the most urgent flow. A packet that waits in a switch keeps the queue that it
    got when it came; one that waits here does not, so the window is no larger than the path.
    """

    __slots__ = ("_flows", "_open", "_window")

    def __init__(self) -> None:
        self._flows: list[_Sending] = []
        self._window = self._open = 0

    def join(self, sending: _Sending, place: StreamPlace) -> None:
        """Add a flow."""
        self._window = place.window
        if not self._in_flight:
            self._open = min(place.initial, place.window)
        self._flows.append(sending)

    def leave(self, sending: _Sending) -> None:
        """Take a flow away."""
        self._flows = [other for other in self._flows if other is not sending]

    def open(self, acked_packets: int) -> None:
        """Open the window further: so many packets have been acknowledged."""
        self._open = min(self._window, self._open + acked_packets)

    def fill(self, now_ns: int) -> None:
        """Give the free places to flows."""
        for _ in range(self._open - self._in_flight):
            best = None
            most_urgent: tuple[float, ...] = ()
            for sending in self._flows:
                if not sending.sender.waits:
                    continue
                assert sending.place is not None
                urgency = sending.place.urgency(now_ns)
                if best is None or urgency > most_urgent:
                    best = sending
                    most_urgent = urgency
            if best is None:
                return
            prompt = self._open < self._window
            segment = best.sender.send_next(now_ns, prompt)
            best.transmit(segment)

    @property
    def _in_flight(self) -> int:
        return sum(sending.sender.in_flight for sending in self._flows)


MAX_TIMEOUTS = 16
"""Time-outs in a row after which a run is given up as stuck."""

NS_PER_S = 1_000_000_000


def stuck(
    description: str,
    now_ns: int,
    host: str,
) -> str:
    """Return the error for a flow from a host that gets nowhere."""
    return (
        f"{description}: nothing was acknowledged through {MAX_TIMEOUTS} time-outs, the last at"
        f" {now_ns / NS_PER_S:.3f} s; check that packets can pass from {host} to its destination"
        " and back, and that its queue is served"
    )


@dataclass(slots=True)
class _Sending:
    sender: FlowSender
    transmit: Callable[[DataSegment], None]
    on_sent: Callable[[], None] | None
    description: str
    pacer: SegmentPacer | None
    place: StreamPlace | None
    """None: it has a window of its own."""


@dataclass(slots=True)
class _Receiving:
    receiver: FlowReceiver
    transmit: Callable[[AckSegment], None]
    on_complete: Callable[[], None] | None
    stream: Hashable

    def answer(self) -> None:
        """Acknowledge what has not been."""
        answer = self.receiver.answer()
        if answer is not None:
            self.transmit(answer)


class FlowEnds:
    """Senders and receivers of one host, by the key of flow and iteration.

    See `echelon_lab.endhosts.shim.flow_key`.

    `host` is its name, for errors. Once `closed`, nothing is sent again by itself.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self.closed = False
        self._host = host
        self._clock = clock
        self._sending: dict[bytes, _Sending] = {}
        self._receiving: dict[bytes, _Receiving] = {}
        self._newest: dict[tuple[bool, bytes], bytes] = {}
        """The key of the last iteration, by direction and flow."""
        self._streams: dict[Hashable, Stream] = {}
        self._unanswered: dict[Hashable, _Receiving] = {}
        """The flow that last received a packet, by stream."""

    def send(
        self,
        key: bytes,
        sender: FlowSender,
        transmit: Callable[[DataSegment], None],
        description: str,
        on_sent: Callable[[], None] | None = None,
        *,
        paced: bool = False,
        place: StreamPlace | None = None,
    ) -> None:
        """Send a flow with `transmit`.

        `description` names it in an error; `on_sent` is called when all is acknowledged.

        A flow that is `paced` can be told a rate by `pace`. One with a `place` shares the window of
        a stream; its sender knows.

        The same flow's sender of an earlier iteration, if it still waits for an acknowledgement
        that was lost, gives way. A `RunError` comes out of the clock's call for a flow that gets
        nowhere.
        """
        former = self._sending.pop(self._succeed(True, key), None)
        if former is not None:
            self._leave(former)
        pacer = None
        if paced:
            pacer = SegmentPacer(self._clock, transmit)
            transmit = pacer.offer
        sending = _Sending(sender, transmit, on_sent, description, pacer, place)
        self._sending[key] = sending
        now_ns = self._clock.now_ns
        for segment in sender.start(now_ns):
            transmit(segment)
        if place is not None:
            stream = self._streams.setdefault(place.stream, Stream())
            stream.join(sending, place)
            stream.fill(now_ns)
        self._clock.call_at(sender.deadline_ns, self._on_deadline, key, sending)

    def pace(self, key: bytes, rate_Bps: float | None) -> None:  # noqa: N803
        """Send a paced flow at this rate from now on, if it is still sent.

        The rate is in bytes per second; None: no limit.
        """
        sending = self._sending.get(key)
        if sending is not None and sending.pacer is not None:
            sending.pacer.pace(rate_Bps)

    def receive(
        self,
        key: bytes,
        receiver: FlowReceiver,
        transmit: Callable[[AckSegment], None],
        on_complete: Callable[[], None],
        stream: Hashable = None,
    ) -> None:
        """Expect a flow and acknowledge it with `transmit`.

        Call `on_complete` when everything has arrived. `stream`: what the flow has in common with
        those that share its window.

        The receiver answers repetitions until the same flow is expected in another iteration.
        """
        self._receiving.pop(self._succeed(False, key), None)
        self._receiving[key] = _Receiving(receiver, transmit, on_complete, stream)

    def expects(self, key: bytes) -> bool:
        """Return whether there is a receiver for that flow in that iteration."""
        return key in self._receiving

    def deliver(
        self,
        now_ns: int,
        key: bytes,
        segment: DataSegment | AckSegment,
    ) -> bool:
        """Take a segment that has arrived.

        Return False if it is data that no receiver here expects.
        """
        if isinstance(segment, AckSegment):
            self._deliver_ack(now_ns, key, segment)
            return True
        receiving = self._receiving.get(key)
        if receiving is None:
            return False
        if receiving.stream is not None:
            self._answer_other(receiving)
        receiver = receiving.receiver
        answer = receiver.on_segment(segment)
        if answer is not None:
            receiving.transmit(answer)
        on_complete = receiving.on_complete
        if on_complete is not None and not receiver.missing_bytes:
            receiving.on_complete = None
            on_complete()
        return True

    def _deliver_ack(
        self,
        now_ns: int,
        key: bytes,
        ack: AckSegment,
    ) -> None:
        sending = self._sending.get(key)
        if sending is None:
            return
        sender = sending.sender
        in_flight = sender.in_flight
        for segment in sender.on_ack(now_ns, ack):
            sending.transmit(segment)
        if sending.place is not None:
            stream = self._streams[sending.place.stream]
            stream.open(in_flight - sender.in_flight)
            stream.fill(now_ns)
        if sender.finished:
            del self._sending[key]
            self._leave(sending)
            if sending.on_sent is not None:
                sending.on_sent()

    def _leave(self, sending: _Sending) -> None:
        if sending.place is not None:
            self._streams[sending.place.stream].leave(sending)

    def _answer_other(self, receiving: _Receiving) -> None:
        """Answer what another flow of the stream has without an answer.

        It may have to wait for this one, and its packets would keep places of their window.
        """
        other = self._unanswered.get(receiving.stream)
        if other is not None and other is not receiving:
            other.answer()
        self._unanswered[receiving.stream] = receiving

    def _succeed(self, sends: bool, key: bytes) -> bytes:
        """Note `key` as the newest of its flow; return the one before, or an impossible one."""
        flow = (sends, key[1:])
        before = self._newest.get(flow, b"")
        self._newest[flow] = key
        return before

    def _on_deadline(self, key: bytes, sending: _Sending) -> None:
        if self.closed or self._sending.get(key) is not sending:
            return
        sender = sending.sender
        now_ns = self._clock.now_ns
        is_held = sending.pacer is not None and sending.pacer.holds
        # Without a packet in flight it waits for a place in the window of its stream.
        if is_held or not sender.in_flight:
            sender.postpone(now_ns)
        elif now_ns >= sender.deadline_ns:
            if sender.timeouts == MAX_TIMEOUTS:
                raise RunError(stuck(sending.description, now_ns, self._host))
            for segment in sender.on_timeout(now_ns):
                sending.transmit(segment)
        self._clock.call_at(sender.deadline_ns, self._on_deadline, key, sending)
