"""One virtual host: its interface, and behind it the ends of its shim, TCP and background traffic."""

from __future__ import annotations

from dataclasses import dataclass

from echelon.lab.endhosts.agreement import Agreement
from echelon.lab.endhosts.flow_ends import NS_PER_S, FlowEnds
from echelon.lab.endhosts.own_order import SentBytes
from echelon.lab.endhosts.shim import DISCARD_PORT_BYTES, UDP_DESTINATION, UDP_SOURCE, UNSTAMPED, read_frame
from echelon.lab.endhosts.tcp.stack import TcpStack
from echelon.targets.virtual import Clock, Nic, Urgency


class PacedNic:
    """A network interface that sends at no more than `rate_bps`."""

    def __init__(self, clock: Clock, nic: Nic, rate_bps: int) -> None:
        self._clock = clock
        self._nic = nic
        self._rate_bps = rate_bps
        self._free_ns = 0

    def send(self, data: bytes, urgency: Urgency | None = None) -> None:
        """Send a frame when the frames before it have had their time."""
        now_ns = self._clock.now_ns
        start_ns = max(now_ns, self._free_ns)
        self._free_ns = start_ns - (-len(data) * 8 * NS_PER_S // self._rate_bps)
        if start_ns == now_ns:
            self._nic.send(data, urgency)
        else:
            self._clock.at(start_ns, self._nic.send, data, urgency)


@dataclass(slots=True)
class BackgroundStats:
    """Packets of one background sender."""

    sent_packets: int = 0
    received_packets: int = 0


class HostStack:
    """The senders and receivers of one host. It takes the frames that arrive there."""

    __slots__ = ("_background", "agreement", "flows", "nic", "sent", "tcp")

    def __init__(self, host: str, clock: Clock, nic: Nic) -> None:
        self.nic = nic
        self.flows = FlowEnds(host, clock)
        """Ends of the flows with a shim."""
        self.agreement = Agreement(clock)
        """The host's knowledge about the iterations of those flows' jobs."""
        self.sent = SentBytes()
        """The bytes that those flows have sent."""
        self.tcp = TcpStack(clock, nic)
        """Ends of the TCP connections."""
        self._background: dict[bytes, BackgroundStats] = {}

    @property
    def closed(self) -> bool:
        """Whether the host is silent: it neither sends nor receives any more."""
        return self.tcp.closed

    def close(self) -> None:
        """Fall silent."""
        self.flows.closed = True
        self.tcp.closed = True

    def count(self, src_port: bytes, stats: BackgroundStats) -> None:
        """Count background packets that arrive from `src_port` in `stats`."""
        self._background[src_port] = stats

    def deliver(self, now_ns: int, frame: bytes) -> None:
        """Take a frame that has arrived, or ignore it if it is for no receiver here."""
        if self.tcp.closed:
            return
        found = read_frame(frame)
        if found is not None:
            key, segment, stamp = found
            if stamp != UNSTAMPED:
                self.agreement.hear(key, stamp)
            self.flows.deliver(now_ns, key, segment)
        elif not self.tcp.deliver(now_ns, frame) and frame[UDP_DESTINATION] == DISCARD_PORT_BYTES:
            stats = self._background.get(frame[UDP_SOURCE])
            if stats is not None:
                stats.received_packets += 1
