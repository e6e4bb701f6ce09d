"""The sockets that carry flows from host to host.

Flows with the shim header go over UDP sockets: it is the transport of the virtual hosts, on real
ones, and the kernel makes the headers before the shim and takes them off again. Other flows go over
the kernel's TCP. Traffic of constant rate that no job claims goes over plain UDP to the discard
port (RFC 863).
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from echelon.model.errors import RunError
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Flow, Job
from echelon.switches.processes import (
    ECT0,
    SO_MAX_PACING_RATE,
    TCP_NOTSENT_LOWAT,
    set_receive_buffer,
)
from echelon_lab.endhosts.shim import (
    DISCARD_PORT,
)
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers.messages import Assignment, ConstantRate, TcpCarriage


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
    """The callback for the last byte of a flow: (flow, iteration, time in ns).

    It comes before the sender can be told.
    """
    iteration: Callable[[], int]
    """Returns the iteration that this host has begun last. Other hosts are there, or one ahead."""


_CHUNK = bytes(64 << 10)
_RECEIPT = b"."
_UNSENT_BYTES = 16 << 10
"""Bytes that wait in the kernel.

The rest waits here, so that a flow starts when its first byte leaves.
"""
_SILENCE_MS = 60_000
"""Time without an acknowledgement after which the connection is given up."""
# Places in struct tcp_info.
_INFO_BYTES = 232
_TOTAL_RETRANSMITS_AT = 100
_REORDERINGS_SEEN_AT = 220
_ECN = Path("/proc/sys/net/ipv4/tcp_ecn")
_U32 = struct.Struct("=I")


@dataclass(slots=True)
class _Outgoing:
    """A flow on its way into the connection."""

    flow: str
    iteration: int
    left_bytes: int
    started: bool = False


class OutgoingConnection:
    """The connection for flows to one host.

    Flows follow each other on their connection. Their sizes tell where one ends, as they do for
    switches. The receiver answers the last byte of a flow with one byte. It tells the sender what
    an acknowledgement of its transport would, if that could be seen.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        job: str,
        dst: str,
        sock: socket.socket,
        events: FlowEvents,
    ) -> None:
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
            # Mostly there is room, and the first bytes need not wait for the loop.
            self._on_writable()

    @property
    def counts(self) -> HostPacketCounts:
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)

        def field(place: int) -> int:
            # An older kernel has fewer fields.
            if len(info) >= place + _U32.size:
                return int(_U32.unpack_from(info, place)[0])
            return 0

        return HostPacketCounts(field(_REORDERINGS_SEEN_AT), field(_TOTAL_RETRANSMITS_AT))

    def _on_writable(self) -> None:
        while self._flows:
            head = self._flows[0]
            # Read before the bytes leave: they may arrive before `send` returns.
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
    """The connection for flows from one host.

    `flows` is what arrives in every iteration, in that order.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        job: str,
        src: str,
        sock: socket.socket,
        flows: tuple[Flow, ...],
        events: FlowEvents,
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
        # One read may hold the ends of several flows.
        while count >= self._left_bytes:
            count -= self._left_bytes
            flow = self._flows[self._index]
            iteration = self._iteration
            self._index += 1
            if self._index == len(self._flows):
                self._index = 0
                self._iteration += 1
            self._left_bytes = self._flows[self._index].size_bytes
            self._socket.send(_RECEIPT)
            self._events.received(flow.name, iteration, now_ns)
        self._left_bytes -= count


def _receive(
    sock: socket.socket,
    connection: str,
    most_bytes: int,
) -> int:
    """Return how many bytes arrived. Raises `RunError` when the other end is gone."""
    try:
        data = sock.recv(most_bytes)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise RunError(f"{connection} broke: {error.strerror}") from error
    if not data:
        raise RunError(f"{connection} was closed at the other end")
    return len(data)


class Listeners:
    """The listening ports of one host, for all its jobs."""

    def __init__(
        self,
        loop: RealTimeLoop,
        ipv4: str,
        window_bytes: int,
        sockets: ExitStack,
    ) -> None:
        self._loop = loop
        self._closing = sockets
        self._ipv4 = ipv4
        self._window_bytes = window_bytes
        self._open: dict[int, socket.socket] = {}
        self._expected: dict[tuple[int, str, int], Callable[[socket.socket], None]] = {}

    def expect(
        self,
        port: int,
        peer: str,
        peer_port: int,
        accepted: Callable[[socket.socket], None],
    ) -> None:
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
    """Return a non-blocking socket that may share its port with other sockets.

    Those are a listener, and connections to other places.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return sock


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
        host = assignment.host
        addresses = assignment.addresses
        self._destinations = []
        for (src, dst), flows in connections(job).items():
            if src == host:
                self._destinations.append(dst)
            elif dst == host:
                self._missing += 1
                listeners.expect(
                    carriage.destination_port,
                    addresses[src],
                    carriage.source_port,
                    self._accept(src, flows),
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
        reordered = retransmitted = 0
        for connection in self._outgoing.values():
            counts = connection.counts
            reordered += counts.reordered
            retransmitted += counts.retransmitted
        return HostPacketCounts(reordered, retransmitted)

    def _accept(self, src: str, flows: tuple[Flow, ...]) -> Callable[[socket.socket], None]:
        def accepted(sock: socket.socket) -> None:
            self._incoming[src] = IncomingConnection(
                self._loop, self._job.name, src, sock, flows, self._events
            )
            self._count(1)

        return accepted

    def _connect(self, dst: str) -> None:
        addresses = self._assignment.addresses
        carriage = self._carriage
        sock = self._closing.enter_context(stream_socket())
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        sock.setsockopt(
            socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("=Q", self._assignment.rate_bps // 8)
        )
        connection = self._outgoing[dst] = OutgoingConnection(
            self._loop, self._job.name, dst, sock, self._events
        )

        def on_writable() -> None:
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise RunError(f"{problem}: {os.strerror(error)}")
            self._loop.on_writable(sock.fileno(), None)
            connection.begin()
            self._count(1)

        problem = (
            f"job {self._job.name}: {self._assignment.host} cannot connect port"
            f" {carriage.source_port} to port {carriage.destination_port} of {dst}"
        )
        try:
            sock.bind((addresses[self._assignment.host], carriage.source_port))
            sock.connect((addresses[dst], carriage.destination_port))
        except BlockingIOError:
            pass
        except OSError as error:
            raise RunError(f"{problem}: {error.strerror}") from error
        self._loop.on_writable(sock.fileno(), on_writable)

    def _count(self, established: int) -> None:
        self._missing -= established
        if not self._missing and self._connected is not None:
            connected = self._connected
            self._connected = None
            connected()


def tcp_carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, TcpCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, TcpSocketCarrier]:
    """Open the host's sockets for all jobs that use them.

    `sockets` closes them, and those that are opened later.
    """
    if assignment.ecn:
        # The setting of this host's namespace.
        # Whoever accepts a connection that asks for ECN agrees.
        _ECN.write_text("1", encoding="ascii")
    listeners = Listeners(
        loop, assignment.addresses[assignment.host], assignment.tcp_window_bytes, sockets
    )
    carriers = {}
    for name, (job, carriage, events) in jobs.items():
        carriers[name] = TcpSocketCarrier(
            loop, listeners, assignment, job, carriage, events, sockets
        )
    return carriers


_HEADERS_BYTES = 42
_NS_PER_S = 1_000_000_000


class ConstantRateSender:
    """An open-loop sender: packet n leaves n packet times after the first.

    A late packet does not delay the others.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        assignment: Assignment,
        traffic: ConstantRate,
        sockets: ExitStack,
    ) -> None:
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
        self._loop.call_at(at_ns, self._send)

    def _send(self) -> None:
        self._socket.sendto(self._payload, self._destination)
        self._sent += 1
        bits = self._sent * self._traffic.packet_bytes * 8
        self._loop.call_at(self._origin_ns + bits * _NS_PER_S // self._traffic.rate_bps, self._send)


class Discard:
    """The discard port of a host: packets are neither looked at nor refused."""

    def __init__(self, assignment: Assignment, sockets: ExitStack) -> None:
        receiving = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        receiving.bind((assignment.addresses[assignment.host], DISCARD_PORT))
