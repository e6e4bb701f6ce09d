"""The check of a job's flow sizes against what its hosts measure.

A host knows how many bytes it has sent to each other host in an iteration, whatever the network did
meanwhile. It does not know which flow they belonged to. So one factor is looked for in each
direction between two hosts, measured over profiled bytes, and the sizes of all flows of that
direction are multiplied by it.

`AGREEING` iterations in a row must agree, and factors beyond `MAX_FACTOR` are of another job. A job
whose hosts send where its file has no flow has another structure, so nothing of it is corrected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.jobs.graph import Job

AGREEING = 8
"""The number of iterations in a row whose factors must be within `SIZE_TOLERANCE` of each other."""
MAX_FACTOR = 16
"""The largest credible factor, and one over it the smallest."""
SIZE_TOLERANCE = Fraction(1, 50)
"""The tolerance of a right size, well within the 5 % of bytes without which an iteration ends."""

Direction = tuple[str, str]
"""The source host and the destination host."""


@dataclass(frozen=True, slots=True)
class HostIteration:
    """An iteration of a job, as one of its hosts measured it."""

    duration_s: Fraction
    sent_bytes: Mapping[str, int]
    """The bytes sent, by destination host. Each byte counts once."""
    retransmitted_bytes: int = 0
    stalled_s: Fraction = Fraction(0)
    """The time with data to send but no room in the send buffer, over all connections."""


Measured = Mapping[str, Sequence[HostIteration]]
"""The latest iterations of each host that measures, oldest first."""


def profiled_bytes(job: Job) -> dict[Direction, int]:
    """Return the bytes of an iteration by direction."""
    sizes: dict[Direction, int] = defaultdict(int)
    for flow in job.flows:
        sizes[flow.src, flow.dst] += flow.size_bytes
    return dict(sizes)


def size_factors(
    job: Job,
    measured: Measured,
    before: Mapping[Direction, Fraction],
) -> Mapping[Direction, Fraction]:
    """Return the factors by which the sizes of the job's flows should be multiplied.

    Factors of 1 are left out. `before` has those in force. They stay where iterations do not agree,
    or agree on them within the tolerance.
    """
    profile = profiled_bytes(job)
    measured_factors: dict[Direction, Fraction] = {}
    for host, iterations in measured.items():
        latest = iterations[-AGREEING:]
        if len(latest) < AGREEING:
            continue
        profiled = sum(size for (src, _), size in profile.items() if src == host)
        for direction, sent in _sent_bytes(host, latest).items():
            if direction not in profile:
                if min(sent) > SIZE_TOLERANCE * profiled:
                    # The job has another structure.
                    return {}
                continue
            latest_factors = [Fraction(size, profile[direction]) for size in sent]
            factor = agreed(latest_factors, SIZE_TOLERANCE)
            if factor is not None and Fraction(1, MAX_FACTOR) <= factor <= MAX_FACTOR:
                measured_factors[direction] = factor

    factors = {direction: factor for direction, factor in before.items() if direction in profile}
    for direction, factor in measured_factors.items():
        in_force = factors.get(direction, 1)
        if abs(factor - in_force) <= SIZE_TOLERANCE * in_force:
            continue
        # A profile that is right after all is not to be made a little wrong.
        is_right = abs(factor - 1) <= SIZE_TOLERANCE
        factors[direction] = Fraction(1) if is_right else factor
    return {direction: factor for direction, factor in factors.items() if factor != 1}


def _sent_bytes(host: str, iterations: Sequence[HostIteration]) -> dict[Direction, list[int]]:
    """Return what a host has sent in each direction, iteration by iteration."""
    destinations: set[str] = set()
    for iteration in iterations:
        destinations.update(iteration.sent_bytes)
    sent = {}
    for destination in destinations:
        sizes = [iteration.sent_bytes.get(destination, 0) for iteration in iterations]
        sent[host, destination] = sizes
    return sent


def agreed(factors: Collection[Fraction], tolerance: Fraction) -> Fraction | None:
    """Return the median of the factors if all are within `tolerance` of it.

    Of an even number of factors it is the upper of the two in the middle.
    """
    ordered = sorted(factors)
    median = ordered[len(ordered) // 2]
    if all(abs(factor - median) <= tolerance * median for factor in factors):
        return median
    return None


def with_sizes(job: Job, factors: Mapping[Direction, Fraction]) -> Job:
    """Return the job with the sizes of its flows multiplied by the factors of their directions."""
    if not factors:
        return job
    flows = []
    for flow in job.flows:
        factor = factors.get((flow.src, flow.dst))
        if factor is not None:
            size_bytes = max(1, round(flow.size_bytes * factor))
            flow = replace(flow, size_bytes=size_bytes)
        flows.append(flow)
    return replace(job, flows=tuple(flows))
