"""The receiving end of a connection. No I/O, no clock: every method returns the frame to send now, if any."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from echelon.lab.endhosts.tcp.frames import (
    ACK,
    CE,
    CWR,
    ECE,
    FIN,
    RST,
    STAMP_BYTES,
    SYN,
    Options,
    Segment,
    SegmentFrames,
    TcpAddress,
    stamp_of,
    window_scale,
)
from echelon.lab.endhosts.tcp.sender import TcpSettings, TcpTally

_WRAP = 0xFFFFFFFF
_HALF = 1 << 31


class TcpReceiver:
    """The receiving end. It reads everything at once, so its window never closes.

    `address` is that of the data; the receiver's own frames go the other way. After every call look at `deadline_ns`,
    and call `on_deadline` at that time.
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

    def __init__(self, address: TcpAddress, settings: TcpSettings, tally: TcpTally | None = None, isn: int = 0) -> None:
        self._settings = settings
        self._frames = SegmentFrames(address.reversed())
        self._tally = TcpTally() if tally is None else tally
        self._isn = isn
        self._base = 0  # sequence number of the first byte
        self._connected = False
        self._ecn = False
        self._recent = 0  # the stamp to echo: of the first segment that is not acknowledged, or that came in order last
        self._ce = False  # congestion was experienced, and the sender has not said that it knows
        self._unanswered = 0
        self._identification = -1  # of the frame sent last among those that have arrived
        # Data ahead of something missing: starts and ends of stretches that do not touch, by position.
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
        self._connect(peer_isn, window_scale(self._settings.receive_window_bytes), self._settings.ecn, stamped=True)

    def on_segment(self, now_ns: int, segment: Segment, options: Options | None = None) -> bytes | None:
        """Take a segment. `options` are given if it is a SYN."""
        ecn, length, identification, seq, _, flags, _, stamp, _ = segment
        if flags & (SYN | RST):
            return self._on_syn(now_ns, segment, options or Options()) if flags & SYN and not flags & RST else None
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

    def _on_syn(self, now_ns: int, segment: Segment, options: Options) -> bytes:
        window = self._settings.receive_window_bytes
        if not self._connected:
            scale = 0 if options.window_scale is None else window_scale(window)
            ecn = self._settings.ecn and segment.flags & (ECE | CWR) == ECE | CWR
            self._connect(segment.seq, scale, ecn, stamped=options.stamps is not None)
        mine = Options(
            self._settings.mss_bytes + STAMP_BYTES,
            None if options.window_scale is None else window_scale(window),
            None if options.stamps is None else (stamp_of(now_ns), options.stamps[0]),
        )
        flags = SYN | ACK | ECE if self._ecn else SYN | ACK
        return self._frames.build_syn(self._isn, self._base, flags, mine, min(window, 0xFFFF))

    def _connect(self, peer_isn: int, scale: int, ecn: bool, *, stamped: bool) -> None:
        self._connected = True
        self._frames.agree(stamped=stamped)
        self._base = peer_isn + 1 & _WRAP
        self._ecn = ecn
        self._frames.window = min(self._settings.receive_window_bytes >> scale, 0xFFFF)

    def _take(self, start: int, end: int) -> None:
        """Take the bytes from `start` to before `end`, which arrived out of order or with something ahead."""
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
            start, end = min(start, starts[first]), max(end, ends[behind - 1])
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
        flags = ACK | ECE if self._ce else ACK
        return self._frames.build(self._isn + 1 & _WRAP, acked, flags, stamp=stamp_of(now_ns), echo=self._recent)
