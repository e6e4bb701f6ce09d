"""One host of an emulation: its interface, and behind it senders and receivers of shim, TCP and background traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from echelon.endhosts.shim import (
    ACK,
    DISCARD_PORT_BYTES,
    DRAIN,
    ETHERNET_BYTES,
    IPV4_TOTAL_LENGTH,
    RESENT,
    SHIM_FLAGS_AT,
    SHIM_KEY,
    SHIM_REMAINING,
    SHIM_RESERVED_AT,
    UDP_DESTINATION,
    UDP_SOURCE,
    has_shim,
)
from echelon.endhosts.tcp.stack import Clock, Nic, TcpStack
from echelon.endhosts.transport import Receiver, Sender
from echelon.scenarios.results import RunError

__all__ = ["MAX_TIMEOUTS", "NS_PER_S", "BackgroundStats", "Clock", "HostStack", "Nic", "PacedNic"]

MAX_TIMEOUTS = 16
"""So often in a row does a sender get nothing acknowledged before the run is given up as stuck."""

NS_PER_S = 1_000_000_000


class PacedNic:
    """A network interface behind a sender that does not exceed `rate_bps`."""

    def __init__(self, clock: Clock, nic: Nic, rate_bps: int) -> None:
        self._clock = clock
        self._nic = nic
        self._rate_bps = rate_bps
        self._free_ns = 0

    def send(self, data: bytes) -> None:
        """Send when the frames before have had their time."""
        now_ns = self._clock.now_ns
        start_ns = max(now_ns, self._free_ns)
        self._free_ns = start_ns - (-len(data) * 8 * NS_PER_S // self._rate_bps)
        if start_ns == now_ns:
            self._nic.send(data)
        else:
            self._clock.at(start_ns, self._nic.send, data)


@dataclass(slots=True)
class BackgroundStats:
    """Packets of one background sender."""

    sent_packets: int = 0
    received_packets: int = 0


class HostStack:
    """The senders and receivers of one host: frames that arrive go to them, what they answer goes to the interface."""

    __slots__ = (
        "_background",
        "_clock",
        "_newest",
        "_nic",
        "_open",
        "_receivers",
        "_senders",
        "host",
        "tcp",
        "unknown_packets",
    )

    def __init__(self, host: str, clock: Clock, nic: Nic) -> None:
        self.host = host
        self.tcp = TcpStack(clock, nic)
        """the ends of TCP connections here"""
        self.unknown_packets = 0
        """packets for nobody here"""
        self._clock = clock
        self._nic = nic
        self._senders: dict[bytes, Sender] = {}
        self._receivers: dict[bytes, Receiver] = {}
        self._open: dict[bytes, Callable[[], None]] = {}  # what to call when everything has arrived
        self._newest: dict[tuple[bool, bytes], bytes] = {}  # by direction and flow: the key of its last iteration
        self._background: dict[bytes, BackgroundStats] = {}

    @property
    def closed(self) -> bool:
        """Set it to have the host fall silent."""
        return self.tcp.closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        self.tcp.closed = closed

    def receive(self, key: bytes, receiver: Receiver, on_complete: Callable[[], None]) -> None:
        """Expect a flow. Its receiver answers repetitions until the same flow comes again in another iteration."""
        self._receivers.pop(self._succeed(False, key), None)
        self._receivers[key] = receiver
        self._open[key] = on_complete

    def send(self, key: bytes, sender: Sender, what: str) -> None:
        """Send a flow; `what` describes it in an error. Its sender of an earlier iteration, if still waiting for an
        acknowledgement that was lost, gives way."""
        self._senders.pop(self._succeed(True, key), None)
        self._senders[key] = sender
        self._transmit(sender.start(self._clock.now_ns))
        self._clock.at(sender.deadline_ns, self._on_deadline, key, sender, what)

    def count(self, src_port: bytes, stats: BackgroundStats) -> None:
        """Expect background packets from `src_port`."""
        self._background[src_port] = stats

    def transmit(self, frame: bytes) -> None:
        """Send a frame that belongs to no flow of a job."""
        self._nic.send(frame)

    def deliver(self, now_ns: int, frame: bytes) -> None:
        """A frame has arrived."""
        if self.tcp.closed:
            return
        if not has_shim(frame):
            if not self.tcp.deliver(now_ns, frame):
                self._deliver_other(frame)
            return
        flags = frame[SHIM_FLAGS_AT]
        key = frame[SHIM_KEY]
        remaining = int.from_bytes(frame[SHIM_REMAINING], "big")
        reserved = frame[SHIM_RESERVED_AT]
        if flags & ACK:
            sender = self._senders.get(key)
            if sender is not None:
                for out in sender.on_ack(now_ns, remaining, flags & DRAIN != 0, reserved & RESENT != 0):
                    self._nic.send(out)
                if sender.finished:
                    del self._senders[key]
            return
        receiver = self._receivers.get(key)
        if receiver is None:
            self.unknown_packets += 1
            return
        # Not the frame's length: a link may have padded it.
        length_bytes = int.from_bytes(frame[IPV4_TOTAL_LENGTH], "big") + ETHERNET_BYTES
        answer = receiver.on_packet(remaining, length_bytes, flags, reserved)
        if answer is not None:
            self._nic.send(answer)
        if not receiver.missing_bytes:
            on_complete = self._open.pop(key, None)
            if on_complete is not None:
                on_complete()

    def _deliver_other(self, frame: bytes) -> None:
        stats = self._background.get(frame[UDP_SOURCE]) if frame[UDP_DESTINATION] == DISCARD_PORT_BYTES else None
        if stats is None:
            self.unknown_packets += 1
        else:
            stats.received_packets += 1

    def _succeed(self, sends: bool, key: bytes) -> bytes:
        """Note `key` as the newest of its flow; returns the one before, or an impossible one."""
        flow = (sends, key[1:])
        before = self._newest.get(flow, b"")
        self._newest[flow] = key
        return before

    def _transmit(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            self._nic.send(frame)

    def _on_deadline(self, key: bytes, sender: Sender, what: str) -> None:
        if self.closed or self._senders.get(key) is not sender:
            return
        now_ns = self._clock.now_ns
        if now_ns >= sender.deadline_ns:
            if sender.timeouts == MAX_TIMEOUTS:
                raise RunError(
                    f"{what}: nothing was acknowledged through {MAX_TIMEOUTS} time-outs, the last at "
                    f"{now_ns / NS_PER_S:.3f} s; is there a way from {self.host} to its destination and back, "
                    "and is its queue ever served?"
                )
            self._transmit(sender.on_timeout(now_ns))
        self._clock.at(sender.deadline_ns, self._on_deadline, key, sender, what)
