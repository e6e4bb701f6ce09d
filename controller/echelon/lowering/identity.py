"""How a switch recognises the packets of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.jobs.graph import Job

FlowKey = tuple[str, str]
"""(job, flow)."""


@dataclass(frozen=True, slots=True)
class ShimIdentity:
    """The sender writes these numbers into the shim header of every packet."""

    job: int
    flow: int


@dataclass(frozen=True, slots=True)
class SegmentIdentity:
    """The flow is a stretch of what its connection carries in one iteration; the sender knows nothing of Echelon.

    Bytes are payload of TCP or UDP. A new iteration starts on the connection after `idle_gap_s` without a packet, once
    95 % of `iteration_bytes` were seen.
    """

    src_ipv4: str
    dst_ipv4: str
    protocol: str
    """tcp or udp."""
    src_port: int
    dst_port: int
    start_bytes: int
    end_bytes: int
    """Position of the first byte that is not of the flow."""
    iteration_bytes: int
    """What the connection carries in a whole iteration."""
    idle_gap_s: Fraction


Identity = ShimIdentity | SegmentIdentity


def number_shims(jobs: Sequence[Job]) -> dict[FlowKey, ShimIdentity]:
    """Numbers for senders that write the shim: jobs from 1 in their order, flows from 0 in theirs."""
    return {
        (job.name, flow.name): ShimIdentity(number, index)
        for number, job in enumerate(jobs, start=1)
        for index, flow in enumerate(job.flows)
    }
