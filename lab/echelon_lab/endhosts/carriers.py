"""The carriers of a job's flows from host to host.

They are the shim's own transport, or connections that stay open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from typing import Protocol

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.analysis import connections
from echelon.model.jobs.graph import Flow, FlowKey, Job
from echelon.planning.paths import Paths
from echelon.planning.rankings.base import Ranking
from echelon.planning.windows import FlowWindows, Windows, shares_window
from echelon.switches.lowering.identity import SegmentIdentity, ShimIdentity
from echelon.switches.lowering.trees import JobTree
from echelon.switches.targets.virtual import CONNECTION, Clock, Interfaces, Nic, Urgency
from echelon_lab.endhosts.agreement import (
    Agreement,
    FlowUrgency,
    SentBytes,
    acknowledgement_urgency,
)
from echelon_lab.endhosts.native import NativeEnds, NativeFlow, new_tally, tally_of
from echelon_lab.endhosts.ranks import CONTROL, HostRanks
from echelon_lab.endhosts.roce.frames import ROCE_PORT_BYTES, QueuePairAddress, packet_bytes
from echelon_lab.endhosts.roce.queue_pair import PairSettings
from echelon_lab.endhosts.roce.stack import PairConnection, RoceStack
from echelon_lab.endhosts.shim import (
    DISCARD_PORT_BYTES,
    HEADER_BYTES,
    MAX_REMAINING,
    UDP_DESTINATION,
    UDP_SOURCE,
    UNSTAMPED,
    AckSegment,
    DataSegment,
    FlowAddress,
    PacketTally,
    ShimFrames,
    flow_key,
    headers,
    read_frame,
    with_code_point,
)
from echelon_lab.endhosts.tcp.frames import TcpAddress
from echelon_lab.endhosts.tcp.native import NativeConnection, NativeTcp, TcpCounters
from echelon_lab.endhosts.tcp.native import tally_of as tcp_tally_of
from echelon_lab.endhosts.tcp.newreno import Aggressiveness
from echelon_lab.endhosts.tcp.sender import MAX_TIMEOUTS, TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection, TcpStack
from echelon_lab.endhosts.transport import (
    NS_PER_S,
    FlowEnds,
    FlowReceiver,
    FlowSender,
    StreamPlace,
)
from echelon_lab.scenarios.scenario import Congestion, Transport


class PacedNic:
    """A network interface that sends at no more than `rate_bps`."""

    def __init__(
        self,
        clock: Clock,
        nic: Nic,
        rate_bps: int,
    ) -> None:
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
            self._clock.call_at(start_ns, self._nic.send, data, urgency)


@dataclass(slots=True)
class BackgroundStats:
    """Packets of one background sender."""

    sent_packets: int = 0
    received_packets: int = 0


class HostStack:
    """The senders and receivers of one host. It takes the frames that arrive there."""

    __slots__ = (
        "_background",
        "agreement",
        "flows",
        "nic",
        "of_trees",
        "ranks",
        "roce",
        "sent",
        "tcp",
    )

    def __init__(
        self,
        host: str,
        clock: Clock,
        nic: Nic,
    ) -> None:
        self.nic = nic
        self.flows = FlowEnds(host, clock)
        """Ends of the flows with a shim."""
        self.agreement = Agreement(clock)
        """The host's knowledge about the iterations of those flows' jobs."""
        self.sent = SentBytes()
        """The bytes that those flows have sent."""
        self.ranks: HostRanks | None = None
        """The ranks of the flows that the host sends; None: switches rank."""
        self.tcp = TcpStack(clock, nic)
        """Ends of the TCP connections."""
        self.roce = RoceStack(clock, nic)
        """The queue pairs."""
        self._background: dict[bytes, BackgroundStats] = {}
        self.of_trees: dict[bytes, Callable[[int, bytes], None]] = {}
        """The receiver of the frames to each UDP port that flows over trees use."""

    @property
    def closed(self) -> bool:
        """Return whether the host is silent: it neither sends nor receives any more."""
        return self.tcp.closed

    def close(self) -> None:
        """Fall silent."""
        self.flows.closed = True
        self.tcp.closed = True
        self.roce.closed = True

    def count(self, src_port: bytes, stats: BackgroundStats) -> None:
        """Count background packets that arrive from `src_port` in `stats`."""
        self._background[src_port] = stats

    def deliver(self, now_ns: int, frame: bytes) -> None:
        """Take a frame that has arrived, or ignore it if it is for no receiver here."""
        if self.tcp.closed:
            return
        if self.of_trees and (receiver := self.of_trees.get(frame[UDP_DESTINATION])) is not None:
            receiver(now_ns, frame)
            return
        received = read_frame(frame)
        if received is not None:
            key, segment, stamp = received
            if stamp != UNSTAMPED:
                self.agreement.hear(key, stamp)
            self.flows.deliver(now_ns, key, segment)
        elif self.tcp.deliver(now_ns, frame):
            return
        elif (port := frame[UDP_DESTINATION]) == ROCE_PORT_BYTES:
            self.roce.deliver(now_ns, frame)
        elif port == DISCARD_PORT_BYTES:
            stats = self._background.get(frame[UDP_SOURCE])
            if stats is not None:
                stats.received_packets += 1


_SHIM_PORTS = 0xC000
_PAIR_PORTS = 0xC000
"""The first UDP source port for RoCE: the specification advises ports from 0xC000 on."""

RankingOf = Callable[[FlowKey], Ranking | None]
"""Returns the ranking that the newest plan gives a flow."""


@dataclass(frozen=True, slots=True)
class HostNetwork:
    """The hosts that flows go between, and the clock that they share."""

    clock: Clock
    fabric: Fabric
    hosts: Mapping[str, HostStack]
    interfaces: Mapping[str, Interfaces] = field(default_factory=dict)
    """Those of hosts with several."""
    ends: NativeEnds | None = None
    """The ends of flows with a shim, if they are in C."""
    tcp: NativeTcp | None = None
    """The ends of TCP connections, if they are in C."""

    def connect(
        self,
        between: tuple[str, str],
        ports: tuple[int, int],
        settings: TcpSettings,
        counters: TcpCounters,
        on_lost: Callable[[], None],
        on_gone: Callable[[], None] | None = None,
    ) -> Connection | NativeConnection:
        """Return a TCP connection between two hosts that is not open yet (`Connection`)."""
        if self.tcp is not None:
            return self.tcp.connect(between, ports, settings, counters, on_lost, on_gone)
        source, destination = (self.hosts[host].tcp for host in between)
        address = self.address(between, ports)
        return Connection(source, destination, address, settings, on_lost, counters, on_gone)

    def new_tcp_counters(self) -> TcpCounters:
        """Return counters for connections."""
        if self.tcp is None:
            return TcpTally()
        return self.tcp.new_counters()

    def has(self, between: tuple[str, str], ports: tuple[int, int]) -> bool:
        """Return whether there is a TCP connection between these ports of two hosts."""
        if self.tcp is not None:
            return self.tcp.has(between, ports)
        return self.hosts[between[1]].tcp.has(self.address(between, ports))

    def address(self, between: tuple[str, str], ports: tuple[int, int]) -> TcpAddress:
        """Return the address of a connection."""
        source = self.fabric.hosts[between[0]]
        destination = self.fabric.hosts[between[1]]
        return TcpAddress(source.mac, destination.mac, source.ipv4, destination.ipv4, *ports)

    def assign(
        self,
        path: Sequence[str],
        forward: bytes,
        back: bytes,
    ) -> None:
        """Send a connection, and what comes back, over the links that its path has at its hosts."""
        first, first_switch = path[:2]
        last_switch, last = path[-2:]
        self._assign(first, first_switch, forward)
        self._assign(last, last_switch, back)

    def _assign(
        self,
        host: str,
        switch: str,
        connection: bytes,
    ) -> None:
        if host in self.interfaces:
            self.interfaces[host].assign(connection, switch)


class ShimCarrier:
    """A carrier with a sender and a receiver for each flow, and the shim in every packet.

    If `ranking` tells the rankings of flows, a host sends acknowledgements first, and then its most
    urgent flows. Otherwise it sends packet by packet, as they come. `paths` are those of the flows
    in the plan, which say by which links of its hosts a flow goes, and its window if the transport
    leaves that open.

    Raises `RunError` for a flow that is too long for the shim.
    """

    def __init__(
        self,
        network: HostNetwork,
        job: Job,
        identities: Mapping[str, ShimIdentity],
        windows: Windows,
        retransmit_after_ns: int,
        *,
        paced: bool = False,
        ranking: RankingOf | None = None,
        paths: Paths | None = None,
    ) -> None:
        for flow in job.flows:
            if flow.size_bytes > MAX_REMAINING:
                raise RunError(
                    f"job {job.name}: flow {flow.name} has {flow.size_bytes} bytes, but senders can"
                    f" count only {MAX_REMAINING} (make the job's data smaller)"
                )
        self._tally = PacketTally()
        self._network = network
        self._job = job.name
        self._windows = windows
        self._retransmit_after_ns = retransmit_after_ns
        self._paced = paced
        self._ranking = ranking
        paths = paths or {}
        fabric = network.fabric
        # Senders that are told their rates need no window to begin with.
        begins = paths
        if paced:
            begins = {}
        self._flow_windows: dict[str, FlowWindows] = {}
        for flow in job.flows:
            path = begins.get(flow.name)
            self._flow_windows[flow.name] = windows.on_path(path, fabric)
        self._keys: dict[str, tuple[str, bytes]] = {}
        """The source host and the key of each flow's last iteration."""
        self._addresses = {}
        for flow in job.flows:
            self._addresses[flow.name] = self._address(flow, identities[flow.name])
        if network.interfaces:
            for name, links in paths.items():
                address = self._addresses[name]
                forward = headers(address, HEADER_BYTES)[CONNECTION]
                back = headers(address.reversed(), HEADER_BYTES)[CONNECTION]
                network.assign(links, forward, back)
        self._native: dict[str, NativeFlow] = {}
        if network.ends is not None:
            self._counters = new_tally(network.ends)
            for flow in job.flows:
                self._native[flow.name] = self._in_c(network.ends, flow)

    @property
    def tally(self) -> PacketTally:
        """The counts of the job's packets."""
        if self._native:
            return tally_of(self._counters)
        return self._tally

    def open(self) -> None:
        """Do nothing, because there are no connections."""

    def start_flow(
        self,
        flow: Flow,
        iteration: int,
        on_complete: Callable[[], None],
    ) -> None:
        """Send a flow now; call `on_complete` when its last byte has arrived.

        Flows of an iteration start after all flows of the one before have arrived.
        """
        if self._ranking is None:
            ranking = None
        else:
            ranking = self._ranking((self._job, flow.name))
        if self._native:
            self._native[flow.name].start(iteration, on_complete, ranking)
            return
        address = self._addresses[flow.name]
        epoch = iteration % 256
        key = flow_key(epoch, address.job, address.flow)
        size_bytes = flow.size_bytes
        windows = self._windows
        packet_bytes = windows.packet_bytes
        frames = ShimFrames(address, epoch, packet_bytes)
        source = self._network.hosts[flow.src]
        destination = self._network.hosts[flow.dst]

        # Looked up once: these run for every packet.
        send = source.nic.send
        data = frames.data
        answer = destination.nic.send
        ack = frames.ack
        known_there = destination.agreement.stamp
        known_here = source.agreement.stamp

        urgency = answer_urgency = None
        if ranking is not None:
            now_ns = self._network.clock.now_ns
            urgency = FlowUrgency(source.agreement, source.sent, key, ranking, now_ns, size_bytes)
            answer_urgency = acknowledgement_urgency

        ranks = source.ranks
        clock = self._network.clock
        marks_answers = destination.ranks is not None

        def transmit(segment: DataSegment) -> None:
            stamp = known_here(key)
            if ranks is None:
                send(data(segment, stamp), urgency)
            else:
                code_point, stamp = ranks.mark(clock.now_ns, key, segment, stamp)
                send(with_code_point(data(segment, stamp), code_point), urgency)
            if urgency is not None:
                urgency.sent(segment)

        def acknowledge(segment: AckSegment) -> None:
            frame = ack(segment, known_there(key))
            if marks_answers:
                frame = with_code_point(frame, CONTROL)
            answer(frame, answer_urgency)

        flow_windows = self._flow_windows[flow.name]
        window = flow_windows.single
        place = arriving = None
        if urgency is not None and not self._paced and shares_window(ranking):
            window = flow_windows.shared
            place = StreamPlace((address.job, flow.dst), window, flow_windows.initial, urgency)
            arriving = address.job, flow.src

        receiver = FlowReceiver(
            size_bytes, packet_bytes, window, self._tally, every=windows.together
        )
        destination.flows.receive(key, receiver, acknowledge, on_complete, arriving)
        sender = FlowSender(
            size_bytes,
            packet_bytes,
            window,
            self._retransmit_after_ns,
            self._tally,
            initial=flow_windows.initial,
            shares=place is not None,
        )
        description = f"{self._described(flow)} in iteration {iteration}"
        self._keys[flow.name] = flow.src, key
        source.flows.send(key, sender, transmit, description, paced=self._paced, place=place)

    def pace(self, flow: str, rate_Bps: float | None) -> None:  # noqa: N803
        """Send a flow that is under way at this rate from now on.

        The rate is in bytes per second; None: no limit.
        """
        if self._native:
            self._native[flow].pace(rate_Bps)
        elif flow in self._keys:
            host, key = self._keys[flow]
            self._network.hosts[host].flows.pace(key, rate_Bps)

    def _described(self, flow: Flow) -> str:
        return f"job {self._job}: flow {flow.name} from {flow.src} to {flow.dst}"

    def _in_c(self, ends: NativeEnds, flow: Flow) -> NativeFlow:
        return NativeFlow(
            ends,
            description=self._described(flow),
            between=(flow.src, flow.dst),
            address=self._addresses[flow.name],
            size_bytes=flow.size_bytes,
            windows=self._windows,
            window=self._flow_windows[flow.name],
            retransmit_after_ns=self._retransmit_after_ns,
            tally=self._counters,
            is_paced=self._paced,
        )

    def _address(self, flow: Flow, identity: ShimIdentity) -> FlowAddress:
        # All connections of a job have one source port, whatever the flow.
        port = _SHIM_PORTS | identity.job & 0x3FFF
        source = self._network.fabric.hosts[flow.src]
        destination = self._network.fabric.hosts[flow.dst]
        return FlowAddress(
            src_mac=source.mac,
            dst_mac=destination.mac,
            src_ip=source.ipv4,
            dst_ip=destination.ipv4,
            src_port=port,
            job=identity.job,
            flow=identity.flow,
        )


class ConnectionCarrier:
    """A carrier with a connection, over TCP or RoCE, from each worker to each that it sends to.

    Connections are open from the beginning to the end.

    A connection carries its flows in the order of `echelon.model.jobs.analysis.connections`, the
    same in every iteration: that is how switches tell them apart. A flow that is ready before one
    that precedes it waits for that one's start. What has no place in `settings`, those of TCP, is
    in `transport`.
    """

    def __init__(
        self,
        network: HostNetwork,
        job: Job,
        identities: Mapping[str, SegmentIdentity],
        settings: TcpSettings,
        transport: Transport,
        windows: Windows,
        paths: Paths | None = None,
    ) -> None:
        is_roce = any(identity.mtu is not None for identity in identities.values())
        if is_roce:
            self._counters: TcpCounters = TcpTally()
        else:
            self._counters = network.new_tcp_counters()
        self._network = network
        self._job = job.name
        self._lines: dict[str, _Line] = {}
        fabric = network.fabric
        for (src, dst), flows in connections(job).items():
            identity = identities[flows[0].name]
            source = fabric.hosts[src]
            destination = fabric.hosts[dst]
            numbers = identity.src_port, identity.dst_port
            on_lost = partial(self._on_lost, src, dst)
            path = (paths or {}).get(flows[0].name)
            connection: Connection | NativeConnection | PairConnection
            if identity.mtu is None:
                address = network.address((src, dst), numbers)
                forward = address.key
                back = address.reversed().key
                settled = _with_congestion(settings, transport.congestion, flows)
                connection = network.connect((src, dst), numbers, settled, self._counters, on_lost)
            else:
                ends = source.mac, destination.mac, source.ipv4, destination.ipv4
                port = _PAIR_PORTS | sum(numbers) & 0x3FFF
                pair = QueuePairAddress(*ends, port, *numbers)
                forward = pair.connection
                back = pair.reversed().connection
                connection = PairConnection(
                    network.hosts[src].roce,
                    network.hosts[dst].roce,
                    pair,
                    _pair_settings(transport, identity.mtu, windows, path, fabric),
                    on_lost,
                    self._counters,
                )
            if path:
                network.assign(path, forward, back)
            line = _Line(connection, flows)
            for flow in flows:
                self._lines[flow.name] = line

    @property
    def tally(self) -> TcpTally:
        """Return the counts of the job's packets."""
        return tcp_tally_of(self._counters)

    def open(self) -> None:
        """Establish all connections at once, before the job's first iteration."""
        for line in dict.fromkeys(self._lines.values()):
            line.connection.establish()

    def start_flow(
        self,
        flow: Flow,
        _iteration: int,
        on_complete: Callable[[], None],
    ) -> None:
        """Send a flow now; call `on_complete` when its last byte has arrived."""
        self._lines[flow.name].start(flow, on_complete)

    def pace(self, _flow: str, _rate_Bps: float | None) -> None:  # noqa: N803
        """Do nothing: connections have the rate that their windows find."""

    def _on_lost(self, src: str, dst: str) -> None:
        raise RunError(
            f"job {self._job}: connection from {src} to {dst}: nothing was acknowledged through"
            f" {MAX_TIMEOUTS} or more time-outs, the last at"
            f" {self._network.clock.now_ns / NS_PER_S:.3f} s; check that packets can pass from"
            f" {src} to its destination and back, and that its queue is served"
        )


def _with_congestion(
    settings: TcpSettings,
    congestion: Congestion,
    flows: Sequence[Flow],
) -> TcpSettings:
    """Return the settings of the connection that carries these flows in each iteration."""
    if congestion == "newreno":
        return settings
    return replace(settings, aggressiveness=Aggressiveness(sum(flow.size_bytes for flow in flows)))


def _pair_settings(
    transport: Transport,
    mtu: int,
    windows: Windows,
    path: Sequence[str] | None,
    fabric: Fabric,
) -> PairSettings:
    """Return the settings of a queue pair, whose packets are as long as its MTU says."""
    timeout_ns = max(1, round(transport.retransmit_after_s * NS_PER_S))
    # Without a path in the plan, the longest path is as long as for packets with a shim.
    window = windows.longest
    if transport.window_packets is not None:
        window = transport.window_packets
    elif path is not None:
        window = replace(windows, packet_bytes=packet_bytes(mtu)).on_path(path, fabric).single
    return PairSettings(
        mtu, window, transport.message_bytes, timeout_ns, asks_after=windows.together
    )


class _Line:
    """The flows of one connection, in their order."""

    __slots__ = ("_flows", "_ready", "_turn", "connection")

    def __init__(
        self, connection: Connection | NativeConnection | PairConnection, flows: tuple[Flow, ...]
    ) -> None:
        self.connection = connection
        self._flows = flows
        self._turn = 0
        self._ready: dict[str, Callable[[], None]] = {}

    def start(self, flow: Flow, on_complete: Callable[[], None]) -> None:
        self._ready[flow.name] = on_complete
        while (following := self._flows[self._turn]).name in self._ready:
            self._turn = (self._turn + 1) % len(self._flows)
            self.connection.write(following.size_bytes, self._ready.pop(following.name))


TREE_HOSTS = "echelon.tree_hosts"
"""The entry-point group of carriers of flows over trees of switches.

Each is a class that is made of the network, the job's name and its trees: a `TreeCarrier`.
"""


class TreeCarrier(Protocol):
    """The hosts of a job's trees."""

    tally: PacketTally

    def open(self) -> None: ...
    def start_flow(
        self,
        flow: Flow,
        iteration: int,
        on_complete: Callable[[], None],
    ) -> None: ...


def tree_carrier(
    network: HostNetwork,
    job: str,
    trees: Sequence[JobTree],
) -> TreeCarrier:
    """Return the hosts of a job's trees. Raise `RunError` if no plug-in has any."""
    for entry in sorted(entry_points(group=TREE_HOSTS)):
        carrier: TreeCarrier = entry.load()(network, job, trees)
        return carrier
    raise RunError(f"job {job}: no plug-in sends flows over trees of switches (use --target fluid)")


class JobCarrier:
    """The carrier of a job with flows over trees of switches, and others between two hosts."""

    def __init__(self, trees: TreeCarrier, between: ShimCarrier | ConnectionCarrier) -> None:
        self._trees = trees
        self._between = between

    @property
    def tally(self) -> PacketTally:
        """Return the counts of all the job's packets."""
        of_trees = self._trees.tally
        other = self._between.tally
        return PacketTally(
            of_trees.retransmitted + other.retransmitted,
            of_trees.duplicate + other.duplicate,
            of_trees.reordered + other.reordered,
        )

    def open(self) -> None:
        """Establish what has to be there before the job's first iteration."""
        self._trees.open()
        self._between.open()

    def start_flow(
        self,
        flow: Flow,
        iteration: int,
        on_complete: Callable[[], None],
    ) -> None:
        """Send a flow now; call `on_complete` when all of it has arrived."""
        (self._trees if flow.among else self._between).start_flow(flow, iteration, on_complete)

    def pace(self, flow: str, rate_Bps: float | None) -> None:  # noqa: N803
        """Send a flow between two hosts at this rate from now on.

        Flows over trees have what their windows find.
        """
        self._between.pace(flow, rate_Bps)


Carrier = ShimCarrier | ConnectionCarrier | JobCarrier
"""A carrier of one job's flows to their destinations."""
