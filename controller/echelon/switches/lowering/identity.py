"""The identity by which a switch recognises the packets of a flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.analysis import connections, leading_flows
from echelon.model.jobs.graph import FlowKey, Job
from echelon.model.jobs.spec import COUNTED_BYTES
from echelon.switches.lowering.capabilities import LoweringError

if TYPE_CHECKING:
    from echelon.model.jobs.spec import JobSpec, RecognitionSpec

FiveTuple = tuple[str, str, str, int, int]
"""A connection: (protocol, source address, destination address, source port, destination port).
With RoCE, the numbers of the queue pairs stand in place of ports."""


def reverse(connection: FiveTuple) -> FiveTuple:
    """Return the connection as its other end sees it."""
    protocol, src, dst, src_port, dst_port = connection
    return protocol, dst, src, dst_port, src_port


UNPLANNED = Fraction(1, 20)
"""The part of an iteration that a connection may send beyond what the plan knows..."""
LEAST_UNPLANNED_BYTES = 1 << 13
"""... or so many bytes, if they are more."""


@dataclass(frozen=True, slots=True)
class ShimIdentity:
    """An identity that the sender writes into the shim header of every packet."""

    job: int
    flow: int


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """An identity by position: a range of the bytes of a connection in one iteration.

    The sender knows nothing of Echelon. Bytes are payload of TCP or UDP; a RoCE packet counts as
    a full one. A new iteration starts on the connection after `idle_gap_s` seconds without a
    packet, once 95 % of `iteration_bytes` have passed; with `by_bytes`, behind `iteration_bytes`
    also without a silence.
    """

    src_ipv4: str
    dst_ipv4: str
    protocol: str
    """tcp, udp or roce."""
    src_port: int
    """0 where agents report the ports."""
    dst_port: int
    """0 where agents report the ports. With RoCE, the destination's queue pair."""
    start_bytes: int
    end_bytes: int
    """Position of the first byte after the flow."""
    iteration_bytes: int
    """Bytes that the connection carries in a whole iteration."""
    idle_gap_s: Fraction
    pause: bool = False
    """Whether switches close the sender's window while the connection has to stay in its queue."""
    reported: tuple[tuple[int, int], ...] | None = None
    """The ports, source and destination, of each connection that agents reported, which all count
    as one; None: agents report nothing, and the ports are those above."""
    by_bytes: bool = False
    """Whether iterations need no silence between them."""
    mtu: int | None = None
    """The path's MTU, by which RoCE packets are counted; None: not RoCE."""
    leads: bool = False
    """Whether the connection begins with a flow that waits for no other one."""

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of the flow's positions, each as its first byte and that after it.

        What programs send beyond what plans know, such as headers of messages, comes after the last
        flow of an iteration. It belongs to that flow: in the queue of best effort, it would
        overtake what its connection has sent before, and the sender would send all of that again.
        """
        planned = (self.start_bytes, self.end_bytes)
        is_last = self.start_bytes < self.end_bytes == self.iteration_bytes
        if self.by_bytes or not is_last:
            return (planned,)
        unplanned_bytes = max(LEAST_UNPLANNED_BYTES, int(self.iteration_bytes * UNPLANNED))
        end_bytes = min(self.end_bytes + unplanned_bytes, COUNTED_BYTES - 1)
        return planned, (self.end_bytes, end_bytes)

    @property
    def five_tuple(self) -> FiveTuple:
        """The name of the connection; it stays the same while reported connections come and go."""
        return self.protocol, self.src_ipv4, self.dst_ipv4, self.src_port, self.dst_port

    @property
    def five_tuples(self) -> tuple[FiveTuple, ...]:
        """The connections whose packets are counted."""
        if self.reported is None:
            return (self.five_tuple,)
        return tuple(
            (self.protocol, self.src_ipv4, self.dst_ipv4, *ports) for ports in self.reported
        )


Identity = ShimIdentity | SegmentIdentity


def number_shims(jobs: Sequence[Job]) -> dict[FlowKey, ShimIdentity]:
    """Number jobs (from 1) and their flows (from 0) in their order, for senders of the shim."""
    identities = {}
    for number, job in enumerate(jobs, start=1):
        for index, flow in enumerate(job.flows):
            identities[job.name, flow.name] = ShimIdentity(number, index)
    return identities


SHIM_NUMBERS = 1 << 16
"""Number of jobs, and of flows of one job, that the shim header can distinguish."""


def identities_of(
    job: Job,
    number: int,
    spec: JobSpec,
    fabric: Fabric,
    reported: Collection[FiveTuple] = (),
) -> Mapping[str, Identity]:
    """Return how switches recognise each flow of a job, by the `recognition` section of its file.

    By shim, flows are numbered from 0 in the job's order and the job is `number`. By bytes, each
    pair of workers has one connection, which carries its flows in the order of
    `echelon.model.jobs.analysis.connections`. By agent, it has the `reported` connections from one
    to the other. Workers are hosts of `fabric`. Raise `LoweringError` for more flows than the shim
    can number.
    """
    recognise = _RECOGNITIONS[spec.recognition.by]
    return recognise(job, number, spec, fabric, reported)


def _check_between_two(job: Job) -> None:
    """Refuse a flow among several hosts, whose packets carry the shim."""
    for flow in job.flows:
        if flow.among:
            raise LoweringError(
                f"job {job.name}: flow '{flow.name}' goes over a tree of switches that add up or"
                " copy what it brings, which they recognise by shim alone (write 'recognition:"
                " {by: shim}', or use another algorithm such as 'ring')",
                job.name,
            )


def _by_shim(
    job: Job,
    number: int,
    _spec: JobSpec,
    _fabric: Fabric,
    _reported: Collection[FiveTuple],
) -> dict[str, Identity]:
    if max(len(job.flows), number + 1) > SHIM_NUMBERS:
        raise LoweringError(
            f"job {job.name}: {len(job.flows)} flows of job number {number}: the shim header"
            f" numbers {SHIM_NUMBERS} of each; use fewer workers or micro-batches",
            job.name,
        )
    return {flow.name: ShimIdentity(number, index) for index, flow in enumerate(job.flows)}


def _by_bytes(
    job: Job,
    _number: int,
    spec: JobSpec,
    fabric: Fabric,
    _reported: Collection[FiveTuple],
) -> Mapping[str, Identity]:
    recognition = spec.recognition
    # The file's loader has checked this.
    if recognition.queue_pair is not None:
        # Each host has a queue pair for each other one, by the place of that one among the job's
        # hosts.
        pairs = {host: recognition.queue_pair + place for place, host in enumerate(spec.hosts)}
        return _segments(job, recognition, fabric, lambda src, dst: (pairs[dst], pairs[src]))
    assert recognition.source_port is not None
    assert recognition.destination_port is not None
    ports = (recognition.source_port, recognition.destination_port)
    return _segments(job, recognition, fabric, lambda _src, _dst: ports)


def _by_agent(
    job: Job,
    _number: int,
    spec: JobSpec,
    fabric: Fabric,
    reported: Collection[FiveTuple],
) -> Mapping[str, Identity]:
    ports: dict[tuple[str, str], set[tuple[int, int]]] = {}
    for _, src, dst, src_port, dst_port in reported:
        between = ports.setdefault((src, dst), set())
        between.add((src_port, dst_port))

    identities: dict[str, Identity] = {}
    segments = _segments(job, spec.recognition, fabric, lambda _src, _dst: (0, 0))
    for flow, segment in segments.items():
        hosts = (segment.src_ipv4, segment.dst_ipv4)
        reported_ports = sorted(ports.get(hosts, ()))
        identities[flow] = replace(segment, reported=tuple(reported_ports))
    return identities


def _segments(
    job: Job,
    recognition: RecognitionSpec,
    fabric: Fabric,
    ports: Callable[[str, str], tuple[int, int]],
) -> dict[str, SegmentIdentity]:
    _check_between_two(job)
    gap_s = recognition.idle_gap
    packet_bytes = recognition.mtu or 1
    assert gap_s is not None
    leading = leading_flows(job)
    segments: dict[str, SegmentIdentity] = {}
    for (src, dst), flows in connections(job).items():
        src_port, dst_port = ports(src, dst)
        # Whole RoCE packets: a message begins with a packet of its own.
        packets = (-(-flow.size_bytes // packet_bytes) for flow in flows)
        edges = [packet_bytes * count for count in accumulate(packets, initial=0)]
        if edges[-1] >= COUNTED_BYTES:
            raise LoweringError(
                f"job {job.name}: the packets from {src} to {dst} count as {edges[-1]} B in an"
                f" iteration, and switches count less than {COUNTED_BYTES} (use the shim)",
                job.name,
            )
        for flow, (start, end) in zip(flows, pairwise(edges), strict=True):
            segments[flow.name] = SegmentIdentity(
                src_ipv4=fabric.hosts[src].ipv4,
                dst_ipv4=fabric.hosts[dst].ipv4,
                protocol=recognition.protocol or "tcp",
                src_port=src_port,
                dst_port=dst_port,
                start_bytes=start,
                end_bytes=end,
                iteration_bytes=edges[-1],
                idle_gap_s=gap_s,
                pause=recognition.pause,
                by_bytes=recognition.iterations == "bytes",
                mtu=recognition.mtu,
                leads=flows[0].name in leading,
            )
    return segments


_RECOGNITIONS: Mapping[str, Callable[..., Mapping[str, Identity]]] = {
    "shim": _by_shim,
    "bytes": _by_bytes,
    "agent": _by_agent,
}
