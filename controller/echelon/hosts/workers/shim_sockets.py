"""Flows with the shim header over UDP sockets: the transport of the virtual hosts, on real ones.

The transport makes and takes Ethernet frames. Of what it sends, the kernel makes the first three headers itself; before
what comes, a prefix that says as much as the transport looks at takes their place.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from ipaddress import IPv4Address
from typing import NamedTuple

from echelon.endhosts.host_stack import HostStack
from echelon.endhosts.shim import (
    ACK,
    HEADER_BYTES,
    SHIM_FLAGS_AT,
    SHIM_KEY,
    SHIM_PORT,
    AckFrames,
    DataFrames,
    FlowAddress,
    flow_key,
    headers,
)
from echelon.endhosts.transport import Receiver, Sender, Tally
from echelon.hosts.loop import RealTimeLoop
from echelon.hosts.workers.assignment import Assignment, ShimCarriage
from echelon.hosts.workers.carriers import FlowEvents, PacketCounts
from echelon.hosts.workers.socket_options import (
    ECT0,
    IP_MTU_DISCOVER,
    IP_PMTUDISC_DO,
    SO_NO_CHECK,
    set_receive_buffer,
)
from echelon.jobs.graph import Flow, Job

_UDP_PAYLOAD_AT = 42
_SHIM_BYTES = HEADER_BYTES - _UDP_PAYLOAD_AT
_CONNECTION_PORTS = 0xC000
_NO_MAC = "00:00:00:00:00:00"
_NS_PER_S = 1_000_000_000
_RECEIVE_BATCH = 64
"""So many packets are taken before timers have their turn."""
_RECEIVE_BUFFER_BYTES = 4 << 20


class _Sending(NamedTuple):
    sender: Sender
    done: Callable[[], None]


class PacedSockets:
    """Sends UDP payloads of frames, from the frames' source ports, at no more than `rate_bps` of frames.

    In real time a call may come late: frames that wait then catch up, in the order in which they came.
    """

    def __init__(self, loop: RealTimeLoop, ipv4: str, rate_bps: int, sockets: ExitStack) -> None:
        self._loop = loop
        self._closing = sockets
        self._ipv4 = ipv4
        self._rate_bps = rate_bps
        self._sockets: dict[bytes, socket.socket] = {}
        self._destinations: dict[bytes, tuple[str, int]] = {}
        self._waiting: deque[bytes] = deque()
        self._free_ns = 0

    def send(self, data: bytes, /) -> None:
        """Send a frame when the frames before have had their time."""
        if self._waiting:
            self._waiting.append(data)
            return
        now_ns = self._loop.now_ns
        if now_ns < self._free_ns:
            self._waiting.append(data)
            self._loop.at(self._free_ns, self._resume)
            return
        self._free_ns = now_ns + self._time_ns(data)
        self._transmit(data)

    def _resume(self) -> None:
        now_ns = self._loop.now_ns
        while self._waiting and self._free_ns <= now_ns:
            data = self._waiting.popleft()
            self._free_ns += self._time_ns(data)
            self._transmit(data)
        if self._waiting:
            self._loop.at(self._free_ns, self._resume)

    def _time_ns(self, data: bytes) -> int:
        return -(-len(data) * 8 * _NS_PER_S // self._rate_bps)

    def _transmit(self, data: bytes) -> None:
        port = data[34:36]
        sender = self._sockets.get(port)
        if sender is None:
            sender = self._sockets[port] = self._open(int.from_bytes(port, "big"))
        address = data[30:34]
        destination = self._destinations.get(address)
        if destination is None:
            destination = self._destinations[address] = (str(IPv4Address(address)), SHIM_PORT)
        sender.sendto(memoryview(data)[_UDP_PAYLOAD_AT:], destination)

    def _open(self, port: int) -> socket.socket:
        sender = self._closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        # Switches change the shim, which a checksum would cover.
        sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.bind((self._ipv4, port))
        return sender


class ShimEndpoint:
    """The shim's sockets of one host, for all its jobs."""

    def __init__(self, loop: RealTimeLoop, assignment: Assignment, sockets: ExitStack) -> None:
        self.loop = loop
        self.assignment = assignment
        self.arrived_ns = 0
        """When the packet came that is being looked at."""
        ipv4 = assignment.addresses[assignment.host]
        self._stack = HostStack(assignment.host, loop, PacedSockets(loop, ipv4, assignment.rate_bps, sockets))
        self._carriers: dict[int, ShimCarrier] = {}
        self._sending: dict[bytes, _Sending] = {}
        self._expected: dict[bytes, bytes] = {}
        """By job and flow: the key of the iteration that has come last."""
        self._prefixes: dict[int, bytes] = {}
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket = sockets.enter_context(receiving)
        set_receive_buffer(self._socket, _RECEIVE_BUFFER_BYTES)
        self._socket.bind((ipv4, SHIM_PORT))
        loop.on_readable(self._socket.fileno(), self._on_readable)

    def attach(self, number: int, carrier: ShimCarrier) -> None:
        """What comes with that number of a job is the carrier's."""
        self._carriers[number] = carrier

    def send(self, key: bytes, sender: Sender, what: str, done: Callable[[], None]) -> None:
        """`done` is called when all is acknowledged."""
        self._sending[key] = _Sending(sender, done)
        self._stack.send(key, sender, what)

    def receive(self, key: bytes, receiver: Receiver, on_complete: Callable[[], None]) -> None:
        self._expected[key[1:]] = key
        self._stack.receive(key, receiver, on_complete)

    def _on_readable(self) -> None:
        for _ in range(_RECEIVE_BATCH):
            try:
                payload = self._socket.recv(1 << 16)
            except BlockingIOError:
                return
            if len(payload) < _SHIM_BYTES:
                self._stack.unknown_packets += 1
                continue
            self._deliver(self._prefix(len(payload)) + payload)

    def _deliver(self, frame: bytes) -> None:
        key = frame[SHIM_KEY]
        now_ns = self.arrived_ns = self.loop.now_ns
        if not frame[SHIM_FLAGS_AT] & ACK:
            if self._expected.get(key[1:]) != key:
                carrier = self._carriers.get(int.from_bytes(key[1:3], "big"))
                if carrier is not None:
                    carrier.expect(key)
            self._stack.deliver(now_ns, frame)
            return
        self._stack.deliver(now_ns, frame)
        sending = self._sending.get(key)
        if sending is not None and sending.sender.finished:
            del self._sending[key]
            sending.done()

    def _prefix(self, payload_bytes: int) -> bytes:
        prefix = self._prefixes.get(payload_bytes)
        if prefix is None:
            nowhere = FlowAddress(_NO_MAC, _NO_MAC, "0.0.0.0", "0.0.0.0", 0)
            prefix = self._prefixes[payload_bytes] = headers(nowhere, _UDP_PAYLOAD_AT + payload_bytes)
        return prefix


class ShimCarrier:
    """One job's flows at one host. There is nothing to connect."""

    def __init__(self, endpoint: ShimEndpoint, job: Job, carriage: ShimCarriage, events: FlowEvents) -> None:
        self._endpoint = endpoint
        self._job = job
        self._events = events
        self._tally = Tally()
        assignment = endpoint.assignment
        host, addresses = assignment.host, assignment.addresses
        port = _CONNECTION_PORTS | carriage.number & 0x3FFF
        self._addresses = {
            flow.name: FlowAddress(
                _NO_MAC,
                _NO_MAC,
                addresses[flow.src],
                addresses[flow.dst],
                port,
                carriage.number,
                carriage.flows[flow.name],
            )
            for flow in job.flows
            if host in (flow.src, flow.dst)
        }
        self._arriving = {carriage.flows[flow.name]: flow for flow in job.flows if flow.dst == host}
        endpoint.attach(carriage.number, self)

    def connect(self, connected: Callable[[], None]) -> None:
        connected()

    @property
    def counts(self) -> PacketCounts:
        return PacketCounts(self._tally.reordered, self._tally.retransmitted)

    def send(self, flow: Flow, iteration: int) -> None:
        assignment, address = self._endpoint.assignment, self._addresses[flow.name]
        epoch = iteration % 256
        frames = DataFrames(address, epoch, assignment.packet_bytes)
        sender = Sender(
            frames,
            flow.size_bytes,
            assignment.window_packets,
            assignment.retransmit_after_ns,
            self._tally,
            initial=assignment.initial_window_packets,
        )
        what = f"job {self._job.name}: flow {flow.name} from {flow.src} to {flow.dst} in iteration {iteration}"
        self._events.started(flow.name, iteration, self._endpoint.loop.now_ns)
        self._endpoint.send(
            flow_key(epoch, address.job, address.flow), sender, what, partial(self._events.sent, flow.name)
        )

    def expect(self, key: bytes) -> None:
        """The first packet of a flow in an iteration has come. One that cannot be is left to be counted as unknown."""
        flow = self._arriving.get(int.from_bytes(key[3:5], "big"))
        current = self._events.iteration()
        for iteration in (current, current + 1):
            if flow is not None and iteration % 256 == key[0] and iteration:
                self._receive(key, flow, iteration)

    def _receive(self, key: bytes, flow: Flow, iteration: int) -> None:
        assignment = self._endpoint.assignment
        receiver = Receiver(
            AckFrames(self._addresses[flow.name], key[0]),
            flow.size_bytes,
            assignment.packet_bytes,
            assignment.window_packets,
            self._tally,
        )

        def on_complete() -> None:
            self._events.received(flow.name, iteration, self._endpoint.arrived_ns)

        self._endpoint.receive(key, receiver, on_complete)


def carriers(
    loop: RealTimeLoop,
    assignment: Assignment,
    jobs: Mapping[str, tuple[Job, ShimCarriage, FlowEvents]],
    sockets: ExitStack,
) -> Mapping[str, ShimCarrier]:
    """Open the host's sockets, for all jobs that use them; `sockets` closes them, and those that are opened later."""
    endpoint = ShimEndpoint(loop, assignment, sockets)
    return {name: ShimCarrier(endpoint, job, carriage, events) for name, (job, carriage, events) in jobs.items()}
