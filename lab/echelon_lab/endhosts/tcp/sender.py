"""The sending end of a connection.

No I/O, no clock: every method returns the frames to send now, in order.

Positions are counted in bytes of payload from 0, without end; on the wire they are modulo 2^32. The
FIN counts as one byte after the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from echelon_lab.endhosts.shim import PacketTally
from echelon_lab.endhosts.tcp.frames import (
    ACK,
    CWR,
    ECE,
    ECT0,
    FIN,
    HEADER_BYTES,
    NOT_ECT,
    PSH,
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
from echelon_lab.endhosts.tcp.newreno import (
    Aggressiveness,
    MltcpWindow,
    NewReno,
    RetransmissionTimer,
)

MAX_TIMEOUTS = 15
"""Time-outs in a row after which a connection is given up (Linux: tcp_retries2)."""

_WRAP = 0xFFFFFFFF
_HALF = 1 << 31


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """The settings of both ends."""

    packet_bytes: int = 1250
    """Length of the longest frame, Ethernet header included."""
    min_rto_ns: int = 200_000_000
    receive_window_bytes: int = 1_000_000
    ecn: bool = False
    delayed_ack_ns: int = 40_000_000
    """Time that a receiver waits for a second segment to acknowledge with the first.

    It is Linux's minimum; RFC 5681 allows 500 ms.
    """

    aggressiveness: Aggressiveness | None = None
    """The function whose value MLTCP multiplies the additive increase by; None: NewReno."""

    @property
    def mss_bytes(self) -> int:
        """Payload of the longest frame."""
        return self.packet_bytes - HEADER_BYTES - STAMP_BYTES

    def congestion(self, mss_bytes: int, initial_bytes: int | None = None) -> NewReno:
        """Return a new congestion window."""
        if self.aggressiveness is None:
            return NewReno(mss_bytes, initial_bytes)
        return MltcpWindow(self.aggressiveness, mss_bytes, initial_bytes)


@dataclass(slots=True)
class TcpTally(PacketTally):
    """Counts of the segments of several connections."""

    timeouts: int = 0
    """Retransmission time-outs."""
    undone: int = 0
    """Time-outs and fast retransmits that turned out to be mistaken.

    What was sent again had only been late.
    """


class _State(Enum):
    CLOSED = auto()
    SYN_SENT = auto()
    ESTABLISHED = auto()
    GIVEN_UP = auto()


class TcpSender:
    """The sending end.

    Begin with `open`, or with `establish` for a connection that was opened before time began.

    After every call look at `deadline_ns`, and call `on_deadline` at that time.
    """

    __slots__ = (
        "_acked_of_peer",
        "_closing",
        "_congestion",
        "_cwr",
        "_doubted",
        "_duplicates",
        "_ecn",
        "_ecn_recover",
        "_end",
        "_frames",
        "_highest",
        "_isn",
        "_last_sent_ns",
        "_lossy",
        "_mss",
        "_next",
        "_peer_scale",
        "_peer_stamp",
        "_peer_window",
        "_recover",
        "_recovering",
        "_settings",
        "_state",
        "_tally",
        "_timed_at_ns",
        "_timed_to",
        "_timer",
        "_una",
        "deadline_ns",
        "timeouts",
    )

    def __init__(
        self,
        address: TcpAddress,
        settings: TcpSettings,
        tally: TcpTally | None = None,
        isn: int = 0,
    ) -> None:
        if settings.mss_bytes < 1:
            raise ValueError(
                f"packets of {settings.packet_bytes} bytes have no room for data: give more"
            )
        self._settings = settings
        self._frames = SegmentFrames(address)
        if tally is None:
            self._tally = TcpTally()
        else:
            self._tally = tally
        self._isn = isn
        self._mss = settings.mss_bytes
        self._congestion = settings.congestion(self._mss)
        self._timer = RetransmissionTimer(settings.min_rto_ns)
        self._state = _State.CLOSED
        self._ecn = False
        self._peer_window = 0  # bytes
        self._peer_scale = 0
        self._peer_stamp = 0  # the newest, for it to be echoed
        self._acked_of_peer = (
            0  # the sequence number that we acknowledge: of the peer's SYN, and of its FIN later
        )
        self._end = 0  # bytes that were written
        self._closing = False
        self._una = 0  # first byte that is not acknowledged
        self._next = 0  # first byte that was not sent, or is to be sent again
        self._highest = 0  # first byte that was never sent
        self._duplicates = 0
        self._recovering = False  # fast recovery
        self._lossy = False  # from a time-out until everything sent before it is acknowledged
        self._recover = 0  # of either: what was sent before it
        self._doubted: int | None = (
            None  # stamp of a retransmission, until an acknowledgement tells whether it was needed
        )
        self._ecn_recover = 0
        self._cwr = False  # the next new segment says that the window was reduced
        self._timed_to = -1  # its acknowledgement measures the round trip; -1: nothing is measured
        self._timed_at_ns = 0
        self._last_sent_ns = 0
        self.timeouts = 0
        """Time-outs since the last acknowledgement."""
        self.deadline_ns: int | None = None
        """Time to call `on_deadline`; None if nothing is awaited."""

    @property
    def isn(self) -> int:
        """The sequence number of the SYN."""
        return self._isn

    @property
    def address(self) -> TcpAddress:
        return self._frames.address

    @property
    def finished(self) -> bool:
        """Return whether everything is acknowledged, the FIN included."""
        return self._closing and self._una > self._end

    @property
    def given_up(self) -> bool:
        """Return whether the peer refused, or was silent for too long."""
        return self._state is _State.GIVEN_UP

    def open(self, now_ns: int) -> Sequence[bytes]:
        """Return the SYN."""
        self._state = _State.SYN_SENT
        self._timed_at_ns = now_ns
        self.deadline_ns = now_ns + self._timer.rto_ns
        return [self._syn(now_ns)]

    def establish(self, now_ns: int, peer_isn: int = 0) -> None:
        """Begin as if there had been a handshake with a `TcpReceiver` of the same settings."""
        window = self._settings.receive_window_bytes
        self._peer_scale = window_scale(window)
        self._peer_window = window >> self._peer_scale << self._peer_scale
        self._establish(now_ns, peer_isn + 1 & _WRAP, self._settings.ecn, stamped=True)

    def write(self, now_ns: int, length_bytes: int) -> Sequence[bytes]:
        """Queue `length_bytes` more for sending."""
        if self._closing:
            raise ValueError("the connection is closed and takes no more data")
        self._end += length_bytes
        return self._on_written(now_ns)

    def close(self, now_ns: int) -> Sequence[bytes]:
        """Close: nothing more will be written."""
        self._closing = True
        return self._on_written(now_ns)

    def on_segment(
        self,
        now_ns: int,
        segment: Segment,
        options: Options | None = None,
    ) -> Sequence[bytes]:
        """Take a segment of the peer. `options` are given if it is a SYN."""
        flags = segment.flags
        if self._state is _State.SYN_SENT:
            return self._on_syn_ack(now_ns, segment, options or Options())
        if self._state is not _State.ESTABLISHED:
            return ()
        if flags & RST:
            self._give_up()
            return ()
        if flags & SYN:
            return [self._ack(now_ns)]  # our acknowledgement of it was lost
        if not flags & ACK:
            return ()
        if segment.stamp is not None:
            self._peer_stamp = segment.stamp
        out = self._on_ack(now_ns, segment)
        if flags & FIN or segment.length_bytes:
            # It closes its own direction, or even sends: acknowledged, not looked at.
            if segment.seq == self._acked_of_peer:
                self._acked_of_peer = segment.seq + segment.length_bytes + (flags & FIN) & _WRAP
            return [*out, self._ack(now_ns)]
        return out

    def on_deadline(self, now_ns: int) -> Sequence[bytes]:
        """Act on the deadline. Nothing happens before `deadline_ns`."""
        if self.deadline_ns is None or now_ns < self.deadline_ns:
            return ()
        self.timeouts += 1
        if self.timeouts > MAX_TIMEOUTS:
            self._give_up()
            return ()
        self._tally.timeouts += 1
        self._timer.back_off()
        self.deadline_ns = now_ns + self._timer.rto_ns
        self._timed_to = -1
        if self._state is _State.SYN_SENT:
            self._tally.retransmitted += 1
            return [self._syn(now_ns)]
        if self._highest == self._una:
            return [self._probe(now_ns)]
        self._congestion.time_out(self._highest - self._una, is_repeated=self._lossy)
        if not self._lossy:
            self._lossy = True
            self._doubted = stamp_of(now_ns)
        self._recovering = False
        self._duplicates = 0
        self._recover = self._highest
        self._next = self._una
        self._cwr = self._ecn
        # Even if the peer's window has closed meanwhile, the peer must hear of us.
        return self._send(now_ns) or [self._segment(now_ns, self._una)]

    # -- handshake ---------------------------------------------------------------------------------

    def _syn(self, now_ns: int) -> bytes:
        window = self._settings.receive_window_bytes
        flags = SYN
        if self._settings.ecn:
            flags = SYN | ECE | CWR
        # The announced size is without options, as RFC 6691 has it.
        mss = self._settings.mss_bytes + STAMP_BYTES
        options = Options(mss, window_scale(window), (stamp_of(now_ns), 0))
        return self._frames.build_syn(self._isn, 0, flags, options, min(window, 0xFFFF))

    def _on_syn_ack(
        self,
        now_ns: int,
        segment: Segment,
        options: Options,
    ) -> Sequence[bytes]:
        if segment.ack != self._isn + 1 & _WRAP:
            return ()
        if segment.flags & RST:
            self._give_up()
        if segment.flags & (SYN | ACK | RST) != SYN | ACK:
            return ()
        # Without the option a peer takes 536 bytes (RFC 9293, 3.7.1).
        mss = min(self._settings.mss_bytes + STAMP_BYTES, options.mss_bytes or 536)
        if options.stamps is not None:
            mss -= STAMP_BYTES
            self._peer_stamp = options.stamps[0]
        if mss != self._mss:
            self._mss = mss
            self._congestion = self._settings.congestion(mss)
        if self.timeouts:
            # A SYN was lost: RFC 5681, 3.1. The timer stays patient: RFC 6298, 5.7.
            self._congestion = self._settings.congestion(mss, mss)
        else:
            self._timer.measure(now_ns - self._timed_at_ns)
        self._peer_scale = options.window_scale or 0
        self._peer_window = segment.window
        ecn = self._settings.ecn and segment.flags & (ECE | CWR) == ECE
        stamped = options.stamps is not None
        self._establish(now_ns, segment.seq + 1 & _WRAP, ecn, stamped=stamped)
        frames = self._send(now_ns)
        return frames or [self._ack(now_ns)]

    def _establish(
        self,
        now_ns: int,
        acked_of_peer: int,
        ecn: bool,
        *,
        stamped: bool,
    ) -> None:
        self._state = _State.ESTABLISHED
        self._frames.agree(stamped=stamped)
        self._acked_of_peer = acked_of_peer
        self._ecn = ecn
        self._frames.window = 0xFFFF
        self._timed_to = -1
        self._last_sent_ns = now_ns
        self.timeouts = 0
        self.deadline_ns = None

    def _give_up(self) -> None:
        self._state = _State.GIVEN_UP
        self.deadline_ns = None

    # -- sending -----------------------------------------------------------------------------------

    def _on_written(self, now_ns: int) -> Sequence[bytes]:
        if self._state is not _State.ESTABLISHED:
            return ()
        if self._next == self._una and now_ns - self._last_sent_ns > self._timer.rto_ns:
            self._congestion.restart()
        return self._send(now_ns)

    def _send(self, now_ns: int, beyond_bytes: int = 0) -> list[bytes]:
        """Return what the windows allow, with `beyond_bytes` more than the congestion window."""
        out: list[bytes] = []
        start = self._next
        end = self._end
        last = end + self._closing  # with the FIN
        if start >= last:
            return out
        una = self._una
        mss = self._mss
        highest = self._highest
        limit = una + min(self._congestion.cwnd + beyond_bytes, self._peer_window)
        frames = self._frames
        base = self._isn + 1
        ack = self._acked_of_peer
        stamp = stamp_of(now_ns)
        echo = self._peer_stamp
        position = start
        while position < last:
            length = min(mss, end - position)
            if position + length > limit:
                # A whole segment or nothing: no silly windows.
                break
            flags = ACK
            if position + length == end:
                if length:
                    flags |= PSH
                if self._closing:
                    flags |= FIN
            ecn = NOT_ECT
            if position < highest:
                self._tally.retransmitted += 1
            elif self._ecn and length:
                # Retransmissions do not carry it (RFC 3168, 6.1.5).
                ecn = ECT0
                if self._cwr:
                    self._cwr = False
                    flags |= CWR
            out.append(frames.build(base + position & _WRAP, ack, flags, length, ecn, stamp, echo))
            position += length + (flags & FIN)
        if not out:
            if position == una and self.deadline_ns is None:
                # The peer's window is closed: ask it.
                self.deadline_ns = now_ns + self._timer.rto_ns
            return out
        self._next = position
        if position > highest:
            self._highest = position
            if self._timed_to < 0 and start >= highest:
                self._timed_to = min(position, start + mss)
                self._timed_at_ns = now_ns
        if self.deadline_ns is None:
            self.deadline_ns = now_ns + self._timer.rto_ns
        self._last_sent_ns = now_ns
        return out

    def _segment(self, now_ns: int, position: int) -> bytes:
        """Return the bytes from `position` on once more, up to a whole segment."""
        length = max(0, min(self._mss, self._end - position))
        flags = ACK
        if position + length == self._end:
            if length:
                flags |= PSH
            if self._closing and self._highest > self._end:
                flags |= FIN
        return self._build(now_ns, position, flags, length)

    def _probe(self, now_ns: int) -> bytes:
        """Return a byte into a closed window (RFC 9293, 3.8.6.1)."""
        self._next = self._una + 1
        self._highest = max(self._highest, self._next)
        length = min(1, self._end - self._una)
        flags = ACK
        if not length:
            flags |= FIN
        return self._build(now_ns, self._una, flags, length)

    def _ack(self, now_ns: int) -> bytes:
        return self._build(now_ns, self._next, ACK, 0)

    def _build(
        self,
        now_ns: int,
        position: int,
        flags: int,
        length: int,
    ) -> bytes:
        seq = self._isn + 1 + position & _WRAP
        return self._frames.build(
            seq,
            self._acked_of_peer,
            flags,
            length,
            stamp=stamp_of(now_ns),
            echo=self._peer_stamp,
        )

    # -- acknowledgements --------------------------------------------------------------------------

    def _on_ack(self, now_ns: int, segment: Segment) -> Sequence[bytes]:
        una = self._una
        behind = segment.ack - (self._isn + 1 + una) & _WRAP
        if behind < _HALF:
            acked = behind
        else:
            acked = behind - _WRAP - 1
        if acked < 0 or una + acked > self._highest:
            return ()  # outdated, or for something that was never sent
        window = segment.window << self._peer_scale
        opened = window != self._peer_window
        self._peer_window = window
        if (
            self._ecn
            and segment.flags & ECE
            and una + acked > self._ecn_recover
            and not self._lossy
        ):
            # Once a window, and only if no loss has halved it already.
            if not self._recovering:
                self._congestion.halve(self._highest - una)
                self._cwr = True
            self._ecn_recover = self._highest
        if acked:
            if self._doubted is not None:
                self._judge(segment)
            marked = self._ecn and segment.flags & ECE != 0
            return self._on_progress(now_ns, acked, marked=marked)
        if self._highest == una or segment.length_bytes or segment.flags & FIN:
            return ()
        if opened:
            return self._send(now_ns)
        return self._on_duplicate(now_ns)

    def _judge(self, segment: Segment) -> None:
        """Judge a retransmission by the first acknowledgement that advances after it.

        If it answers something sent before the retransmission, that had only been late: everything
        is as if nothing had been sent again (Eifel, RFC 3522 and 4015).
        """
        assert self._doubted is not None
        late = segment.stamp is not None and self._doubted - segment.echo - 1 & _WRAP < _HALF
        self._doubted = None
        if late:
            self._tally.undone += 1
            self._lossy = self._recovering = False
            self._recover = self._una
            self._next = self._highest
            self._congestion.undo(self._highest - self._una)

    def _on_progress(
        self,
        now_ns: int,
        acked: int,
        *,
        marked: bool,
    ) -> Sequence[bytes]:
        una = self._una + acked
        congestion = self._congestion
        flight = self._next - self._una
        self._una = una
        self.timeouts = 0
        self._duplicates = 0
        if self._next < una:
            self._next = una
        if 0 <= self._timed_to <= una:
            self._timed_to = -1
            self._timer.measure(now_ns - self._timed_at_ns)
        else:
            self._timer.settle()
        out: list[bytes] = []
        if self._recovering:
            if una >= self._recover:
                congestion.leave_recovery(self._highest - una)
                self._recovering = False
            else:
                # Each restarts the timer: "slow-but-steady" (RFC 6582, section 4).
                congestion.deflate(acked)
                self._tally.retransmitted += 1
                out.append(self._segment(now_ns, una))
        elif self._lossy:
            self._lossy = una < self._recover
            congestion.grow(acked, una)
        elif (
            flight + self._mss > congestion.cwnd and not marked
        ):  # RFC 3168, 6.1.2: no growth while ECE is heard
            congestion.grow(acked, una)
        if una == self._highest:
            self.deadline_ns = None
        else:
            self.deadline_ns = now_ns + self._timer.rto_ns
        out += self._send(now_ns)
        return out

    def _on_duplicate(self, now_ns: int) -> Sequence[bytes]:
        if self._lossy:
            return ()  # RFC 6582, 3.2 step 2: of what was sent before the time-out, or twice
        self._duplicates += 1
        if self._recovering:
            self._congestion.inflate()
            return self._send(now_ns)
        if self._duplicates < 3:
            return self._send(now_ns, self._duplicates * self._mss)
        if self._una < self._recover:
            return ()
        self._recovering = True
        self._recover = self._highest
        self._congestion.enter_recovery(self._highest - self._una)
        self._ecn_recover = self._highest
        self._cwr = self._ecn
        self._timed_to = -1
        self._doubted = stamp_of(now_ns)
        self._tally.retransmitted += 1
        self.deadline_ns = now_ns + self._timer.rto_ns
        return [self._segment(now_ns, self._una), *self._send(now_ns)]
