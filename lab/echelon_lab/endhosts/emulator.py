"""Training jobs as a network sees them.

Compute units are timed waits, flows are real packets, all in closed loop.

The emulator does not know whether time and network are virtual or real. It is given a clock and one
network interface for each host, and it is told of the frames that arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import chain

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Flow, FlowKey, Job
from echelon.planning.execution import (
    Completion,
    Instruction,
    IterationFinished,
    IterationRecord,
    JobExecution,
    JobRecord,
    Span,
    StartCompute,
    StartFlow,
    Until,
)
from echelon.planning.paths import Paths
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.identity import Identity, SegmentIdentity, ShimIdentity
from echelon.switches.lowering.trees import JobTree
from echelon.switches.targets.virtual import Clock, Interfaces, NetworkInC, Nic
from echelon_lab.endhosts.carriers import (
    BackgroundStats,
    Carrier,
    ConnectionCarrier,
    HostNetwork,
    HostStack,
    JobCarrier,
    PacedNic,
    RankingOf,
    ShimCarrier,
    tree_carrier,
)
from echelon_lab.endhosts.cross_traffic import CrossTraffic
from echelon_lab.endhosts.native import NativeEnds, knows
from echelon_lab.endhosts.ranks import HostRanks, emulated
from echelon_lab.endhosts.shim import FlowAddress, background_frame
from echelon_lab.endhosts.tcp.native import NativeTcp
from echelon_lab.endhosts.tcp.sender import TcpSettings
from echelon_lab.endhosts.transport import NS_PER_S
from echelon_lab.scenarios.scenario import Background, Delay, Transport
from echelon_lab.scenarios.traffic_spec import TrafficSource

# Below the UDP ports of jobs, which begin at 0xC000.
_BACKGROUND_PORTS = 0x8000


def tcp_settings(transport: Transport, ecn: bool) -> TcpSettings:
    """Return the TCP settings of `transport`."""
    return TcpSettings(
        transport.packet_bytes,
        max(1, round(transport.min_rto_s * NS_PER_S)),
        transport.receive_window_bytes,
        ecn,
    )


class TrainingEmulator:
    """Jobs, background and cross traffic on the hosts of a fabric.

    Call `start`, feed each host's frames to ``hosts[name].deliver``, and let time pass until
    `done`. From then on nothing is sent, received or recorded.

    - `nics`: network interfaces by host.
    - `identities`: by (job, flow). With a `ShimIdentity` the job's senders write the shim; with a
      `SegmentIdentity` the job sends over TCP or RoCE.
    - `iterations` and `until` say when the run is over (`echelon.planning.execution`); with None
      iterations it goes on until the caller lets no more time pass.
    - `traffic` plays as long as the run lasts, drawn from `seed`.
    - `paced` says that `pace` will tell senders with the shim their rates.
    - `paths` are those of the plan, by job (`ShimCarrier`).
    - `trees` are those of the plan, by job: switches add up what their flows bring.
    - `native` is the network of the interfaces, if it is in C: then so are the ends of flows with a
      shim and of TCP connections.
    - `ranking` tells the rankings by which hosts order the flows with a shim that they send
      (`ShimCarrier`).
    - `ranked_at_hosts` are the rules by which hosts rank flows with a shim, by job; None: switches
      rank.
    - `on_iteration(job, iteration, now_ns)` is called when an iteration is finished.

    Raises `RunError`: at once for a flow that is too long for the shim, later (out of the clock's
    call) for one that gets nowhere. Raises `KeyError` for a host without an interface or a flow
    without an identity.
    """

    def __init__(
        self,
        clock: Clock,
        nics: Mapping[str, Nic],
        fabric: Fabric,
        jobs: Sequence[Job],
        identities: Mapping[FlowKey, Identity],
        *,
        iterations: int | None,
        until: Until = "all-done",
        transport: Transport | None = None,
        delays: Sequence[Delay] = (),
        background: Sequence[Background] = (),
        traffic: Sequence[TrafficSource] = (),
        seed: int = 0,
        on_iteration: Callable[[str, int, int], None] | None = None,
        paced: bool = False,
        ranking: RankingOf | None = None,
        paths: Mapping[str, Paths] | None = None,
        trees: Mapping[str, Sequence[JobTree]] | None = None,
        native: NetworkInC | None = None,
        ranked_at_hosts: Mapping[str, Sequence[HostRule]] | None = None,
    ) -> None:
        self._clock = clock
        self._fabric = fabric
        self._jobs = jobs
        if transport is None:
            self._transport = Transport()
        else:
            self._transport = transport
        self.completion = Completion((job.name for job in jobs), iterations, until)
        """The progress of the jobs."""
        self._on_iteration = on_iteration
        self._is_paced = paced
        self._ranking = ranking
        self._paths = paths or {}
        all_paths = chain.from_iterable(of_job.values() for of_job in self._paths.values())
        self._windows = self._transport.windows.over(set(all_paths), fabric)
        self._origin_ns = 0
        self.hosts: dict[str, HostStack] = {}
        for name in fabric.hosts:
            self.hosts[name] = HostStack(name, clock, self._paced(nics[name]))
        """Hosts by name. Give each the frames that arrive at it."""
        several = {}
        for name, nic in nics.items():
            if isinstance(nic, Interfaces):
                several[name] = nic
        self._ends: NativeEnds | None = None
        self._tcp: NativeTcp | None = None
        # Python slows interfaces down, chooses between those of a host,
        # and knows the orders of all rankings.
        is_plain = not several and self._transport.host_rate_bps is None
        if native is not None and is_plain and _orders_are_in_c(ranking, jobs):
            self._ends = NativeEnds(native, fabric.hosts)
            if traffic or any(map(_is_tcp, identities.values())):
                self._tcp = NativeTcp(self._ends, fabric.hosts)
        if ranked_at_hosts is not None:
            self._rank(emulated(chain.from_iterable(ranked_at_hosts.values())))
        network = HostNetwork(clock, fabric, self.hosts, several, self._ends, self._tcp)
        self._trees = trees or {}
        self._rates_Bps: Mapping[FlowKey, Fraction] = {}
        self._carriers = {}
        for job in jobs:
            self._carriers[job.name] = self._carrier(network, job, identities)
        self._executions: dict[str, JobExecution[int]] = {}
        for job in jobs:
            delays_s = {}
            for delay in delays:
                if delay.job == job.name:
                    delays_s[delay.worker, delay.iteration] = delay.delay_s
            more = partial(self.completion.begins, job.name)
            self._executions[job.name] = JobExecution(job, delays=delays_s, more=more)
        self.background = {sender.name: BackgroundStats() for sender in background}
        """Packets of each background sender, by its name."""
        self._background_traffic = tuple(background)
        settings = partial(tcp_settings, self._transport)
        self.traffic = CrossTraffic(network, traffic, seed, settings)
        """The cross traffic, and what becomes of its flows until the end."""

    def _rank(self, rules: Sequence[HostRule]) -> None:
        for name, host in self.hosts.items():
            host.ranks = HostRanks(name, rules)
        if self._ends is not None:
            self._ends.rank(rules)

    def start(self) -> None:
        """Start the run: now is its time 0."""
        self._origin_ns = self._clock.now_ns
        for job in self._jobs:
            self._carriers[job.name].open()
            start_ns = self._origin_ns + round(job.start_s * NS_PER_S)
            self._clock.call_at(start_ns, self._start_job, job.name)
        for index, traffic in enumerate(self._background_traffic):
            self._start_background(index, traffic)
        self.traffic.start()

    def pace(self, rates_Bps: Mapping[FlowKey, Fraction]) -> None:  # noqa: N803
        """Send these flows, if they are under way, at these rates from now on.

        Rates are in bytes per second on the wire. Other flows have no limit.

        Nothing changes if the rates are those of the last call: most reports of switches lead to no
        decision.
        """
        if rates_Bps is self._rates_Bps:
            return
        before = self._rates_Bps
        self._rates_Bps = rates_Bps
        for job, flow in before:
            if (job, flow) not in rates_Bps:
                self._carriers[job].pace(flow, None)
        for (job, flow), rate in rates_Bps.items():
            self._carriers[job].pace(flow, float(rate))

    def release(self) -> None:
        """Send all flows without a limit from now on."""
        for job in self._jobs:
            for flow in job.flows:
                self._carriers[job.name].pace(flow.name, None)

    @property
    def done(self) -> bool:
        """Return whether every job has done its iterations."""
        return self.completion.reached

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        """Return the records of the jobs so far, in seconds from the beginning of the run."""
        records = {}
        for name, execution in self._executions.items():
            records[name] = _in_seconds(execution.record, self._origin_ns)
        return records

    @property
    def reordered_packets(self) -> Mapping[str, int]:
        """Packets that arrived after one that was sent later, by job.

        Retransmissions do not count.
        """
        return {name: carrier.tally.reordered for name, carrier in self._carriers.items()}

    @property
    def retransmitted_packets(self) -> Mapping[str, int]:
        """Packets sent again, by job."""
        return {name: carrier.tally.retransmitted for name, carrier in self._carriers.items()}

    def _carrier(
        self,
        network: HostNetwork,
        job: Job,
        identities: Mapping[FlowKey, Identity],
    ) -> Carrier:
        if trees := self._trees.get(job.name):
            between = replace(job, flows=tuple(flow for flow in job.flows if not flow.among))
            return JobCarrier(
                tree_carrier(network, job.name, trees),
                self._between_two(network, between, identities),
            )
        return self._between_two(network, job, identities)

    def _between_two(
        self,
        network: HostNetwork,
        job: Job,
        identities: Mapping[FlowKey, Identity],
    ) -> ShimCarrier | ConnectionCarrier:
        segments: dict[str, SegmentIdentity] = {}
        shims: dict[str, ShimIdentity] = {}
        for flow in job.flows:
            match identities[job.name, flow.name]:
                case SegmentIdentity() as identity:
                    segments[flow.name] = identity
                case ShimIdentity() as identity:
                    shims[flow.name] = identity
        if segments:
            settings = tcp_settings(self._transport, self._transport.ecn)
            paths = self._paths.get(job.name)
            return ConnectionCarrier(
                network, job, segments, settings, self._transport, self._windows, paths
            )
        retransmit_after_ns = max(1, round(self._transport.retransmit_after_s * NS_PER_S))
        return ShimCarrier(
            network,
            job,
            shims,
            self._windows,
            retransmit_after_ns,
            paced=self._is_paced,
            ranking=self._ranking,
            paths=self._paths.get(job.name),
        )

    def _paced(self, nic: Nic) -> Nic:
        rate_bps = self._transport.host_rate_bps
        if rate_bps is None:
            return nic
        return PacedNic(self._clock, nic, rate_bps)

    def _between(
        self,
        src: str,
        dst: str,
        src_port: int,
    ) -> FlowAddress:
        source = self._fabric.hosts[src]
        destination = self._fabric.hosts[dst]
        return FlowAddress(source.mac, destination.mac, source.ipv4, destination.ipv4, src_port)

    def _start_job(self, job: str) -> None:
        self._obey(job, self._executions[job].start(self._clock.now_ns))

    def _obey(self, job: str, instructions: Sequence[Instruction[int]]) -> None:
        for instruction in instructions:
            match instruction:
                case StartCompute(name, _, duration_s):
                    end_ns = self._clock.now_ns + round(duration_s * NS_PER_S)
                    self._clock.call_at(end_ns, self._finish_compute, job, name)
                case StartFlow(flow, iteration):
                    self._start_flow(job, flow, iteration)
                case IterationFinished(iteration):
                    self._finish_iteration(job, iteration)

    def _finish_compute(self, job: str, name: str) -> None:
        # Units that end after the run change nothing.
        if not self.done:
            self._obey(job, self._executions[job].compute_finished(name, self._clock.now_ns))

    def _start_flow(
        self,
        job: str,
        flow: Flow,
        iteration: int,
    ) -> None:
        self._carriers[job].start_flow(flow, iteration, partial(self._finish_flow, job, flow.name))

    def _finish_flow(self, job: str, flow: str) -> None:
        self._obey(job, self._executions[job].flow_finished(flow, self._clock.now_ns))

    def _finish_iteration(self, job: str, iteration: int) -> None:
        self.completion.finish(job, iteration)
        if self._on_iteration is not None:
            self._on_iteration(job, iteration, self._clock.now_ns - self._origin_ns)
        if self.done:
            self.traffic.stop()
            for host in self.hosts.values():
                host.close()
            if self._ends is not None:
                self._ends.close()
            if self._tcp is not None:
                self._tcp.close()

    def _start_background(self, index: int, traffic: Background) -> None:
        address = self._between(traffic.src, traffic.dst, _BACKGROUND_PORTS + index)
        stats = self.background[traffic.name]
        self.hosts[traffic.dst].count(address.src_port.to_bytes(2, "big"), stats)
        frame = background_frame(address, traffic.packet_bytes)
        _ConstantRate(self._clock, self.hosts[traffic.src], frame, traffic.rate_bps, stats).start()


class _ConstantRate:
    """An open-loop sender: packet n leaves n packet times after the first.

    Rounding errors do not add up.
    """

    def __init__(
        self,
        clock: Clock,
        host: HostStack,
        frame: bytes,
        rate_bps: int,
        stats: BackgroundStats,
    ) -> None:
        self._clock = clock
        self._host = host
        self._frame = frame
        self._rate_bps = rate_bps
        self._stats = stats
        self._origin_ns = 0

    def start(self) -> None:
        self._origin_ns = self._clock.now_ns
        self._clock.call_at(self._origin_ns, self._send)

    def _send(self) -> None:
        if self._host.closed:
            return
        self._host.nic.send(self._frame)
        stats = self._stats
        stats.sent_packets += 1
        bits = stats.sent_packets * len(self._frame) * 8
        self._clock.call_at(self._origin_ns + bits * NS_PER_S // self._rate_bps, self._send)


def _orders_are_in_c(ranking: RankingOf | None, jobs: Sequence[Job]) -> bool:
    """Return whether hosts in C know the orders of all flows."""
    if ranking is None:
        return True
    return all(knows(ranking((job.name, flow.name))) for job in jobs for flow in job.flows)


def _is_tcp(identity: Identity) -> bool:
    return isinstance(identity, SegmentIdentity) and identity.mtu is None


def _in_seconds(record: JobRecord[int], origin_ns: int) -> JobRecord[Fraction]:
    """Return a record in seconds from the beginning of the run."""

    def seconds(time_ns: int) -> Fraction:
        return Fraction(time_ns - origin_ns, NS_PER_S)

    def finish(time_ns: int | None) -> Fraction | None:
        if time_ns is None:
            return None
        return seconds(time_ns)

    def spans(by_name: Mapping[str, Span[int]]) -> dict[str, Span[Fraction]]:
        converted = {}
        for name, span in by_name.items():
            converted[name] = Span(seconds(span.start), finish(span.finish))
        return converted

    iterations = []
    for iteration in record.iterations:
        references = {}
        for name, time_ns in iteration.references.items():
            references[name] = seconds(time_ns)
        converted = IterationRecord(
            iteration.iteration,
            seconds(iteration.start),
            finish(iteration.finish),
            spans(iteration.flows),
            spans(iteration.computes),
            references,
        )
        iterations.append(converted)
    return JobRecord(record.job, iterations)
