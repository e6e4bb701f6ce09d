"""Flows spread over equal queues: those that are likely to meet are in different ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept, by_name, picked, without
from echelon.planning.allocation import Link
from echelon.planning.paths import Paths, links_of
from echelon.planning.plan import FlowPlans
from echelon.planning.policies.base import BY_JOB
from echelon.planning.policies.levels import ranked_flows
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

    def update(self, jobs: Sequence[Job], paths: Mapping[str, Paths]) -> Mapping[str, FlowPlans]:
        """Return the flows by job; the same object as at the last call if nothing changed.

        Identity: see `echelon.planning`.
        """
        names = [*by_name(jobs)]
        first = self._first = _beginnings(self._first, names, len(self._queues))
        job_paths = map(paths.__getitem__, names)
        rows = zip(jobs, job_paths, first.values(), strict=True)
        return self._flows.update(dict(zip(names, rows, strict=True)))

    def to_document(self) -> dict[str, Any]:
        """Return the place at which each job begins."""
        return {BY_JOB: self._first}

    def take(self, document: Mapping[str, Any]) -> None:
        """Continue from these places. Raises `ValueError`."""
        count = len(self._queues)
        first = {}
        # Stores of older versions have all places in one document.
        places = document.get(BY_JOB, document.get("first", {}))
        for job, place in places.items():
            index = int(place)
            first[str(job)] = index
            if not 0 <= index < count:
                raise ValueError(f"a job begins at none of {count} queues")
        self._first = first


def _spread(
    queues: Sequence[int],
    job: Job,
    paths: Paths,
    first: int,
) -> FlowPlans:
    # In the order in which the job uses them.
    in_turn = [Fixed(queue) for queue in (*queues[first:], *queues[:first])]
    unused = [0] * len(queues)
    rankings = {}
    # A host's own link has no queues.
    ports_by_path = {path: links_of(path)[1:] for path in set(paths.values())}
    groups = [echelonflow.flows for echelonflow in job.echelonflows]
    grouped = {name for group in groups for name in group}
    groups += [(flow.name,) for flow in job.flows if flow.name not in grouped]
    for group in groups:
        uses_by_port: dict[Link, list[int]] = {}
        for name in group:
            uses = []
            for port in ports_by_path[paths[name]]:
                if port not in uses_by_port:
                    uses_by_port[port] = unused.copy()
                uses.append(uses_by_port[port])
            most = list(map(max, unused, *uses))
            # Of queues that are used as little, the next one in turn.
            turn = most.index(min(most))
            for port_uses in uses:
                port_uses[turn] += 1
            rankings[name] = in_turn[turn]
    return ranked_flows(job.name, paths, rankings)


def _beginnings(
    before: Mapping[str, int],
    jobs: Sequence[str],
    size: int,
) -> dict[str, int]:
    """Return the index at which each job begins: new ones are as far apart as possible.

    Jobs keep theirs.
    """
    # In C for all jobs but those that are new: there may be ten thousand.
    kept = [*filter(before.__contains__, jobs)]
    first = picked(before, kept)
    if not first:
        step = max(1, size // max(1, len(jobs)))
        return {job: number * step % size for number, job in enumerate(jobs)}
    crowd = Counter(first.values())

    def gap(index: int) -> int:
        distances: list[int] = []
        for used in crowd:
            distances += (index - used) % size, (used - index) % size
        return min(distances)

    def crowding(index: int) -> tuple[int, int]:
        return crowd[index], -gap(index)

    for job in without(jobs, before):
        index = min(range(size), key=crowding)
        first[job] = index
        crowd[index] += 1
    return picked(first, jobs)
