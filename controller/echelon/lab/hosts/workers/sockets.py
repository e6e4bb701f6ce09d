"""The sockets that carry flows from host to host.

Flows with the shim header go over UDP sockets: it is the transport of the virtual hosts, on real ones, and the kernel
makes the headers before the shim and takes them off again. Other flows go over the kernel's TCP. Traffic of constant
rate that no job claims goes over plain UDP to the discard port (RFC 863).
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from echelon.errors import RunError
from echelon.jobs.analysis import connections
from echelon.jobs.graph import Flow, Job
from echelon.lab.endhosts.agreement import Agreement
from echelon.lab.endhosts.ranks import CONTROL, HostRanks
from echelon.lab.endhosts.shim import (
    DISCARD_PORT,
    SHIM_AT,
    SHIM_PORT,
    UNSTAMPED,
    AckSegment,
    DataSegment,
    PacketTally,
    ShimPayloads,
    flow_key,
    read_payload,
)
from echelon.lab.endhosts.transport import FlowEnds, FlowReceiver, FlowSender
from echelon.lab.hosts.loop import RealTimeLoop
from echelon.lab.hosts.workers.messages import Assignment, ConstantRate, ShimCarriage, TcpCarriage
from echelon.processes import (
    ECT0,
    IP_MTU_DISCOVER,
    IP_PMTUDISC_DO,
    SO_MAX_PACING_RATE,
    SO_NO_CHECK,
    TCP_NOTSENT_LOWAT,
    set_receive_buffer,
)


class HostPacketCounts(NamedTuple):
    """Packets of a job at one host since the beginning."""

    reordered: int
    """Packets that arrived after one that was sent later, as far as this transport can tell."""
    retransmitted: int


@dataclass(frozen=True, slots=True)
class FlowEvents:
    """The callbacks by which a carrier reports its flows, by their names."""

    started: Callable[[str, int, int], None]
    """Called with (flow, iteration, time in ns) when its first byte leaves."""
    sent: Callable[[str], None]
    """Called with the flow when its last byte is known to have arrived."""
    received: Callable[[str, int, int], None]
    """Called with (flow, iteration, time in ns) when its last byte is here, before the sender can be told of it."""
    iteration: Callable[[], int]
    """Returns the iteration that this host has begun last. Other hosts are there, or one ahead."""


_CONNECTION_PORTS = 0xC000
_NS_PER_S = 1_000_000_000
_RECEIVE_BATCH = 64
"""Packets taken in a row before timers have their turn."""
_RECEIVE_BUFFER_BYTES = 4 << 20


class Datagram(NamedTuple):
    """A UDP payload, the port that it leaves from, and the host that it goes to (to the shim's port)."""

    source_port: int
    destination: str
    payload: bytes
    code_point: int = 0

    @property
    def frame_bytes(self) -> int:
        """Length on the wire, with all headers."""
        return len(self.payload) + SHIM_AT


class PacedSockets:
    """A sender of datagrams from the sockets of their source ports, at no more than `rate_bps` of frames.

    In real time a call may come late. Datagrams that wait then catch up, in the order in which they came.
    """

    def __init__(self, loop: RealTimeLoop, ipv4: str, rate_bps: int, sockets: ExitStack) -> None:
        self._loop = loop
        self._closing = sockets
        self._ipv4 = ipv4
        self._rate_bps = rate_bps
        self._sockets: dict[int, socket.socket] = {}
        self._waiting: deque[Datagram] = deque()
        self._free_ns = 0

    def send(self, datagram: Datagram) -> None:
        """Send a datagram when the datagrams before it have had their time."""
        if self._waiting:
            self._waiting.append(datagram)
            return
        now_ns = self._loop.now_ns
        if now_ns < self._free_ns:
            self._waiting.append(datagram)
            self._loop.at(self._free_ns, self._resume)
            return
        self._free_ns = now_ns + self._time_ns(datagram)
        self._transmit(datagram)

    def _resume(self) -> None:
        now_ns = self._loop.now_ns
        while self._waiting and self._free_ns <= now_ns:
            datagram = self._waiting.popleft()
            self._free_ns += self._time_ns(datagram)
            self._transmit(datagram)
        if self._waiting:
            self._loop.at(self._free_ns, self._resume)

    def _time_ns(self, datagram: Datagram) -> int:
        return -(-datagram.frame_bytes * 8 * _NS_PER_S // self._rate_bps)

    def _transmit(self, datagram: Datagram) -> None:
        sender = self._sockets.get(datagram.source_port)
        if sender is None:
            sender = self._sockets[datagram.source_port] = self._open(datagram.source_port)
        tos = (socket.IPPROTO_IP, socket.IP_TOS, _INT.pack(datagram.code_point << 2 | ECT0))
        sender.sendmsg([datagram.payload], [tos] if datagram.code_point else [], 0, (datagram.destination, SHIM_PORT))

    def _open(self, port: int) -> socket.socket:
        sender = self._closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        # Switches change the shim, which a checksum would cover.
        sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.bind((self._ipv4, port))
        return sender


class ShimSockets:
    """The shim's sockets of one host, for all its jobs."""

    def __init__(self, loop: RealTimeLoop, assignment: Assignment, sockets: ExitStack) -> None:
        self.loop = loop
        self.assignment = assignment
        self.arrived_ns = 0
        """Arrival time of the packet that is being processed."""
        self.flows = FlowEnds(assignment.host, loop)
        """Ends of the flows here."""
        rules = assignment.rules
        self.ranks = None if rules is None else HostRanks(assignment.host, rules)
        """What marks packets with their ranks; None: switches rank."""
        self.agreement = Agreement(loop)
        """The host's knowledge about the iterations of its jobs."""
        ipv4 = assignment.addresses[assignment.host]
        self.outgoing = PacedSockets(loop, ipv4, assignment.rate_bps, sockets)
        self._carriers: dict[int, ShimSocketCarrier] = {}
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.incoming = sockets.enter_context(receiving)
        """The socket that takes all packets for this host."""
        set_receive_buffer(self.incoming, _RECEIVE_BUFFER_BYTES)
        self.incoming.bind((ipv4, SHIM_PORT))
        loop.on_readable(self.incoming.fileno(), self._on_readable)

    def attach(self, number: int, carrier: ShimSocketCarrier) -> None:
        """Ask `carrier` for a receiver when a flow of the job with that number arrives."""
        self._carriers[number] = carrier

    def _on_readable(self) -> None:
        for _ in range(_RECEIVE_BATCH):
            try:
                payload = self.incoming.recv(1 << 16)
            except BlockingIOError:
                return
            found = read_payload(payload)
            if found is not None:
                self._deliver(*found)

    def _deliver(self, key: bytes, segment: DataSegment | AckSegment, stamp: bytes) -> None:
        now_ns = self.arrived_ns = self.loop.now_ns
        if stamp != UNSTAMPED:
            self.agreement.hear(key, stamp)
        if isinstance(segment, DataSegment) and not self.flows.expects(key):
            carrier = self._carriers.get(int.from_bytes(key[1:3], "big"))
            if carrier is not None:
                carrier.expect(key)
        self.flows.deliver(now_ns, key, segment)


class ShimSocketCarrier:
    """One job's flows at one host. There is nothing to connect."""

    def __init__(self, sockets: ShimSockets, job: Job, carriage: ShimCarriage, events: FlowEvents) -> None:
        self.sockets = sockets
        """The host's sockets, which its jobs share."""
        self._job = job
        self._events = events
        self._tally = PacketTally()
        self._number = carriage.number
        self._numbers = carriage.flows
        self._port = _CONNECTION_PORTS | carriage.number & 0x3FFF
        host = sockets.assignment.host
        self._arriving = {carriage.flows[flow.name]: flow for flow in job.flows if flow.dst == host}
        sockets.attach(carriage.number, self)

    def connect(self, connected: Callable[[], None]) -> None:
        """Call `connected` at once."""
        connected()

    @property
    def counts(self) -> HostPacketCounts:
        """Packets of the job at this host."""
        return HostPacketCounts(self._tally.reordered, self._tally.retransmitted)

    def send(self, flow: Flow, iteration: int) -> None:
        """Send a flow from here."""
        assignment = self.sockets.assignment
        key = flow_key(iteration % 256, self._number, self._numbers[flow.name])
        destination, payloads = assignment.addresses[flow.dst], ShimPayloads(key)

        def transmit(segment: DataSegment) -> None:
            stamp, code_point, ranks = self.sockets.agreement.stamp(key), 0, self.sockets.ranks
            if ranks is not None:
                code_point, stamp = ranks.mark(self.sockets.loop.now_ns, key, segment, stamp)
            datagram = Datagram(self._port, destination, payloads.data(segment, stamp), code_point)
            self.sockets.outgoing.send(datagram)

        sender = FlowSender(
            flow.size_bytes,
            assignment.packet_bytes,
            assignment.window_packets,
            assignment.retransmit_after_ns,
            self._tally,
            initial=assignment.initial_window_packets[self._job.name, flow.name],
        )
        what = f"job {self._job.name}: flow {flow.name} from {flow.src} to {flow.dst} in iteration {iteration}"
        self._events.started(flow.name, iteration, self.sockets.loop.now_ns)
        self.sockets.flows.send(key, sender, transmit, what, partial(self._events.sent, flow.name))

    def expect(self, key: bytes) -> None:
        """Expect a flow in the iteration of `key`, whose first packet is here, unless that cannot be."""
        flow = self._arriving.get(int.from_bytes(key[3:5], "big"))
        current = self._events.iteration()
        for iteration in (current, current + 1):
            if flow is not None and iteration % 256 == key[0] and iteration:
                self._receive(key, flow, iteration)

    def _receive(self, key: bytes, flow: Flow, iteration: int) -> None:
        assignment = self.sockets.assignment
        source, payloads = assignment.addresses[flow.src], ShimPayloads(key)

        def acknowledge(segment: AckSegment) -> None:
            payload = payloads.ack(segment, self.sockets.agreement.stamp(key))
            code_point = 0 if self.sockets.ranks is None else CONTROL
            self.sockets.outgoing.send(Datagram(self._port, source, payload, code_point))

        def on_complete() -> None:
            self._events.received(flow.name, iteration, self.sockets.arrived_ns)

        receiver = FlowReceiver(flow.size_bytes, assignment.packet_bytes, assignment.window_packets, self._tally)
        self.sockets.flows.receive(key, receiver, acknowledge, on_complete)


def shim_carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, ShimCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, ShimSocketCarrier]:
    """Open the host's sockets for all jobs that use them. `sockets` closes them, and those that are opened later."""
    shared = ShimSockets(loop, assignment, sockets)
    return {name: ShimSocketCarrier(shared, job, carriage, events) for name, (job, carriage, events) in jobs.items()}


_CHUNK = bytes(64 << 10)
_RECEIPT = b"."
_UNSENT_BYTES = 16 << 10
"""Bytes that wait in the kernel. The rest waits here, so that a flow starts when its first byte leaves."""
_SILENCE_MS = 60_000
"""Time without an acknowledgement after which the connection is given up."""
# Places in struct tcp_info.
_INFO_BYTES = 232
_TOTAL_RETRANSMITS_AT = 100
_REORDERINGS_SEEN_AT = 220
_ECN = Path("/proc/sys/net/ipv4/tcp_ecn")
_U32 = struct.Struct("=I")
_INT = struct.Struct("=i")


@dataclass(slots=True)
class _Outgoing:
    """A flow on its way into the connection."""

    flow: str
    iteration: int
    left_bytes: int
    started: bool = False


class OutgoingConnection:
    """The connection for flows to one host.

    Flows follow each other on their connection. Their sizes tell where one ends, as they do for switches. The receiver
    answers the last byte of a flow with one byte. It tells the sender what an acknowledgement of its transport would,
    if that could be seen.
    """

    def __init__(self, loop: RealTimeLoop, job: str, dst: str, sock: socket.socket, events: FlowEvents) -> None:
        self._loop = loop
        self._what = f"job {job}: connection to {dst}"
        self._socket = sock
        self._events = events
        self._flows: deque[_Outgoing] = deque()
        self._unanswered: deque[str] = deque()

    def begin(self) -> None:
        """Begin to use the connection: it is established."""
        self._loop.on_readable(self._socket.fileno(), self._on_readable)

    def send(self, flow: Flow, iteration: int) -> None:
        self._flows.append(_Outgoing(flow.name, iteration, flow.size_bytes))
        if len(self._flows) == 1:
            self._loop.on_writable(self._socket.fileno(), self._on_writable)
            self._on_writable()

    @property
    def counts(self) -> HostPacketCounts:
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)

        def at(place: int) -> int:
            return int(_U32.unpack_from(info, place)[0]) if len(info) >= place + _U32.size else 0

        return HostPacketCounts(at(_REORDERINGS_SEEN_AT), at(_TOTAL_RETRANSMITS_AT))

    def _on_writable(self) -> None:
        while self._flows:
            head = self._flows[0]
            now_ns = self._loop.now_ns
            try:
                sent = self._socket.send(memoryview(_CHUNK)[: head.left_bytes])
            except BlockingIOError:
                return
            except OSError as error:
                raise RunError(f"{self._what} broke: {error.strerror}") from error
            if not head.started:
                head.started = True
                self._events.started(head.flow, head.iteration, now_ns)
            head.left_bytes -= sent
            if not head.left_bytes:
                self._flows.popleft()
                self._unanswered.append(head.flow)
        self._loop.on_writable(self._socket.fileno(), None)

    def _on_readable(self) -> None:
        receipts = _receive(self._socket, self._what, 1 << 12)
        for _ in range(receipts):
            self._events.sent(self._unanswered.popleft())


class IncomingConnection:
    """The connection for flows from one host. `flows` is what arrives in every iteration, in that order."""

    def __init__(
        self, loop: RealTimeLoop, job: str, src: str, sock: socket.socket, flows: tuple[Flow, ...], events: FlowEvents
    ) -> None:
        self._loop = loop
        self._what = f"job {job}: connection from {src}"
        self._socket = sock
        self._flows = flows
        self._events = events
        self._iteration = 1
        self._index = 0
        self._left_bytes = flows[0].size_bytes
        loop.on_readable(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        count = _receive(self._socket, self._what, 1 << 18)
        now_ns = self._loop.now_ns
        while count >= self._left_bytes:
            count -= self._left_bytes
            flow, iteration = self._flows[self._index], self._iteration
            self._index += 1
            if self._index == len(self._flows):
                self._index = 0
                self._iteration += 1
            self._left_bytes = self._flows[self._index].size_bytes
            self._socket.send(_RECEIPT)
            self._events.received(flow.name, iteration, now_ns)
        self._left_bytes -= count


def _receive(sock: socket.socket, what: str, most_bytes: int) -> int:
    """Return how many bytes arrived. Raises `RunError` when the other end is gone."""
    try:
        data = sock.recv(most_bytes)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise RunError(f"{what} broke: {error.strerror}") from error
    if not data:
        raise RunError(f"{what} was closed at the other end")
    return len(data)


class Listeners:
    """The listening ports of one host, for all its jobs."""

    def __init__(self, loop: RealTimeLoop, ipv4: str, window_bytes: int, sockets: ExitStack) -> None:
        self._loop = loop
        self._closing = sockets
        self._ipv4 = ipv4
        self._window_bytes = window_bytes
        self._open: dict[int, socket.socket] = {}
        self._expected: dict[tuple[int, str, int], Callable[[socket.socket], None]] = {}

    def expect(self, port: int, peer: str, peer_port: int, accepted: Callable[[socket.socket], None]) -> None:
        """Call `accepted` with the connection to `port` that comes from that address."""
        self._expected[port, peer, peer_port] = accepted
        if port not in self._open:
            listener = self._open[port] = self._closing.enter_context(stream_socket())
            # Accepted connections inherit the buffer, from their first packet on.
            set_receive_buffer(listener, 2 * self._window_bytes)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, self._window_bytes)
            listener.bind((self._ipv4, port))
            listener.listen(1024)
            self._loop.on_readable(listener.fileno(), lambda: self._on_readable(port, listener))

    def _on_readable(self, port: int, listener: socket.socket) -> None:
        try:
            accepted, (peer, peer_port) = listener.accept()
        except BlockingIOError:
            return
        use = self._expected.pop((port, peer, peer_port), None)
        if use is None:
            accepted.close()  # nobody's
            return
        self._closing.enter_context(accepted)
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        use(accepted)


def stream_socket() -> socket.socket:
    """Return a non-blocking socket that may share its port with a listener and with connections to other places."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return made


class TcpSocketCarrier:
    """One job's flows at one host."""

    def __init__(
        self,
        loop: RealTimeLoop,
        listeners: Listeners,
        assignment: Assignment,
        job: Job,
        carriage: TcpCarriage,
        events: FlowEvents,
        sockets: ExitStack,
    ) -> None:
        self._loop = loop
        self._closing = sockets
        self._assignment = assignment
        self._job = job
        self._carriage = carriage
        self._events = events
        self._outgoing: dict[str, OutgoingConnection] = {}
        self._incoming: dict[str, IncomingConnection] = {}
        self._missing = 0
        self._connected: Callable[[], None] | None = None
        host, addresses = assignment.host, assignment.addresses
        self._destinations = []
        for (src, dst), flows in connections(job).items():
            if src == host:
                self._destinations.append(dst)
            elif dst == host:
                self._missing += 1
                listeners.expect(
                    carriage.destination_port, addresses[src], carriage.source_port, self._accept(src, flows)
                )
        self._missing += len(self._destinations)

    def connect(self, connected: Callable[[], None]) -> None:
        """Connect, and call `connected` when all connections are open. Raises `RunError`."""
        self._connected = connected
        for dst in self._destinations:
            self._connect(dst)
        self._count(0)

    def send(self, flow: Flow, iteration: int) -> None:
        self._outgoing[flow.dst].send(flow, iteration)

    @property
    def counts(self) -> HostPacketCounts:
        each = [connection.counts for connection in self._outgoing.values()]
        return HostPacketCounts(sum(one.reordered for one in each), sum(one.retransmitted for one in each))

    def _accept(self, src: str, flows: tuple[Flow, ...]) -> Callable[[socket.socket], None]:
        def accepted(sock: socket.socket) -> None:
            self._incoming[src] = IncomingConnection(self._loop, self._job.name, src, sock, flows, self._events)
            self._count(1)

        return accepted

    def _connect(self, dst: str) -> None:
        addresses, carriage = self._assignment.addresses, self._carriage
        sock = self._closing.enter_context(stream_socket())
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", self._assignment.rate_bps // 8))
        connection = self._outgoing[dst] = OutgoingConnection(self._loop, self._job.name, dst, sock, self._events)

        def on_writable() -> None:
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise RunError(f"{what}: {os.strerror(error)}")
            self._loop.on_writable(sock.fileno(), None)
            connection.begin()
            self._count(1)

        what = (
            f"job {self._job.name}: {self._assignment.host} cannot connect port {carriage.source_port} to port "
            f"{carriage.destination_port} of {dst}"
        )
        try:
            sock.bind((addresses[self._assignment.host], carriage.source_port))
            sock.connect((addresses[dst], carriage.destination_port))
        except BlockingIOError:
            pass
        except OSError as error:
            raise RunError(f"{what}: {error.strerror}") from error
        self._loop.on_writable(sock.fileno(), on_writable)

    def _count(self, established: int) -> None:
        self._missing -= established
        if not self._missing and self._connected is not None:
            connected, self._connected = self._connected, None
            connected()


SocketCarrier = ShimSocketCarrier | TcpSocketCarrier
"""One job's flows at one host. First open, then connect when all hosts are open, then send. Flows to the same host
follow each other in the order of their starts."""


def tcp_carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, TcpCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, TcpSocketCarrier]:
    """Open the host's sockets for all jobs that use them. `sockets` closes them, and those that are opened later."""
    if assignment.ecn:
        # The setting of this host's namespace. Whoever accepts a connection that asks for ECN agrees.
        _ECN.write_text("1", encoding="ascii")
    listeners = Listeners(loop, assignment.addresses[assignment.host], assignment.tcp_window_bytes, sockets)
    return {
        name: TcpSocketCarrier(loop, listeners, assignment, job, carriage, events, sockets)
        for name, (job, carriage, events) in jobs.items()
    }


_HEADERS_BYTES = 42


class ConstantRateSender:
    """An open-loop sender: packet n leaves n packet times after the first. A late packet does not delay the others."""

    def __init__(self, loop: RealTimeLoop, assignment: Assignment, traffic: ConstantRate, sockets: ExitStack) -> None:
        self._loop = loop
        self._traffic = traffic
        self._payload = bytes(traffic.packet_bytes - _HEADERS_BYTES)
        self._sent = 0
        self._origin_ns = 0
        self._socket = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        self._socket.bind((assignment.addresses[assignment.host], traffic.source_port))
        self._destination = (assignment.addresses[traffic.dst], DISCARD_PORT)

    def start(self, at_ns: int) -> None:
        self._origin_ns = at_ns
        self._loop.at(at_ns, self._send)

    def _send(self) -> None:
        self._socket.sendto(self._payload, self._destination)
        self._sent += 1
        bits = self._sent * self._traffic.packet_bytes * 8
        self._loop.at(self._origin_ns + bits * _NS_PER_S // self._traffic.rate_bps, self._send)


class Discard:
    """The discard port of a host: packets are neither looked at nor refused."""

    def __init__(self, assignment: Assignment, sockets: ExitStack) -> None:
        receiving = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiving.bind((assignment.addresses[assignment.host], DISCARD_PORT))
