"""How a job's flows get from host to host: over the shim's own transport, or over TCP connections that stay open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from echelon.endhosts.host_stack import NS_PER_S, Clock, HostStack
from echelon.endhosts.shim import MAX_REMAINING, AckFrames, DataFrames, FlowAddress, flow_key
from echelon.endhosts.tcp import sender as tcp
from echelon.endhosts.tcp.frames import TcpAddress
from echelon.endhosts.tcp.stack import Connection
from echelon.endhosts.transport import Receiver, Sender, Tally
from echelon.fabric.model import Fabric
from echelon.jobs.analysis import connections
from echelon.jobs.graph import Flow, Job
from echelon.lowering.identity import SegmentIdentity
from echelon.scenarios.results import RunError

_SHIM_PORTS = 0xC000


class FlowNumbers(Protocol):
    """What the shim says of a flow (`echelon.lowering.identity.ShimIdentity` is one)."""

    @property
    def job(self) -> int: ...
    @property
    def flow(self) -> int: ...


class Sending(Protocol):
    """How hosts send (`echelon.scenarios.scenario.Transport` is one, and says what the numbers mean)."""

    @property
    def packet_bytes(self) -> int: ...
    @property
    def window_packets(self) -> int: ...
    @property
    def initial_window_packets(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Network:
    """Where flows are sent."""

    clock: Clock
    fabric: Fabric
    hosts: Mapping[str, HostStack]


class Carrier(Protocol):
    """Takes one job's flows to their destinations."""

    def open(self) -> None:
        """Before the first flow."""

    def start_flow(self, flow: Flow, iteration: int, on_complete: Callable[[], None]) -> None:
        """Send it now; `on_complete` is called when its last byte has arrived. Flows of an iteration start after all
        flows of the one before have arrived."""

    @property
    def reordered_packets(self) -> int: ...
    @property
    def retransmitted_packets(self) -> int: ...
    @property
    def duplicate_packets(self) -> int: ...


class ShimCarrier:
    """Each flow with a sender and a receiver of its own (`echelon.endhosts.transport`), and the shim in every packet.

    Raises `RunError` for a flow that is too long for the shim.
    """

    def __init__(
        self,
        network: Network,
        job: Job,
        numbers: Mapping[str, FlowNumbers],
        transport: Sending,
        retransmit_after_ns: int,
    ) -> None:
        for flow in job.flows:
            if flow.size_bytes > MAX_REMAINING:
                raise RunError(
                    f"job {job.name}: flow {flow.name} has {flow.size_bytes} bytes, but senders can count only "
                    f"{MAX_REMAINING} (make the job's data smaller)"
                )
        self._network = network
        self._job = job.name
        self._transport = transport
        self._retransmit_after_ns = retransmit_after_ns
        self._tally = Tally()
        self._addresses = {flow.name: self._address(flow, numbers[flow.name]) for flow in job.flows}

    @property
    def reordered_packets(self) -> int:
        return self._tally.reordered

    @property
    def retransmitted_packets(self) -> int:
        return self._tally.retransmitted

    @property
    def duplicate_packets(self) -> int:
        return self._tally.duplicate

    def open(self) -> None:
        """Nothing to do: there are no connections."""

    def start_flow(self, flow: Flow, iteration: int, on_complete: Callable[[], None]) -> None:
        address = self._addresses[flow.name]
        epoch = iteration % 256
        key = flow_key(epoch, address.job, address.flow)
        transport, tally = self._transport, self._tally
        packet_bytes, window = transport.packet_bytes, transport.window_packets
        frames = DataFrames(address, epoch, packet_bytes)
        sender = Sender(
            frames, flow.size_bytes, window, self._retransmit_after_ns, tally, initial=transport.initial_window_packets
        )
        receiver = Receiver(AckFrames(address, epoch), flow.size_bytes, packet_bytes, window, tally)
        hosts = self._network.hosts
        hosts[flow.dst].receive(key, receiver, on_complete)
        what = f"job {self._job}: flow {flow.name} from {flow.src} to {flow.dst} in iteration {iteration}"
        hosts[flow.src].send(key, sender, what)

    def _address(self, flow: Flow, numbers: FlowNumbers) -> FlowAddress:
        # One connection of a job is one 5-tuple, whatever the flow.
        port = _SHIM_PORTS | numbers.job & 0x3FFF
        source, destination = self._network.fabric.hosts[flow.src], self._network.fabric.hosts[flow.dst]
        address = FlowAddress(source.mac, destination.mac, source.ipv4, destination.ipv4, port)
        return replace(address, job=numbers.job, flow=numbers.flow)


class TcpCarrier:
    """One connection from each worker to each that it sends to, open from the beginning to the end.

    A connection carries its flows in the order of `echelon.jobs.analysis.connections`, the same in every iteration:
    that is how switches tell them apart. A flow that is ready before one that comes before it waits for that one's
    start.
    """

    def __init__(
        self, network: Network, job: Job, identities: Mapping[str, SegmentIdentity], settings: tcp.TcpSettings
    ) -> None:
        self._network = network
        self._job = job.name
        self._tally = tcp.Tally()
        self._lines: dict[str, _Line] = {}
        fabric = network.fabric
        for (src, dst), flows in connections(job).items():
            identity = identities[flows[0].name]
            source, destination = fabric.hosts[src], fabric.hosts[dst]
            address = TcpAddress(
                source.mac, destination.mac, source.ipv4, destination.ipv4, identity.src_port, identity.dst_port
            )
            connection = Connection(
                network.hosts[src].tcp,
                network.hosts[dst].tcp,
                address,
                settings,
                partial(self._on_lost, src, dst),
                self._tally,
            )
            line = _Line(connection, flows)
            self._lines |= dict.fromkeys((flow.name for flow in flows), line)

    @property
    def reordered_packets(self) -> int:
        return self._tally.reordered

    @property
    def retransmitted_packets(self) -> int:
        return self._tally.retransmitted

    @property
    def duplicate_packets(self) -> int:
        return self._tally.duplicate

    def open(self) -> None:
        """All connections are open at once: a job's are opened before its first iteration."""
        for line in dict.fromkeys(self._lines.values()):
            line.connection.establish()

    def start_flow(self, flow: Flow, _iteration: int, on_complete: Callable[[], None]) -> None:
        self._lines[flow.name].start(flow, on_complete)

    def _on_lost(self, src: str, dst: str) -> None:
        raise RunError(
            f"job {self._job}: connection from {src} to {dst}: nothing was acknowledged through {tcp.MAX_TIMEOUTS} "
            f"time-outs, the last at {self._network.clock.now_ns / NS_PER_S:.3f} s; is there a way from {src} to its "
            "destination and back, and is its queue ever served?"
        )


class _Line:
    """The flows of one connection, in their order."""

    __slots__ = ("_flows", "_ready", "_turn", "connection")

    def __init__(self, connection: Connection, flows: tuple[Flow, ...]) -> None:
        self.connection = connection
        self._flows = flows
        self._turn = 0
        self._ready: dict[str, Callable[[], None]] = {}

    def start(self, flow: Flow, on_complete: Callable[[], None]) -> None:
        self._ready[flow.name] = on_complete
        while (following := self._flows[self._turn]).name in self._ready:
            self._turn = (self._turn + 1) % len(self._flows)
            self.connection.write(following.size_bytes, self._ready.pop(following.name))
