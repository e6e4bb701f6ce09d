"""TCP of one host.

Frames that arrive go to the ends of its connections, and their answers go to its interface.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from echelon.switches.targets.virtual import Clock, Nic
from echelon_lab.endhosts.tcp.frames import (
    ACK,
    CE,
    CWR,
    ECE,
    FIN,
    KEY,
    PROTOCOL,
    RST,
    STAMP_BYTES,
    SYN,
    TCP,
    Options,
    Segment,
    SegmentFrames,
    TcpAddress,
    parse,
    parse_options,
    stamp_of,
    window_scale,
)
from echelon_lab.endhosts.tcp.sender import TcpSender, TcpSettings, TcpTally

_IPV4 = slice(12, 15)
_PLAIN_IPV4 = b"\x08\x00\x45"
_SHORTEST = 54


class _End(Protocol):
    def on_segment(
        self,
        now_ns: int,
        segment: Segment,
        frame: bytes,
    ) -> None: ...


class TcpStack:
    """The ends of connections at one host, by the addresses in their peers' frames."""

    def __init__(self, clock: Clock, nic: Nic) -> None:
        self.clock = clock
        self.nic = nic
        self.closed = False
        """Set it to make the host fall silent."""
        self._ends: dict[bytes, _End] = {}

    def add(self, address: TcpAddress, end: _End) -> None:
        """Give `end` what comes from `address`."""
        self._ends[address.key] = end

    def remove(self, address: TcpAddress) -> None:
        self._ends.pop(address.key, None)

    def has(self, address: TcpAddress) -> bool:
        """Return whether a receiver takes what comes from `address`."""
        return address.key in self._ends

    def deliver(self, now_ns: int, frame: bytes) -> bool:
        """Take a frame that has arrived; return whether it was for a connection here."""
        if frame[PROTOCOL] != TCP or frame[_IPV4] != _PLAIN_IPV4 or len(frame) < _SHORTEST:
            return False
        end = self._ends.get(frame[KEY])
        if end is None:
            return False
        end.on_segment(now_ns, parse(frame), frame)
        return True


class MovingCall:
    """A call at a deadline that moves.

    Moving it later costs nothing, moving it earlier costs one event.
    """

    __slots__ = ("_call", "_clock", "_pending_ns")

    def __init__(self, clock: Clock, call: Callable[[int], None]) -> None:
        self._clock = clock
        self._call = call
        self._pending_ns: int | None = None

    def set(self, deadline_ns: int | None) -> None:
        """Make sure that the call comes at `deadline_ns` or before."""
        pending_ns = self._pending_ns
        if deadline_ns is not None and (pending_ns is None or deadline_ns < pending_ns):
            self._pending_ns = deadline_ns
            self._clock.call_at(deadline_ns, self._ring, deadline_ns)

    def _ring(self, deadline_ns: int) -> None:
        if deadline_ns == self._pending_ns:
            self._pending_ns = None
            self._call(self._clock.now_ns)


class _SendingEnd:
    __slots__ = ("_alarm", "_connection", "sender", "stack")

    def __init__(
        self,
        stack: TcpStack,
        sender: TcpSender,
        connection: Connection,
    ) -> None:
        self.stack = stack
        self.sender = sender
        self._connection = connection
        self._alarm = MovingCall(stack.clock, self._on_deadline)

    def on_segment(
        self,
        now_ns: int,
        segment: Segment,
        frame: bytes,
    ) -> None:
        sender = self.sender
        if segment.flags & SYN:
            options = parse_options(frame)
        else:
            options = None
        self.transmit(sender.on_segment(now_ns, segment, options))
        if sender.finished or sender.given_up:
            self._connection.on_end()

    def transmit(self, frames: Iterable[bytes]) -> None:
        """Send the frames and set the alarm for the next deadline."""
        send = self.stack.nic.send
        for frame in frames:
            send(frame)
        self._alarm.set(self.sender.deadline_ns)

    def _on_deadline(self, now_ns: int) -> None:
        if self.stack.closed:
            return
        self.transmit(self.sender.on_deadline(now_ns))
        if self.sender.given_up:
            self._connection.on_end()


class _ReceivingEnd:
    __slots__ = ("_alarm", "expected", "receiver", "stack")

    def __init__(self, stack: TcpStack, receiver: TcpReceiver) -> None:
        self.stack = stack
        self.receiver = receiver
        self.expected: deque[tuple[int, Callable[[], None]]] = deque()
        """Pairs of (bytes, what to call when they have been received), ascending."""
        self._alarm = MovingCall(stack.clock, self._on_deadline)

    def on_segment(
        self,
        now_ns: int,
        segment: Segment,
        frame: bytes,
    ) -> None:
        receiver = self.receiver
        if segment.flags & SYN:
            options = parse_options(frame)
        else:
            options = None
        answer = receiver.on_segment(now_ns, segment, options)
        if answer is not None:
            self.stack.nic.send(answer)
        else:
            self._alarm.set(receiver.deadline_ns)
        expected = self.expected
        while expected and expected[0][0] <= receiver.received_bytes:
            expected.popleft()[1]()

    def _on_deadline(self, now_ns: int) -> None:
        if self.stack.closed:
            return
        answer = self.receiver.on_deadline(now_ns)
        if answer is not None:
            self.stack.nic.send(answer)
        else:
            self._alarm.set(self.receiver.deadline_ns)


class Connection:
    """A connection between two hosts of an emulation.

    Bytes that are written at one end are reported when they have arrived at the other. `on_lost` is
    called when the connection is given up, `on_gone` when it has ended for whatever reason. Begin
    with `open` or `establish`; bytes that are written before wait for it.
    """

    __slots__ = ("_on_gone", "_on_lost", "_receiving", "_sending", "_written", "address")

    def __init__(
        self,
        src: TcpStack,
        dst: TcpStack,
        address: TcpAddress,
        settings: TcpSettings,
        on_lost: Callable[[], None],
        tally: TcpTally | None = None,
        on_gone: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self._on_gone = on_gone
        isn = zlib.crc32(address.key)
        self._on_lost = on_lost
        self._sending = _SendingEnd(src, TcpSender(address, settings, tally, isn), self)
        self._receiving = _ReceivingEnd(dst, TcpReceiver(address, settings, tally))
        self._written = 0
        src.add(address.reversed(), self._sending)
        dst.add(address, self._receiving)

    @property
    def received_bytes(self) -> int:
        return self._receiving.receiver.received_bytes

    def open(self) -> None:
        """Begin with a handshake."""
        end = self._sending
        end.transmit(end.sender.open(end.stack.clock.now_ns))

    def establish(self) -> None:
        """Begin as if the handshake had been before time began."""
        sender = self._sending.sender
        sender.establish(self._sending.stack.clock.now_ns)
        self._receiving.receiver.establish(sender.isn)

    def write(self, length_bytes: int, on_received: Callable[[], None] | None = None) -> None:
        """Write `length_bytes` more.

        Call `on_received` when they and all bytes before them have arrived.
        """
        self._written += length_bytes
        if on_received is not None:
            self._receiving.expected.append((self._written, on_received))
        self._sending.transmit(
            self._sending.sender.write(self._sending.stack.clock.now_ns, length_bytes)
        )

    def close(self) -> None:
        """Close: nothing more will be written.

        When all is acknowledged, the connection is gone at both ends.
        """
        end = self._sending
        end.transmit(end.sender.close(end.stack.clock.now_ns))

    def on_end(self) -> None:
        """Take the connection's end: everything is acknowledged, or it was given up."""
        back = self.address.reversed()
        if not self._sending.stack.has(back):
            return  # an alarm of a connection that has ended already
        self._sending.stack.remove(back)
        self._receiving.stack.remove(self.address)
        self._receiving.receiver.deadline_ns = None  # nobody waits for what it has not acknowledged
        if self._on_gone is not None:
            self._on_gone()
        if self._sending.sender.given_up:
            self._on_lost()


_WRAP = 0xFFFFFFFF
_HALF = 1 << 31


class TcpReceiver:
    """The receiving end. It reads everything at once, so its window never closes.

    `address` is that of the data; the receiver's own frames go the other way. After every call look
    at `deadline_ns`, and call `on_deadline` at that time.
    """

    __slots__ = (
        "_ahead",
        "_base",
        "_ce",
        "_connected",
        "_ecn",
        "_fin_at",
        "_frames",
        "_identification",
        "_isn",
        "_recent",
        "_settings",
        "_tally",
        "_unanswered",
        "deadline_ns",
        "ended",
        "received_bytes",
    )

    def __init__(
        self,
        address: TcpAddress,
        settings: TcpSettings,
        tally: TcpTally | None = None,
        isn: int = 0,
    ) -> None:
        self._settings = settings
        self._frames = SegmentFrames(address.reversed())
        if tally is None:
            self._tally = TcpTally()
        else:
            self._tally = tally
        self._isn = isn
        self._base = 0  # sequence number of the first byte
        self._connected = False
        self._ecn = False
        # the stamp to echo: of the first segment that is not acknowledged,
        # or that came in order last
        self._recent = 0
        self._ce = False  # congestion was experienced, and the sender has not said that it knows
        self._unanswered = 0
        self._identification = -1  # of the frame sent last among those that have arrived
        # Data ahead of something missing: starts and ends of
        # stretches that do not touch, by position.
        self._ahead: tuple[list[int], list[int]] = ([], [])
        self._fin_at: int | None = None
        self.received_bytes = 0
        """Payload received in order, in bytes."""
        self.ended = False
        """Whether the sender's FIN has arrived, and everything before it."""
        self.deadline_ns: int | None = None
        """Time to call `on_deadline`; None if nothing is awaited."""

    def establish(self, peer_isn: int = 0) -> None:
        """Begin as if there had been a handshake with a `TcpSender` of the same settings."""
        self._connect(
            peer_isn,
            window_scale(self._settings.receive_window_bytes),
            self._settings.ecn,
            stamped=True,
        )

    def on_segment(
        self,
        now_ns: int,
        segment: Segment,
        options: Options | None = None,
    ) -> bytes | None:
        """Take a segment. `options` are given if it is a SYN."""
        ecn, length, identification, seq, _, flags, _, stamp, _ = segment
        if flags & (SYN | RST):
            if flags & SYN and not flags & RST:
                return self._on_syn(now_ns, segment, options or Options())
            return None
        if not self._connected:
            return None
        if not length and not flags & FIN:
            return None
        if length:
            if self._identification < 0 or identification - self._identification & 0xFFFF < 0x8000:
                self._identification = identification
            else:
                self._tally.reordered += 1
        if self._ecn:
            if flags & CWR:
                self._ce = False
            if ecn == CE:
                self._ce = True
        done = self.received_bytes
        offset = seq - (self._base + done) & _WRAP
        start = done + (offset if offset < _HALF else offset - _WRAP - 1)
        if stamp is not None and (start < done or (start == done and not self._unanswered)):
            self._recent = stamp  # RFC 7323, 4.3
        if start == done and not self._ahead[0] and not flags & FIN:
            self.received_bytes = done + length
            self._unanswered += 1
            if self._unanswered < 2:
                if self.deadline_ns is None:
                    self.deadline_ns = now_ns + self._settings.delayed_ack_ns
                return None
            return self._ack(now_ns)
        if start > done + self._settings.receive_window_bytes:
            return self._ack(now_ns)
        if flags & FIN:
            self._fin_at = start + length
        self._take(start, start + length)
        if self._fin_at == self.received_bytes:
            self.ended = True
        return self._ack(now_ns)

    def on_deadline(self, now_ns: int) -> bytes | None:
        """Act on the deadline. Nothing happens before `deadline_ns`."""
        if self.deadline_ns is None or now_ns < self.deadline_ns:
            return None
        return self._ack(now_ns)

    def _on_syn(
        self,
        now_ns: int,
        segment: Segment,
        options: Options,
    ) -> bytes:
        window = self._settings.receive_window_bytes
        if not self._connected:
            scale = 0
            if options.window_scale is not None:
                scale = window_scale(window)
            asks_for_ecn = segment.flags & (ECE | CWR) == ECE | CWR
            ecn = self._settings.ecn and asks_for_ecn
            self._connect(segment.seq, scale, ecn, stamped=options.stamps is not None)
        own_scale = own_stamps = None
        if options.window_scale is not None:
            own_scale = window_scale(window)
        if options.stamps is not None:
            own_stamps = stamp_of(now_ns), options.stamps[0]
        mine = Options(self._settings.mss_bytes + STAMP_BYTES, own_scale, own_stamps)
        flags = SYN | ACK
        if self._ecn:
            flags |= ECE
        return self._frames.build_syn(self._isn, self._base, flags, mine, min(window, 0xFFFF))

    def _connect(
        self,
        peer_isn: int,
        scale: int,
        ecn: bool,
        *,
        stamped: bool,
    ) -> None:
        self._connected = True
        self._frames.agree(stamped=stamped)
        self._base = peer_isn + 1 & _WRAP
        self._ecn = ecn
        self._frames.window = min(self._settings.receive_window_bytes >> scale, 0xFFFF)

    def _take(self, start: int, end: int) -> None:
        """Take the bytes from `start` to before `end`.

        They arrived out of order or with something ahead.
        """
        done = self.received_bytes
        starts, ends = self._ahead
        # The stretches that touch the new one: it becomes one with them.
        first = bisect_left(ends, start)
        behind = bisect_right(starts, end)
        inside = first < behind and starts[first] <= start and end <= ends[first]
        if end > start and (end <= done or inside):
            self._tally.duplicate += 1
            return
        if first < behind:
            start = min(start, starts[first])
            end = max(end, ends[behind - 1])
        if start > done:
            if end > start:
                starts[first:behind] = [start]
                ends[first:behind] = [end]
            return
        del starts[first:behind], ends[first:behind]
        self.received_bytes = max(done, end)

    def _ack(self, now_ns: int) -> bytes:
        self._unanswered = 0
        self.deadline_ns = None
        acked = self._base + self.received_bytes + self.ended & _WRAP
        flags = ACK
        if self._ce:
            flags = ACK | ECE
        return self._frames.build(
            self._isn + 1 & _WRAP,
            acked,
            flags,
            stamp=stamp_of(now_ns),
            echo=self._recent,
        )
