"""Cross traffic of an emulation: flows that belong to no job, each over a TCP connection.

They start on schedule, whatever became of the flows before them (open loop).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from echelon.switches.targets.virtual import Clock
from echelon_lab.endhosts.carriers import HostNetwork
from echelon_lab.endhosts.shim import DISCARD_PORT
from echelon_lab.endhosts.tcp.native import NativeConnection, tally_of
from echelon_lab.endhosts.tcp.sender import MAX_TIMEOUTS, TcpSettings, TcpTally
from echelon_lab.endhosts.tcp.stack import Connection
from echelon_lab.endhosts.transport import NS_PER_S
from echelon_lab.scenarios.traffic_spec import TrafficSource
from echelon_lab.traffic.outcome import FlowOutcome
from echelon_lab.traffic.schedule import PacedFlow, ScheduledFlow

_PORTS = range(32768, 61000)
"""Linux's ephemeral ports."""
_NS_PER_US = 1000
_NANOBITS_PER_BYTE = 8 * NS_PER_S


@dataclass(slots=True)
class _Transfer:
    """A flow under way, and its place on its connection."""

    flow: ScheduledFlow
    started_ns: int
    end_bytes: int
    """Position on the connection of the byte after the flow's last."""
    connection: Connection | NativeConnection | None = None
    finished_ns: int | None = None
    failed: str | None = None


class CrossTraffic:
    """Cross traffic of `sources` on the hosts of `network`, drawn from `seed`.

    `settings(ecn)` returns the settings of its TCP.

    Nobody sends before `start`, and no flow starts after `stop`. A flow whose host has no free port
    fails, and so does a flow whose connection is given up.
    """

    def __init__(
        self,
        network: HostNetwork,
        sources: Sequence[TrafficSource],
        seed: int,
        settings: Callable[[bool], TcpSettings],
    ) -> None:
        ports = _Ports(network)
        self._players = {}
        for source in sources:
            self._players[source.name] = _Player(
                network, ports, source.stream(seed), settings(source.ecn)
            )

    def start(self) -> None:
        """Start: now is time 0 of all sources."""
        for player in self._players.values():
            player.start()

    def stop(self) -> None:
        """End: no more flows start, and bytes that have not arrived by now do not count."""
        for player in self._players.values():
            player.stop()

    @property
    def outcomes(self) -> Mapping[str, Sequence[FlowOutcome]]:
        """Return the outcomes of the flows until now or the end, by source.

        They are in order of their starts.
        """
        return {name: player.outcomes() for name, player in self._players.items()}

    @property
    def retransmitted_packets(self) -> Mapping[str, int]:
        """Segments sent again, by source."""
        return {name: player.tally.retransmitted for name, player in self._players.items()}


class _Ports:
    """Source ports for new connections.

    Each is in use by one connection at a time; the port that was free for longest goes first.
    """

    def __init__(self, network: HostNetwork) -> None:
        self._network = network
        self._free = {host: deque(_PORTS) for host in network.hosts}

    def take(self, src: str, dst: str) -> int | None:
        """Return the source port of a new connection to the discard port.

        None means that all are in use.
        """
        free = self._free[src]
        while free:
            port = free.popleft()
            # A job's connection keeps its port to the end.
            if not self._network.has((src, dst), (port, DISCARD_PORT)):
                return port
        return None

    def give_back(self, src: str, port: int) -> None:
        self._free[src].append(port)


class _Player:
    """The player of one source."""

    def __init__(
        self,
        network: HostNetwork,
        ports: _Ports,
        flows: Iterator[ScheduledFlow],
        settings: TcpSettings,
    ) -> None:
        self._network = network
        self._clock = network.clock
        self._ports = ports
        self._flows = flows
        self._settings = settings
        self._origin_ns = 0
        self._transfers: list[_Transfer] = []
        self._long: dict[tuple[str, str, int], _LongFlow] = {}
        self._counters = network.new_tcp_counters()
        self._stopped_ns: int | None = None

    def start(self) -> None:
        self._origin_ns = self._clock.now_ns
        self._await_next()

    def stop(self) -> None:
        self._stopped_ns = self._clock.now_ns

    @property
    def stopped(self) -> bool:
        return self._stopped_ns is not None

    @property
    def tally(self) -> TcpTally:
        """Return the counts of the segments."""
        return tally_of(self._counters)

    @property
    def elapsed_s(self) -> float:
        if self._stopped_ns is None:
            return self._seconds(self._clock.now_ns)
        return self._seconds(self._stopped_ns)

    def outcomes(self) -> list[FlowOutcome]:
        now_s = self.elapsed_s
        return [self._outcome(transfer, now_s) for transfer in self._transfers]

    def connect(
        self, flow: ScheduledFlow, on_lost: Callable[[], None]
    ) -> Connection | NativeConnection | None:
        """Return a connection for `flow` that is not open yet.

        None means that its host has no port for it.
        """
        port = self._ports.take(flow.src, flow.dst)
        if port is None:
            return None
        give_back = partial(self._ports.give_back, flow.src, port)
        between = (flow.src, flow.dst)
        ports = (port, DISCARD_PORT)
        return self._network.connect(
            between, ports, self._settings, self._counters, on_lost, give_back
        )

    @property
    def mss_bytes(self) -> int:
        return self._settings.mss_bytes

    def _await_next(self) -> None:
        flow = next(self._flows, None)
        if flow is not None:
            self._clock.call_at(self._origin_ns + flow.start_us * _NS_PER_US, self._begin_due, flow)

    def _begin_due(self, flow: ScheduledFlow) -> None:
        if self.stopped:
            return
        self._begin(flow)
        self._await_next()

    def _begin(self, flow: ScheduledFlow) -> None:
        transfer = _Transfer(flow, self._clock.now_ns, flow.size_bytes)
        self._transfers.append(transfer)
        if isinstance(flow, PacedFlow):
            key = flow.src, flow.dst, flow.connection
            long = self._long.get(key)
            if long is None:
                long = self._long[key] = _LongFlow(self, self._clock, flow)
            long.add(transfer)
            return
        connection = transfer.connection = self.connect(flow, partial(self.lose, transfer))
        if connection is None:
            self.refuse(transfer)
            return
        connection.write(flow.size_bytes, partial(self.finish, transfer))
        connection.close()
        connection.open()

    def finish(self, transfer: _Transfer) -> None:
        """Note that everything has been received."""
        transfer.finished_ns = self._clock.now_ns
        transfer.connection = None

    def lose(self, transfer: _Transfer) -> None:
        """Note that the connection was given up."""
        if transfer.finished_ns is None:
            transfer.failed = f"nothing was acknowledged through {MAX_TIMEOUTS} time-outs"

    def refuse(self, transfer: _Transfer) -> None:
        """Note that no connection can be opened."""
        transfer.failed = f"host {transfer.flow.src} has no port left"

    def _outcome(self, transfer: _Transfer, now_s: float) -> FlowOutcome:
        if transfer.finished_ns is None:
            finished_s = None
        else:
            finished_s = self._seconds(transfer.finished_ns)
        received = None
        if finished_s is None and transfer.connection is not None:
            missing = max(0, transfer.end_bytes - transfer.connection.received_bytes)
            received = now_s, max(0, transfer.flow.size_bytes - missing)
        return FlowOutcome(
            transfer.flow,
            self._seconds(transfer.started_ns),
            finished_s,
            received=received,
            failed=transfer.failed,
        )

    def _seconds(self, time_ns: int) -> float:
        return (time_ns - self._origin_ns) / NS_PER_S


class _LongFlow:
    """A long flow: pieces one after another over one connection.

    Its mean rate since the beginning is kept.
    """

    def __init__(
        self,
        player: _Player,
        clock: Clock,
        flow: PacedFlow,
    ) -> None:
        self._player = player
        self._clock = clock
        self._rate_bps = flow.rate_bps
        self._begun_ns = clock.now_ns
        self._connection = player.connect(flow, self._on_lost)
        self._pieces: deque[_Transfer] = deque()  # pieces not completely written
        self._unfinished: list[_Transfer] = []
        self._lost = False
        self._due_bytes = 0  # total of all pieces so far
        self._written_bytes = 0
        self._waits = False
        if self._connection is not None:
            self._connection.open()

    def add(self, transfer: _Transfer) -> None:
        """Take one more piece, which is due now."""
        connection = self._connection
        if connection is None:
            self._player.refuse(transfer)
            return
        if self._lost:
            self._player.lose(transfer)
            return
        transfer.connection = connection
        self._due_bytes += transfer.flow.size_bytes
        transfer.end_bytes = self._due_bytes
        self._pieces.append(transfer)
        self._unfinished = [piece for piece in self._unfinished if piece.finished_ns is None]
        self._unfinished.append(transfer)
        if not self._waits:
            self._write(connection)

    def _write(self, connection: Connection | NativeConnection) -> None:
        """Write the segments whose time has come.

        Schedule the next call for the time of the next segment.
        """
        self._waits = False
        now_ns = self._clock.now_ns
        while self._pieces and not self._player.stopped and not self._lost:
            due_ns = self._begun_ns - (-self._written_bytes * _NANOBITS_PER_BYTE // self._rate_bps)
            if due_ns > now_ns:
                self._waits = True
                self._clock.call_at(due_ns, self._write, connection)
                return
            piece = self._pieces[0]
            left_bytes = piece.end_bytes - self._written_bytes
            if left_bytes == piece.flow.size_bytes:
                piece.started_ns = now_ns
            length_bytes = min(self._player.mss_bytes, left_bytes)
            self._written_bytes += length_bytes
            if length_bytes == left_bytes:
                self._pieces.popleft()
                connection.write(length_bytes, partial(self._player.finish, piece))
            else:
                connection.write(length_bytes)

    def _on_lost(self) -> None:
        self._lost = True
        for piece in self._unfinished:
            self._player.lose(piece)
