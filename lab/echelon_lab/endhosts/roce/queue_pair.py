"""The two ends of a connection between queue pairs.

No I/O, no clock: every method returns the frames to send now.

Packets are counted from 0, without end; on the wire their numbers are modulo 2^24 (chapter 9.7 of
the specification).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from echelon_lab.endhosts.roce.frames import (
    ACK,
    NAK_SEQUENCE,
    NUMBERS,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Packet,
    PairFrames,
    QueuePairAddress,
)
from echelon_lab.endhosts.shim import PacketTally
from echelon_lab.endhosts.transport import MAX_BACKOFF

MAX_TIMEOUTS = 16
"""Time-outs in a row after which a queue pair is given up.

NICs give up after 7, which do not double; a flow that has to wait for others must not be given up.
"""

_HALF = NUMBERS >> 1


@dataclass(frozen=True, slots=True)
class PairSettings:
    """The settings of both ends."""

    mtu: int = 1024
    """Maximum payload of a packet, in bytes."""
    window_packets: int = 8
    """Maximum number of packets in flight."""
    message_bytes: int = 1 << 17
    """Maximum length of a message, in bytes.

    What is written is sent in as many messages as that takes.
    """
    timeout_ns: int = 2_000_000_000
    """Time without acknowledgement after which everything is sent again that was not acknowledged.

    It doubles from time-out to time-out, up to `MAX_BACKOFF` times as long.
    """
    asks_after: int = 4
    """Packets for each acknowledgement."""


class _Sent:
    """A packet that was not acknowledged yet."""

    __slots__ = ("asks", "message_bytes", "opcode", "payload_bytes")

    def __init__(
        self,
        opcode: int,
        payload_bytes: int,
        message_bytes: int,
        *,
        asks: bool,
    ) -> None:
        self.opcode = opcode
        self.payload_bytes = payload_bytes
        self.message_bytes = message_bytes
        self.asks = asks


class Requester:
    """The sending end. After every call look at `deadline_ns`, and call `on_deadline` at that time.

    `first_psn` is the number of the first packet.
    """

    __slots__ = (
        "_acked",
        "_backoff",
        "_first_psn",
        "_frames",
        "_message_bytes",
        "_message_left",
        "_settings",
        "_silent",
        "_tally",
        "_to_write",
        "_unacked",
        "deadline_ns",
        "timeouts",
    )

    def __init__(
        self,
        address: QueuePairAddress,
        settings: PairSettings,
        tally: PacketTally | None = None,
        first_psn: int = 0,
    ) -> None:
        self._frames = PairFrames(address)
        self._settings = settings
        if tally is None:
            self._tally = PacketTally()
        else:
            self._tally = tally
        self._first_psn = first_psn
        self._to_write: deque[int] = deque()  # bytes of messages that were not begun
        self._message_bytes = 0  # of the message that is being sent
        self._message_left = 0
        self._unacked: deque[_Sent] = deque()
        self._acked = 0  # packets that were acknowledged
        self._silent = 0  # packets since the last one that asked for an acknowledgement
        self._backoff = 1
        self.timeouts = 0
        """Time-outs since the last acknowledgement."""
        self.deadline_ns: int | None = None
        """Time to call `on_deadline`; None if nothing is awaited."""

    @property
    def given_up(self) -> bool:
        """Return whether the peer was silent for too long."""
        return self.timeouts > MAX_TIMEOUTS

    def write(self, now_ns: int, length_bytes: int) -> Sequence[bytes]:
        """Send `length_bytes` more, as messages of their own."""
        full, rest = divmod(length_bytes, self._settings.message_bytes)
        self._to_write += [self._settings.message_bytes] * full
        if rest:
            self._to_write.append(rest)
        return self._send(now_ns)

    def on_packet(self, now_ns: int, packet: Packet) -> Sequence[bytes]:
        """Take an acknowledgement. Impossible and outdated ones are ignored."""
        is_nak = packet.syndrome == NAK_SEQUENCE
        if not is_nak and packet.syndrome >> 5:
            return ()
        # A negative acknowledgement names the first packet that is missing.
        next_psn = packet.psn
        if not is_nak:
            next_psn = packet.psn + 1
        acked = (next_psn - self._first_psn - self._acked) % NUMBERS
        if acked > len(self._unacked) or not (acked or is_nak):
            return ()
        for _ in range(acked):
            self._unacked.popleft()
        self._acked += acked
        self._backoff = 1
        self.timeouts = 0
        if self._unacked:
            self.deadline_ns = now_ns + self._settings.timeout_ns
        else:
            self.deadline_ns = None
        resent = []
        if is_nak:
            resent = self._go_back()
        return resent + self._send(now_ns)

    def on_deadline(self, now_ns: int) -> Sequence[bytes]:
        """Act on the deadline. Nothing happens before `deadline_ns`."""
        if self.deadline_ns is None or now_ns < self.deadline_ns:
            return ()
        self.timeouts += 1
        if self.given_up:
            self.deadline_ns = None
            return ()
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self.deadline_ns = now_ns + self._backoff * self._settings.timeout_ns
        return self._go_back()

    def _send(self, now_ns: int) -> list[bytes]:
        settings = self._settings
        out = []
        while len(self._unacked) < settings.window_packets and (
            self._message_left or self._to_write
        ):
            is_first = not self._message_left
            if is_first:
                self._message_bytes = self._message_left = self._to_write.popleft()
            length = min(settings.mtu, self._message_left)
            self._message_left -= length
            is_last = not self._message_left
            self._silent += 1
            asks = is_last or self._silent >= settings.asks_after
            if asks:
                self._silent = 0
            sent = _Sent(_OPCODES[is_first, is_last], length, self._message_bytes, asks=asks)
            out.append(self._frame(len(self._unacked), sent))
            self._unacked.append(sent)
        if self.deadline_ns is None and self._unacked:
            self.deadline_ns = now_ns + settings.timeout_ns
        return out

    def _go_back(self) -> list[bytes]:
        """Return everything once more that was not acknowledged."""
        self._tally.retransmitted += len(self._unacked)
        return [self._frame(place, sent) for place, sent in enumerate(self._unacked)]

    def _frame(self, place: int, sent: _Sent) -> bytes:
        psn = (self._first_psn + self._acked + place) % NUMBERS
        return self._frames.write(
            sent.opcode, psn, sent.payload_bytes, sent.message_bytes, asks=sent.asks
        )


_OPCODES = {
    (True, True): WRITE_ONLY,
    (True, False): WRITE_FIRST,
    (False, False): WRITE_MIDDLE,
    (False, True): WRITE_LAST,
}
"""The opcode of a packet, by whether it is the first and the last of its message."""


class Responder:
    """The receiving end. `address` is that of the data; its own frames go the other way."""

    __slots__ = (
        "_expected",
        "_frames",
        "_identification",
        "_messages",
        "_missing",
        "_tally",
        "received_bytes",
    )

    def __init__(
        self,
        address: QueuePairAddress,
        tally: PacketTally | None = None,
        first_psn: int = 0,
    ) -> None:
        self._frames = PairFrames(address.reversed())
        if tally is None:
            self._tally = PacketTally()
        else:
            self._tally = tally
        self._expected = first_psn
        self._missing = False  # a number is missing, and was asked for
        self._messages = 0
        self._identification = -1  # of the frame sent last among those that have arrived
        self.received_bytes = 0
        """Payload received in order, in bytes."""

    def on_packet(self, packet: Packet) -> bytes | None:
        """Take a packet of a message; return the acknowledgement to send, if any."""
        if (
            self._identification < 0
            or packet.identification - self._identification & 0xFFFF < 0x8000
        ):
            self._identification = packet.identification
        else:
            self._tally.reordered += 1
        ahead = (packet.psn - self._expected) % NUMBERS
        if 0 < ahead < _HALF:
            if self._missing:
                return None
            self._missing = True
            return self._frames.acknowledge(self._expected, NAK_SEQUENCE, self._messages)
        if ahead:
            self._tally.duplicate += 1
        else:
            self._missing = False
            self._expected = (self._expected + 1) % NUMBERS
            self._messages += packet.opcode in (WRITE_LAST, WRITE_ONLY)
            self.received_bytes += packet.payload_bytes
        if packet.asks:
            last = (self._expected - 1) % NUMBERS
            return self._frames.acknowledge(last, ACK, self._messages)
        return None
