"""Queues in strict order, and the place of each job in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.planning.allocation import Link
from echelon.planning.paths import Paths, links_of
from echelon.planning.plan import (
    CONTROL_QUEUE,
    LEVELS,
    FlowPlan,
    FlowPlans,
    PortSchedule,
    QueuePlan,
)
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.fixed import Fixed

BEST_EFFORT_QUEUE = 0
JOB_QUEUES = range(1, CONTROL_QUEUE)
"""The queues of flows that jobs claim: above best effort, below acknowledgements."""
MIN_SHARE = Fraction(1, 100)
"""The guaranteed part of the port of each lower queue where flows move between queues.

A packet that waits there keeps moving, so that the next packet of its flow can be ranked anew.
Where queues are in the order of ranks, there is none: a flow may fall to a lower queue at once,
because its packets in the higher one leave first.
"""


def strict(min_share: Fraction = Fraction(0)) -> PortSchedule:
    """Return one queue at each level.

    Every queue but the highest is guaranteed `min_share` of the port.
    """
    lower = [QueuePlan(level, min_share=min_share) for level in range(LEVELS - 1)]
    return (*lower, QueuePlan(LEVELS - 1))


def equal() -> PortSchedule:
    """Return equal queues, and above them that of acknowledgements."""
    return (*[QueuePlan(level=0)] * CONTROL_QUEUE, QueuePlan(level=1))


def links_of_jobs(paths: Mapping[str, Paths]) -> dict[str, frozenset[Link]]:
    """Return the links that the flows of each job use, by job."""
    links = {}
    for job, job_paths in paths.items():
        different = set(job_paths.values())
        links[job] = frozenset(link for path in different for link in links_of(path))
    return links


def queues_in_order(order: Sequence[str], links: Mapping[str, frozenset[Link]]) -> dict[str, int]:
    """Return a queue for each job, below those of earlier jobs that it shares a link with.

    Jobs that never meet can share a queue, so most orders need few. Where a chain of jobs that meet
    is longer than there are queues, the last jobs share the lowest.
    """
    queues = {}
    lowest_at: dict[Link, int] = {}
    for job in order:
        queue = JOB_QUEUES[-1]
        for link in links[job]:
            if link in lowest_at:
                queue = min(queue, lowest_at[link] - 1)
        queues[job] = max(queue, JOB_QUEUES[0])
        lowest_at.update(dict.fromkeys(links[job], queues[job]))
    return queues


def fixed_flows(
    job: str,
    paths: Paths,
    queue: int,
) -> FlowPlans:
    """Return the flows of a job, all in one queue."""
    return ranked_flows(job, paths, dict.fromkeys(paths, Fixed(queue)))


def ranked_flows(
    job: str,
    paths: Paths,
    rankings: Mapping[str, Ranking],
) -> FlowPlans:
    """Return the flows of a job, ranked like this; those without a ranking are best effort."""
    flows = []
    for flow, path in paths.items():
        ranking = rankings.get(flow, _BEST_EFFORT)
        flows.append(FlowPlan(job, flow, ranking, path))
    return tuple(flows)


_BEST_EFFORT = Fixed(BEST_EFFORT_QUEUE)
