"""Flows spread over equal queues, so that flows that are likely to meet at a port are in different
ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import Link
from echelon.planning.paths import Paths, links_of
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.fixed import Fixed


class Spread:
    """A queue of `queues` for each flow of each job.

    Two kinds of flows are likely to meet: consecutive ones of one EchelonFlow, which go round the
    queues port by port, and those of different jobs, which begin at different queues. A job keeps
    its queues while others come and go: the policy carries the spread from plan to plan
    (`echelon.planning.policies.base.Carried`).
    """

    def __init__(self, queues: Sequence[int]) -> None:
        self._queues = queues
        self._first: dict[str, int] = {}
        """The index into the queues at which each job begins."""
        self._flows = Kept(partial(_spread, queues))

    def update(
        self, jobs: Sequence[Job], paths: Mapping[str, Paths]
    ) -> Mapping[str, tuple[FlowPlan, ...]]:
        """Return the queues by job; the same object as at the last call if the job is the same and
        has the same `paths`."""
        self._first = _beginnings(self._first, [job.name for job in jobs], len(self._queues))
        return self._flows.update(
            {job.name: (job, paths[job.name], self._first[job.name]) for job in jobs}
        )

    def to_document(self) -> dict[str, Any]:
        """Return the place at which each job begins."""
        return {"first": dict(self._first)}

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from these places. Raises `ValueError`."""
        first = {str(job): int(place) for job, place in document["first"].items()}
        if not all(0 <= place < len(self._queues) for place in first.values()):
            raise ValueError(f"a job begins at none of {len(self._queues)} queues")
        self._first = first


def _spread(queues: Sequence[int], job: Job, paths: Paths, first: int) -> tuple[FlowPlan, ...]:
    size = len(queues)
    queue: dict[str, int] = {}
    links = {
        path: links_of(path)[1:] for path in set(paths.values())
    }  # a host's own link has no queues
    grouped = {name for echelonflow in job.echelonflows for name in echelonflow.flows}
    alone = [(flow.name,) for flow in job.flows if flow.name not in grouped]
    for group in (*(echelonflow.flows for echelonflow in job.echelonflows), *alone):
        used: Counter[tuple[Link, int]] = Counter()
        for name in group:
            ports = links[paths[name]]
            turns = range(first, first + size)
            turn = min(
                turns, key=lambda k: (max((used[link, k % size] for link in ports), default=0), k)
            )
            used.update((link, turn % size) for link in ports)
            queue[name] = queues[turn % size]
    return tuple(FlowPlan(job.name, flow, Fixed(queue[flow]), path) for flow, path in paths.items())


def _beginnings(before: Mapping[str, int], jobs: Sequence[str], size: int) -> dict[str, int]:
    """Return where each job begins, 0 to `size` - 1: jobs keep their place, and new ones are as far
    apart as possible."""
    known = {job: before[job] for job in jobs if job in before}
    if not known:
        step = max(1, size // max(1, len(jobs)))
        return {job: number * step % size for number, job in enumerate(jobs)}
    crowd = Counter(known.values())

    def gap(index: int) -> int:
        return min(min((index - other) % size, (other - index) % size) for other in crowd)

    for job in jobs:
        if job not in known:
            known[job] = min(range(size), key=lambda index: (crowd[index], -gap(index), index))
            crowd[known[job]] += 1
    return {job: known[job] for job in jobs}
