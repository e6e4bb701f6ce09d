"""The shim's sockets of one host in Python: the transport of virtual hosts, over UDP.

The kernel makes the headers before the shim and takes them off again.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from echelon.model.jobs.graph import Flow, Job
from echelon.switches.processes import (
    ECT0,
    IP_MTU_DISCOVER,
    IP_PMTUDISC_DO,
    SO_NO_CHECK,
    set_receive_buffer,
)
from echelon_lab.endhosts.agreement import Agreement, FlowUrgency, SentBytes
from echelon_lab.endhosts.ranks import CONTROL, HostRanks
from echelon_lab.endhosts.shim import (
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
from echelon_lab.endhosts.transport import (
    FlowEnds,
    FlowReceiver,
    FlowSender,
    StreamPlace,
)
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers.messages import Assignment, ShimCarriage
from echelon_lab.hosts.workers.sockets import FlowEvents, HostPacketCounts

_CONNECTION_PORTS = 0xC000
_INT = struct.Struct("=i")
_NS_PER_S = 1_000_000_000
_RECEIVE_BATCH = 64
"""Packets taken in a row before timers have their turn."""
_RECEIVE_BUFFER_BYTES = 4 << 20


def connection_port(job: int) -> int:
    """Return the port from which all packets of a job leave, by its number."""
    return _CONNECTION_PORTS | job & 0x3FFF


def outgoing(
    ipv4: str,
    port: int,
    sockets: ExitStack,
) -> socket.socket:
    """Return a socket that sends from a port."""
    sender = sockets.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    # Switches change the shim, which a checksum would cover.
    sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
    sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    sender.bind((ipv4, port))
    return sender


def incoming(ipv4: str, sockets: ExitStack) -> socket.socket:
    """Return the socket that takes all packets for this host."""
    receiving = sockets.enter_context(
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    )
    set_receive_buffer(receiving, _RECEIVE_BUFFER_BYTES)
    receiving.bind((ipv4, SHIM_PORT))
    return receiving


class Datagram(NamedTuple):
    """A UDP payload, the port that it leaves from, and the host that it goes to."""

    source_port: int
    destination: str
    payload: bytes
    code_point: int = 0

    @property
    def frame_bytes(self) -> int:
        """Length on the wire, with all headers."""
        return len(self.payload) + SHIM_AT


class PacedSockets:
    """A sender of datagrams from the sockets of their source ports.

    It sends at no more than `rate_bps` of frames. In real time a call may come late. Datagrams that
    wait then catch up, in the order in which they came.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        ipv4: str,
        rate_bps: int,
        sockets: ExitStack,
    ) -> None:
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
            self._loop.call_at(self._free_ns, self._resume)
            return
        self._free_ns = now_ns + self._time_ns(datagram)
        self._transmit(datagram)

    def _resume(self) -> None:
        now_ns = self._loop.now_ns
        while self._waiting and self._free_ns <= now_ns:
            datagram = self._waiting.popleft()
            # From when it was due, not from now, so that a late call catches up.
            self._free_ns += self._time_ns(datagram)
            self._transmit(datagram)
        if self._waiting:
            self._loop.call_at(self._free_ns, self._resume)

    def _time_ns(self, datagram: Datagram) -> int:
        return -(-datagram.frame_bytes * 8 * _NS_PER_S // self._rate_bps)

    def _transmit(self, datagram: Datagram) -> None:
        port = datagram.source_port
        sender = self._sockets.get(port)
        if sender is None:
            sender = outgoing(self._ipv4, port, self._closing)
            self._sockets[port] = sender
        ancillary = []
        if datagram.code_point:
            type_of_service = _INT.pack(datagram.code_point << 2 | ECT0)
            ancillary.append((socket.IPPROTO_IP, socket.IP_TOS, type_of_service))
        sender.sendmsg([datagram.payload], ancillary, 0, (datagram.destination, SHIM_PORT))


class ShimSockets:
    """The shim's sockets of one host, for all its jobs."""

    def __init__(
        self,
        loop: RealTimeLoop,
        assignment: Assignment,
        sockets: ExitStack,
    ) -> None:
        self.loop = loop
        self.assignment = assignment
        self.arrived_ns = 0
        """Arrival time of the packet that is being processed."""
        self.flows = FlowEnds(assignment.host, loop)
        """Ends of the flows here."""
        rules = assignment.rules
        if rules is None:
            self.ranks = None
        else:
            self.ranks = HostRanks(assignment.host, rules)
        """The ranks of the packets that the host sends; None: switches rank."""
        self.agreement = Agreement(loop)
        self.sent = SentBytes()
        """The host's knowledge about the iterations of its jobs."""
        ipv4 = assignment.addresses[assignment.host]
        self.outgoing = PacedSockets(loop, ipv4, assignment.rate_bps, sockets)
        self._carriers: dict[int, ShimSocketCarrier] = {}
        self.incoming = incoming(ipv4, sockets)
        """The socket that takes all packets for this host."""
        loop.on_readable(self.incoming.fileno(), self._on_readable)

    def attach(self, number: int, carrier: ShimSocketCarrier) -> None:
        """Ask `carrier` for a receiver when a flow of the job with that number arrives."""
        self._carriers[number] = carrier

    def _on_readable(self) -> None:
        # A batch, after which the loop serves its timers before it reads on.
        for _ in range(_RECEIVE_BATCH):
            try:
                payload = self.incoming.recv(1 << 16)
            except BlockingIOError:
                return
            parts = read_payload(payload)
            if parts is not None:
                self._deliver(*parts)

    def _deliver(
        self,
        key: bytes,
        segment: DataSegment | AckSegment,
        stamp: bytes,
    ) -> None:
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

    def __init__(
        self,
        sockets: ShimSockets,
        job: Job,
        carriage: ShimCarriage,
        events: FlowEvents,
    ) -> None:
        self.sockets = sockets
        """The host's sockets, which its jobs share."""
        self._job = job
        self._events = events
        self._tally = PacketTally()
        self._number = carriage.number
        self._numbers = carriage.flows
        self._port = connection_port(carriage.number)
        host = sockets.assignment.host
        self._arriving = {}
        for flow in job.flows:
            if flow.dst == host:
                self._arriving[carriage.flows[flow.name]] = flow
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
        destination = assignment.addresses[flow.dst]
        payloads = ShimPayloads(key)
        windows = assignment.flow_windows[self._job.name, flow.name]
        window = windows.single
        urgency = place = None
        ranking = assignment.stream_rankings.get((self._job.name, flow.name))
        if ranking is not None:
            now_ns = self.sockets.loop.now_ns
            urgency = FlowUrgency(
                self.sockets.agreement, self.sockets.sent, key, ranking, now_ns, flow.size_bytes
            )
            window = windows.shared
            place = StreamPlace((self._number, flow.dst), window, windows.initial, urgency)

        def transmit(segment: DataSegment) -> None:
            stamp = self.sockets.agreement.stamp(key)
            code_point = 0
            ranks = self.sockets.ranks
            if ranks is not None:
                code_point, stamp = ranks.mark(self.sockets.loop.now_ns, key, segment, stamp)
            datagram = Datagram(self._port, destination, payloads.data(segment, stamp), code_point)
            self.sockets.outgoing.send(datagram)
            if urgency is not None:
                urgency.sent(segment)

        sender = FlowSender(
            flow.size_bytes,
            assignment.packet_bytes,
            window,
            assignment.retransmit_after_ns,
            self._tally,
            initial=windows.initial,
            shares=place is not None,
        )
        description = (
            f"job {self._job.name}: flow {flow.name} from {flow.src} to"
            f" {flow.dst} in iteration {iteration}"
        )
        on_sent = partial(self._events.sent, flow.name)
        self._events.started(flow.name, iteration, self.sockets.loop.now_ns)
        self.sockets.flows.send(key, sender, transmit, description, on_sent, place=place)

    def expect(self, key: bytes) -> None:
        """Expect a flow in the iteration of `key`, whose first packet has come, if that can be."""
        flow = self._arriving.get(int.from_bytes(key[3:5], "big"))
        if flow is None:
            return
        current = self._events.iteration()
        # A host may be one iteration ahead. A packet has only the iteration's last byte.
        for iteration in (current, current + 1):
            if iteration and iteration % 256 == key[0]:
                self._receive(key, flow, iteration)

    def _receive(
        self,
        key: bytes,
        flow: Flow,
        iteration: int,
    ) -> None:
        assignment = self.sockets.assignment
        source = assignment.addresses[flow.src]
        payloads = ShimPayloads(key)

        def acknowledge(segment: AckSegment) -> None:
            payload = payloads.ack(segment, self.sockets.agreement.stamp(key))
            code_point = 0
            if self.sockets.ranks is not None:
                code_point = CONTROL
            self.sockets.outgoing.send(Datagram(self._port, source, payload, code_point))

        def on_complete() -> None:
            self._events.received(flow.name, iteration, self.sockets.arrived_ns)

        windows = assignment.flow_windows[self._job.name, flow.name]
        window = windows.single
        stream = None
        if (self._job.name, flow.name) in assignment.stream_rankings:
            window = windows.shared
            stream = self._number, flow.src
        receiver = FlowReceiver(
            flow.size_bytes,
            assignment.packet_bytes,
            window,
            self._tally,
            every=assignment.windows.together,
        )
        self.sockets.flows.receive(key, receiver, acknowledge, on_complete, stream)


def python_carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, ShimCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, ShimSocketCarrier]:
    """Open the host's sockets for all jobs that use them.

    `sockets` closes them, and those that are opened later.
    """
    shared = ShimSockets(loop, assignment, sockets)
    carriers = {}
    for name, (job, carriage, events) in jobs.items():
        carriers[name] = ShimSocketCarrier(shared, job, carriage, events)
    return carriers
