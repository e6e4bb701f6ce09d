"""The identity by which a switch recognises the packets of a flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from echelon.fabric.model import Fabric
from echelon.jobs.analysis import connections
from echelon.jobs.graph import FlowKey, Job
from echelon.lowering.errors import LoweringError

if TYPE_CHECKING:
    from echelon.jobs.spec import JobSpec, RecognitionSpec

FiveTuple = tuple[str, str, str, int, int]
"""A connection: (protocol, source address, destination address, source port, destination port)."""


@dataclass(frozen=True, slots=True)
class ShimIdentity:
    """An identity that the sender writes into the shim header of every packet."""

    job: int
    flow: int


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """An identity by position: the flow is a range of the bytes that its connection carries in one iteration.

    The sender knows nothing of Echelon. Bytes are payload of TCP or UDP. A new iteration starts on the connection after
    `idle_gap_s` seconds without a packet, once 95 % of `iteration_bytes` have passed.
    """

    src_ipv4: str
    dst_ipv4: str
    protocol: str
    """The protocol: tcp or udp."""
    src_port: int
    dst_port: int
    start_bytes: int
    end_bytes: int
    """Position of the first byte after the flow."""
    iteration_bytes: int
    """Bytes that the connection carries in a whole iteration."""
    idle_gap_s: Fraction

    @property
    def five_tuple(self) -> FiveTuple:
        return self.protocol, self.src_ipv4, self.dst_ipv4, self.src_port, self.dst_port


Identity = ShimIdentity | SegmentIdentity


def number_shims(jobs: Sequence[Job]) -> dict[FlowKey, ShimIdentity]:
    """Number jobs and flows for senders that write the shim: jobs from 1 in their order, flows from 0 in theirs."""
    return {
        (job.name, flow.name): ShimIdentity(number, index)
        for number, job in enumerate(jobs, start=1)
        for index, flow in enumerate(job.flows)
    }


SHIM_NUMBERS = 1 << 16
"""Number of jobs, and of flows of one job, that the shim header can distinguish."""


def identities_of(job: Job, number: int, spec: JobSpec, fabric: Fabric) -> Mapping[str, Identity]:
    """Return how switches recognise each flow of a job, as the `recognition` section of its file says.

    By shim, flows are numbered from 0 in the job's order and the job is `number`. By bytes, each pair of workers has
    one connection, which carries its flows in the order of `echelon.jobs.analysis.connections`. Workers are hosts of
    `fabric`. Raise `LoweringError` for more flows than the shim can number.
    """
    return _RECOGNITIONS[spec.recognition.by](job, number, spec.recognition, fabric)


def _by_shim(job: Job, number: int, _recognition: RecognitionSpec, _fabric: Fabric) -> dict[str, Identity]:
    if max(len(job.flows), number + 1) > SHIM_NUMBERS:
        raise LoweringError(
            f"job {job.name}: {len(job.flows)} flows of job number {number}: the shim header numbers {SHIM_NUMBERS} of "
            "each; use fewer workers or micro-batches",
            job.name,
        )
    return {flow.name: ShimIdentity(number, index) for index, flow in enumerate(job.flows)}


def _by_bytes(job: Job, _number: int, recognition: RecognitionSpec, fabric: Fabric) -> dict[str, Identity]:
    src_port, dst_port, gap_s = recognition.source_port, recognition.destination_port, recognition.idle_gap
    # The file's loader has checked this.
    assert src_port is not None
    assert dst_port is not None
    assert gap_s is not None
    out: dict[str, Identity] = {}
    for (src, dst), flows in connections(job).items():
        edges = list(accumulate((flow.size_bytes for flow in flows), initial=0))
        for flow, (start, end) in zip(flows, pairwise(edges), strict=True):
            out[flow.name] = SegmentIdentity(
                src_ipv4=fabric.hosts[src].ipv4,
                dst_ipv4=fabric.hosts[dst].ipv4,
                protocol=recognition.protocol or "tcp",
                src_port=src_port,
                dst_port=dst_port,
                start_bytes=start,
                end_bytes=end,
                iteration_bytes=edges[-1],
                idle_gap_s=gap_s,
            )
    return out


_RECOGNITIONS = {"shim": _by_shim, "bytes": _by_bytes}
