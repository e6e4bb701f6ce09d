"""Queues in strict order, and the place of each job in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.planning.allocation import Link
from echelon.planning.paths import Paths, links_of
from echelon.planning.plan import CONTROL_QUEUE, LEVELS, FlowPlan, PortSchedule, QueuePlan
from echelon.planning.rankings.fixed import Fixed

BEST_EFFORT_QUEUE = 0
JOB_QUEUES = range(1, CONTROL_QUEUE)
"""The queues of flows that jobs claim: above best effort, below acknowledgements."""
MIN_SHARE = Fraction(1, 100)
"""The part of the port that each queue below the highest is guaranteed where flows move between
queues.

A packet that waits there keeps moving, so that the next packet of its flow can be ranked anew.
"""


def strict(min_share: Fraction = Fraction(0)) -> PortSchedule:
    """Return one queue at each level.

    Every queue but the highest is guaranteed `min_share` of the port.
    """
    return (
        *(QueuePlan(level, min_share=min_share) for level in range(LEVELS - 1)),
        QueuePlan(LEVELS - 1),
    )


def links_of_jobs(paths: Mapping[str, Paths]) -> dict[str, frozenset[Link]]:
    """Return the links that the flows of each job use, by job."""
    return {
        job: frozenset(link for path in set(of_job.values()) for link in links_of(path))
        for job, of_job in paths.items()
    }


def queues_in_order(order: Sequence[str], links: Mapping[str, frozenset[Link]]) -> dict[str, int]:
    """Return a queue for each job of `order`, below that of every earlier job with which it shares
    a link.

    Jobs that never meet can share a queue, so most orders need few. Where a chain of jobs that meet
    is longer than there are queues, the last jobs share the lowest.
    """
    queues: dict[str, int] = {}
    lowest_at: dict[Link, int] = {}
    for job in order:
        queue = min(
            (lowest_at[link] - 1 for link in links[job] if link in lowest_at),
            default=JOB_QUEUES[-1],
        )
        queues[job] = max(queue, JOB_QUEUES[0])
        lowest_at.update(dict.fromkeys(links[job], queues[job]))
    return queues


def fixed_flows(job: str, paths: Paths, queue: int) -> tuple[FlowPlan, ...]:
    """Return the flows of a job, all in one queue."""
    return tuple(FlowPlan(job, flow, Fixed(queue), path) for flow, path in paths.items())
