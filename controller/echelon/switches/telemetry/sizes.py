"""The check of a job's flow sizes against what its hosts measure, and the sizes that its flows
should have.

A host knows how many bytes it has sent to each other host in an iteration, whatever the network did
meanwhile. It does not know which flow they belonged to. So one factor is looked for in each
direction between two hosts, measured over profiled bytes, and the sizes of all flows of that
direction are multiplied by it.

The rules are those of `echelon.switches.telemetry.corrections`, with a smaller tolerance, because
switches tell flows apart by their sizes: `AGREEING` iterations in a row must agree, and factors
beyond `MAX_FACTOR` are of another job. A job whose hosts send where its file has no flow has
another structure, so nothing of it is corrected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.model.jobs.graph import Job
from echelon.switches.telemetry.corrections import AGREEING, MAX_FACTOR, agreed

SIZE_TOLERANCE = Fraction(1, 50)
"""An iteration that has brought 95 % of its bytes may end, so a right size must be well within
that.
"""

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
    """The time in which there was data to send but no room in the send buffer, over all
    connections.
    """


Measured = Mapping[str, Sequence[HostIteration]]
"""The latest iterations of each host that measures, oldest first."""


def profiled_bytes(job: Job) -> dict[Direction, int]:
    """Return the bytes of an iteration by direction."""
    found: dict[Direction, int] = defaultdict(int)
    for flow in job.flows:
        found[flow.src, flow.dst] += flow.size_bytes
    return dict(found)


def size_factors(
    job: Job, measured: Measured, before: Mapping[Direction, Fraction]
) -> Mapping[Direction, Fraction]:
    """Return the factors by which the sizes of the `job`'s flows should be multiplied, where these
    are not 1.

    `before` has those in force. They stay where iterations do not agree, or agree on them within
    the tolerance.
    """
    profile = profiled_bytes(job)
    found: dict[Direction, Fraction] = {}
    for host, iterations in measured.items():
        latest = iterations[-AGREEING:]
        if len(latest) < AGREEING:
            continue
        whole = sum(size for (src, _), size in profile.items() if src == host)
        for other in {one for iteration in latest for one in iteration.sent_bytes}:
            sent = [iteration.sent_bytes.get(other, 0) for iteration in latest]
            if (host, other) not in profile:
                if min(sent) > SIZE_TOLERANCE * whole:
                    return {}
                continue
            factor = agreed([Fraction(size, profile[host, other]) for size in sent], SIZE_TOLERANCE)
            if factor is not None and Fraction(1, MAX_FACTOR) <= factor <= MAX_FACTOR:
                found[host, other] = factor
    kept = {at: factor for at, factor in before.items() if at in profile}
    for at, factor in found.items():
        if abs(factor - kept.get(at, 1)) > SIZE_TOLERANCE * kept.get(at, 1):
            # A profile that is right after all is not to be made a little wrong.
            kept[at] = Fraction(1) if abs(factor - 1) <= SIZE_TOLERANCE else factor
    return {at: factor for at, factor in kept.items() if factor != 1}


def with_sizes(job: Job, factors: Mapping[Direction, Fraction]) -> Job:
    """Return the job with the sizes of its flows multiplied by the factors of their directions."""
    if not factors:
        return job
    return replace(
        job,
        flows=tuple(
            replace(flow, size_bytes=max(1, round(flow.size_bytes * factors[flow.src, flow.dst])))
            if (flow.src, flow.dst) in factors
            else flow
            for flow in job.flows
        ),
    )
