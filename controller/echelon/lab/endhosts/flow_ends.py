"""The ends of the shim's flows at one host: segments that arrive go to them, their answers go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from echelon.errors import RunError
from echelon.lab.endhosts.segments import AckSegment, DataSegment
from echelon.lab.endhosts.transport import FlowReceiver, FlowSender
from echelon.targets.virtual import Clock

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
        """Bytes that have to be paid for, at the rate, before the next segment may leave; negative: a credit."""
        self._at_ns = 0
        """The time when the debt was last brought up to date."""
        self._timer = 0
        """The number of the newest timer; older ones do nothing."""

    @property
    def holds(self) -> bool:
        """Whether segments wait for their time."""
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
                self._clock.at(self._clock.now_ns + wait_ns, self._on_timer, self._timer)
                return
            self._debt_bytes += length_bytes
            self._transmit(self._waiting.popleft())

    def _on_timer(self, timer: int) -> None:
        if timer == self._timer:
            self._go_on()


MAX_TIMEOUTS = 16
"""Time-outs in a row after which a run is given up as stuck."""

NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Sending:
    sender: FlowSender
    transmit: Callable[[DataSegment], None]
    on_sent: Callable[[], None] | None
    what: str
    pacer: SegmentPacer | None


@dataclass(slots=True)
class _Receiving:
    receiver: FlowReceiver
    transmit: Callable[[AckSegment], None]
    on_complete: Callable[[], None] | None


class FlowEnds:
    """Senders and receivers of one host, by the key of flow and iteration (`echelon.lab.endhosts.shim.flow_key`).

    `host` is its name, for errors. Once `closed`, nothing is sent again by itself.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self.closed = False
        self._host = host
        self._clock = clock
        self._sending: dict[bytes, _Sending] = {}
        self._receiving: dict[bytes, _Receiving] = {}
        self._newest: dict[tuple[bool, bytes], bytes] = {}  # by direction and flow: the key of its last iteration

    def send(
        self,
        key: bytes,
        sender: FlowSender,
        transmit: Callable[[DataSegment], None],
        what: str,
        on_sent: Callable[[], None] | None = None,
        *,
        paced: bool = False,
    ) -> None:
        """Send a flow with `transmit`. `what` describes it in an error; `on_sent` is called when all is acknowledged.

        A flow that is `paced` can be told a rate by `pace`.

        The same flow's sender of an earlier iteration, if it still waits for an acknowledgement that was lost, gives
        way. A `RunError` comes out of the clock's call for a flow that gets nowhere.
        """
        self._sending.pop(self._succeed(True, key), None)
        pacer = None
        if paced:
            pacer = SegmentPacer(self._clock, transmit)
            transmit = pacer.offer
        sending = self._sending[key] = _Sending(sender, transmit, on_sent, what, pacer)
        for segment in sender.start(self._clock.now_ns):
            transmit(segment)
        self._clock.at(sender.deadline_ns, self._on_deadline, key, sending)

    def pace(self, key: bytes, rate_Bps: float | None) -> None:  # noqa: N803
        """Send a paced flow at this rate from now on, in bytes per second (None: no limit), if it is still sent."""
        sending = self._sending.get(key)
        if sending is not None and sending.pacer is not None:
            sending.pacer.pace(rate_Bps)

    def receive(
        self,
        key: bytes,
        receiver: FlowReceiver,
        transmit: Callable[[AckSegment], None],
        on_complete: Callable[[], None],
    ) -> None:
        """Expect a flow and acknowledge it with `transmit`; call `on_complete` when everything has arrived.

        The receiver answers repetitions until the same flow is expected in another iteration.
        """
        self._receiving.pop(self._succeed(False, key), None)
        self._receiving[key] = _Receiving(receiver, transmit, on_complete)

    def expects(self, key: bytes) -> bool:
        """Return whether there is a receiver for that flow in that iteration."""
        return key in self._receiving

    def deliver(self, now_ns: int, key: bytes, segment: DataSegment | AckSegment) -> bool:
        """Take a segment that has arrived; return False if it is data that no receiver here expects."""
        if isinstance(segment, AckSegment):
            self._deliver_ack(now_ns, key, segment)
            return True
        receiving = self._receiving.get(key)
        if receiving is None:
            return False
        receiver = receiving.receiver
        answer = receiver.on_segment(segment)
        if answer is not None:
            receiving.transmit(answer)
        if not receiver.missing_bytes and (on_complete := receiving.on_complete) is not None:
            receiving.on_complete = None
            on_complete()
        return True

    def _deliver_ack(self, now_ns: int, key: bytes, ack: AckSegment) -> None:
        sending = self._sending.get(key)
        if sending is None:
            return
        for segment in sending.sender.on_ack(now_ns, ack):
            sending.transmit(segment)
        if sending.sender.finished:
            del self._sending[key]
            if sending.on_sent is not None:
                sending.on_sent()

    def _succeed(self, sends: bool, key: bytes) -> bytes:
        """Note `key` as the newest of its flow; return the one before, or an impossible one."""
        flow = (sends, key[1:])
        before = self._newest.get(flow, b"")
        self._newest[flow] = key
        return before

    def _on_deadline(self, key: bytes, sending: _Sending) -> None:
        if self.closed or self._sending.get(key) is not sending:
            return
        sender, now_ns = sending.sender, self._clock.now_ns
        if sending.pacer is not None and sending.pacer.holds:
            sender.postpone(now_ns)
        elif now_ns >= sender.deadline_ns:
            if sender.timeouts == MAX_TIMEOUTS:
                raise RunError(
                    f"{sending.what}: nothing was acknowledged through {MAX_TIMEOUTS} time-outs, the last at "
                    f"{now_ns / NS_PER_S:.3f} s; check that packets can pass from {self._host} to its "
                    "destination and back, and that its queue is served"
                )
            for segment in sender.on_timeout(now_ns):
                sending.transmit(segment)
        self._clock.at(sender.deadline_ns, self._on_deadline, key, sending)
