"""Training jobs as a network sees them: compute units are timed waits, flows are real packets, all in closed loop.

Nothing here knows whether time and network are virtual or real: the emulator is given a clock and one network
interface for each host, and is told of the frames that arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal, Protocol

from echelon.execution import (
    Instruction,
    IterationFinished,
    IterationRecord,
    JobExecution,
    JobRecord,
    Span,
    StartCompute,
    StartFlow,
)
from echelon.fabric.model import Fabric
from echelon.jobs.graph import Flow, Job
from echelon.testbed.results import RunError
from echelon.testbed.scenario import Background, Delay, Transport
from echelon.testbed.shim import (
    ACK,
    DISCARD_PORT_BYTES,
    DRAIN,
    ETHERNET_BYTES,
    IPV4_TOTAL_LENGTH,
    MAX_REMAINING,
    RESENT,
    SHIM_FLAGS_AT,
    SHIM_KEY,
    SHIM_REMAINING,
    SHIM_RESERVED_AT,
    UDP_DESTINATION,
    UDP_SOURCE,
    AckFrames,
    DataFrames,
    FlowAddress,
    background_frame,
    flow_key,
    has_shim,
)
from echelon.testbed.transport import Receiver, Sender, Tally

MAX_TIMEOUTS = 16
"""So often in a row does a sender get nothing acknowledged before the run is given up as stuck."""

NS_PER_S = 1_000_000_000

_CONNECTION_PORTS = 0xC000
_BACKGROUND_PORTS = 0x8000


class Clock(Protocol):
    """Time, and calls at a later time."""

    @property
    def now_ns(self) -> int: ...
    def at(self, time_ns: int, callback: Callable[..., object], /, *args: object) -> object: ...


class Nic(Protocol):
    """A network interface that sends frames in the order in which it is given them."""

    def send(self, data: bytes, /) -> None: ...


class FlowNumbers(Protocol):
    """What the shim says of a flow (`echelon.lowering.identity.ShimIdentity` is one)."""

    @property
    def job(self) -> int: ...
    @property
    def flow(self) -> int: ...


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
        "closed",
        "host",
        "unknown_packets",
    )

    def __init__(self, host: str, clock: Clock, nic: Nic) -> None:
        self.host = host
        self.closed = False
        """set it to have the host fall silent"""
        self.unknown_packets = 0
        """packets for nobody here"""
        self._clock = clock
        self._nic = nic
        self._senders: dict[bytes, Sender] = {}
        self._receivers: dict[bytes, Receiver] = {}
        self._open: dict[bytes, Callable[[], None]] = {}  # what to call when everything has arrived
        self._newest: dict[tuple[bool, bytes], bytes] = {}  # by direction and flow: the key of its last iteration
        self._background: dict[bytes, BackgroundStats] = {}

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
        if self.closed:
            return
        if not has_shim(frame):
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


class TrainingEmulator:
    """Jobs and background traffic on the hosts of a fabric.

    Call `start`, feed each host's frames to ``hosts[name].deliver``, and let time pass until `done`. Then nothing more
    is sent, received or recorded.

    - `nics`: by host; `numbering`: by (job, flow), what the shim says.
    - `until`: ``all-done``: jobs go on until the slowest has done `iterations`; ``exactly``: each does that many.
    - `on_iteration(job, iteration, now_ns)` is called when an iteration is finished.

    Raises `RunError`, at once for a flow that is too long for the shim, later (out of the clock's call) for one that
    gets nowhere; `KeyError` for a host without an interface, or a flow without a number.
    """

    def __init__(
        self,
        clock: Clock,
        nics: Mapping[str, Nic],
        fabric: Fabric,
        jobs: Sequence[Job],
        numbering: Mapping[tuple[str, str], FlowNumbers],
        *,
        iterations: int,
        until: Literal["all-done", "exactly"] = "all-done",
        transport: Transport | None = None,
        delays: Sequence[Delay] = (),
        background: Sequence[Background] = (),
        on_iteration: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._clock = clock
        self._fabric = fabric
        self._jobs = jobs
        self._transport = Transport() if transport is None else transport
        self._retransmit_after_ns = max(1, round(self._transport.retransmit_after_s * NS_PER_S))
        self._iterations = iterations
        self._load_stays = until == "all-done"
        self._on_iteration = on_iteration
        self._origin_ns = 0
        self._unsatisfied = {job.name for job in jobs}
        self._tallies = {job.name: Tally() for job in jobs}
        self._addresses = {
            (job.name, flow.name): self._address(flow, numbering[job.name, flow.name])
            for job in jobs
            for flow in job.flows
        }
        self._check_sizes()
        self.hosts: dict[str, HostStack] = {
            name: HostStack(name, clock, self._paced(nics[name])) for name in fabric.hosts
        }
        """by name; give each the frames that arrive at it"""
        self._executions: dict[str, JobExecution[int]] = {}
        for job in jobs:
            own = {(d.worker, d.iteration): d.delay_s for d in delays if d.job == job.name}
            self._executions[job.name] = JobExecution(job, delays=own, more=partial(self._more, job.name))
        self.background = {traffic.name: BackgroundStats() for traffic in background}
        """packets of each background sender, by its name"""
        self._background_traffic = tuple(background)

    def start(self) -> None:
        """Begin: now is time 0 of the run."""
        self._origin_ns = self._clock.now_ns
        for job in self._jobs:
            self._clock.at(self._origin_ns + round(job.start_s * NS_PER_S), self._start_job, job.name)
        for index, traffic in enumerate(self._background_traffic):
            self._start_background(index, traffic)

    @property
    def done(self) -> bool:
        """Whether every job has done its iterations."""
        return not self._unsatisfied

    @property
    def records(self) -> Mapping[str, JobRecord[Fraction]]:
        """What has happened so far, by job; seconds from the beginning of the run."""
        return {name: _in_seconds(execution.record, self._origin_ns) for name, execution in self._executions.items()}

    @property
    def reordered_packets(self) -> Mapping[str, int]:
        """By job: packets that arrived after one that was sent later, retransmissions apart."""
        return {name: tally.reordered for name, tally in self._tallies.items()}

    @property
    def retransmitted_packets(self) -> Mapping[str, int]:
        """By job: packets sent again."""
        return {name: tally.retransmitted for name, tally in self._tallies.items()}

    @property
    def duplicate_packets(self) -> Mapping[str, int]:
        """By job: packets received again."""
        return {name: tally.duplicate for name, tally in self._tallies.items()}

    def _more(self, job: str, iteration: int) -> bool:
        """Whether a job whose last iteration has just ended begins `iteration`."""
        return iteration <= self._iterations or (self._load_stays and not self._unsatisfied <= {job})

    def _check_sizes(self) -> None:
        for job in self._jobs:
            for flow in job.flows:
                if flow.size_bytes > MAX_REMAINING:
                    raise RunError(
                        f"job {job.name}: flow {flow.name} has {flow.size_bytes} bytes, but senders can count only "
                        f"{MAX_REMAINING} (make the job's data smaller)"
                    )

    def _paced(self, nic: Nic) -> Nic:
        rate_bps = self._transport.host_rate_bps
        return nic if rate_bps is None else PacedNic(self._clock, nic, rate_bps)

    def _address(self, flow: Flow, numbers: FlowNumbers) -> FlowAddress:
        # One connection of a job is one 5-tuple, whatever the flow.
        port = _CONNECTION_PORTS | numbers.job & 0x3FFF
        return replace(self._between(flow.src, flow.dst, port), job=numbers.job, flow=numbers.flow)

    def _between(self, src: str, dst: str, src_port: int) -> FlowAddress:
        source, destination = self._fabric.hosts[src], self._fabric.hosts[dst]
        return FlowAddress(source.mac, destination.mac, source.ipv4, destination.ipv4, src_port)

    def _start_job(self, job: str) -> None:
        self._obey(job, self._executions[job].start(self._clock.now_ns))

    def _obey(self, job: str, instructions: Sequence[Instruction[int]]) -> None:
        for instruction in instructions:
            match instruction:
                case StartCompute(name, _, duration_s):
                    end_ns = self._clock.now_ns + round(duration_s * NS_PER_S)
                    self._clock.at(end_ns, self._finish_compute, job, name)
                case StartFlow(flow, iteration):
                    self._start_flow(job, flow, iteration)
                case IterationFinished(iteration):
                    self._finish_iteration(job, iteration)

    def _finish_compute(self, job: str, name: str) -> None:
        if not self.done:
            self._obey(job, self._executions[job].compute_finished(name, self._clock.now_ns))

    def _start_flow(self, job: str, flow: Flow, iteration: int) -> None:
        address = self._addresses[job, flow.name]
        epoch = iteration % 256
        key = flow_key(epoch, address.job, address.flow)
        packet_bytes, window = self._transport.packet_bytes, self._transport.window_packets
        tally = self._tallies[job]
        frames = DataFrames(address, epoch, packet_bytes)
        sender = Sender(frames, flow.size_bytes, window, self._retransmit_after_ns, tally)
        receiver = Receiver(AckFrames(address, epoch), flow.size_bytes, packet_bytes, window, tally)
        on_complete = partial(self._finish_flow, job, flow.name)
        self.hosts[flow.dst].receive(key, receiver, on_complete)
        what = f"job {job}: flow {flow.name} from {flow.src} to {flow.dst} in iteration {iteration}"
        self.hosts[flow.src].send(key, sender, what)

    def _finish_flow(self, job: str, flow: str) -> None:
        self._obey(job, self._executions[job].flow_finished(flow, self._clock.now_ns))

    def _finish_iteration(self, job: str, iteration: int) -> None:
        if iteration == self._iterations:
            self._unsatisfied.discard(job)
        if self._on_iteration is not None:
            self._on_iteration(job, iteration, self._clock.now_ns - self._origin_ns)
        if self.done:
            for host in self.hosts.values():
                host.closed = True

    def _start_background(self, index: int, traffic: Background) -> None:
        address = self._between(traffic.src, traffic.dst, _BACKGROUND_PORTS + index)
        stats = self.background[traffic.name]
        self.hosts[traffic.dst].count(address.src_port.to_bytes(2, "big"), stats)
        frame = background_frame(address, traffic.packet_bytes)
        _ConstantRate(self._clock, self.hosts[traffic.src], frame, traffic.rate_bps, stats).start()


class _ConstantRate:
    """A sender that asks nobody: packet n leaves n packet times after the first, without rounding errors adding up."""

    def __init__(self, clock: Clock, host: HostStack, frame: bytes, rate_bps: int, stats: BackgroundStats) -> None:
        self._clock = clock
        self._host = host
        self._frame = frame
        self._rate_bps = rate_bps
        self._stats = stats
        self._origin_ns = 0

    def start(self) -> None:
        self._origin_ns = self._clock.now_ns
        self._clock.at(self._origin_ns, self._send)

    def _send(self) -> None:
        if self._host.closed:
            return
        self._host.transmit(self._frame)
        stats = self._stats
        stats.sent_packets += 1
        bits = stats.sent_packets * len(self._frame) * 8
        self._clock.at(self._origin_ns + bits * NS_PER_S // self._rate_bps, self._send)


def _in_seconds(record: JobRecord[int], origin_ns: int) -> JobRecord[Fraction]:
    def seconds(time_ns: int) -> Fraction:
        return Fraction(time_ns - origin_ns, NS_PER_S)

    def span(of: Span[int]) -> Span[Fraction]:
        return Span(seconds(of.start), None if of.finish is None else seconds(of.finish))

    return JobRecord(
        record.job,
        [
            IterationRecord(
                of.iteration,
                seconds(of.start),
                None if of.finish is None else seconds(of.finish),
                {name: span(it) for name, it in of.flows.items()},
                {name: span(it) for name, it in of.computes.items()},
                {name: seconds(time_ns) for name, time_ns in of.references.items()},
            )
            for of in record.iterations
        ],
    )
