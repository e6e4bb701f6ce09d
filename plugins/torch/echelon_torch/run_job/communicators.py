"""The ranks of a job that communicate with each other, by its file, and their EchelonFlows.

Collectives of the same ranks are one communicator. So are all ranks that a chain of sends joins: a
pipeline has one process group for all of its stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from echelon.model.jobs import build_job
from echelon.model.jobs.communicators import chains
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import CollectiveStep, Flow, Job
from echelon.model.jobs.paradigms.graph import Graph
from echelon.model.jobs.ranked import RankedParadigm
from echelon.model.jobs.spec import JobSpec

Direction = tuple[int, int]
"""The sending and the receiving rank."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """An EchelonFlow and the ranks between which its flows go."""

    echelonflow: str
    ranks: frozenset[int]
    direction: Direction | None = None
    """Set if its flows are sends from one rank to another, and no collectives."""
    group: str = ""
    """The name that the file gives the group of a collective; empty: none."""

    def goes(self, directions: Collection[Direction]) -> bool:
        """Return whether some of it may go in one of these directions."""
        return self.direction is None or self.direction in directions

    def placed(self, places: Sequence[int]) -> Traffic:
        """Return the same between the places of the ranks, such as their hosts."""
        direction = None
        if self.direction is not None:
            src, dst = self.direction
            direction = places[src], places[dst]
        return replace(
            self,
            ranks=frozenset(map(places.__getitem__, self.ranks)),
            direction=direction,
        )


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of a communicator, and what they send each other."""

    ranks: frozenset[int]
    traffic: tuple[Traffic, ...]
    group: str = ""
    """The name of the group in the job's file; empty: it has none."""


@dataclass(frozen=True)
class JobLayout:
    """The ranks of a job's file, and what they send each other."""

    hosts: tuple[str, ...]
    """The hosts of the job in the order of the file."""
    ranks_per_host: int
    traffic: tuple[Traffic, ...]

    @cached_property
    def communicators(self) -> tuple[Communicator, ...]:
        """The communicators of ranks of the file."""
        return tuple(_communicators(self.traffic))

    @cached_property
    def communicators_of_hosts(self) -> tuple[Communicator, ...]:
        """The communicators of hosts, by their places in `hosts`."""
        places = [rank // self.ranks_per_host for rank in range(self.ranks)]
        traffic = []
        for each in self.traffic:
            traffic.append(each.placed(places))
        return tuple(_communicators(traffic))

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.hosts) * self.ranks_per_host


def job_layout(spec: JobSpec) -> JobLayout:
    """Return the layout of a job.

    Where the file has ranks, they are those of the program. Elsewhere hosts are ranks.
    """
    paradigm = spec.paradigm
    job = build_job(spec)
    if isinstance(paradigm, RankedParadigm):
        hosts = spec.workers
        ranks_per_host = paradigm.ranks_per_worker
        traffic = _of_ranks(paradigm.free(len(hosts)), _groups(paradigm), job)
    else:
        hosts = tuple(spec.hosts)
        ranks_per_host = 1
        traffic = _of_hosts(hosts, job)
    return JobLayout(hosts, ranks_per_host, tuple(traffic))


def _groups(paradigm: RankedParadigm) -> Mapping[str, str]:
    """Return the name of the group of each collective whose group has one."""
    groups = {}
    if isinstance(paradigm, Graph):
        for node in paradigm.nodes:
            if isinstance(node.group, str):
                groups[node.name] = node.group
    return groups


def _of_ranks(
    graph: FreeGraph,
    groups: Mapping[str, str],
    job: Job,
) -> Iterator[Traffic]:
    steps = {}
    for step in graph.nodes:
        steps[step.name] = step

    # A derived EchelonFlow has the name of its first operation, and others of the same ranks.
    for echelonflow in job.echelonflows:
        name = echelonflow.name
        step = steps[name]
        if isinstance(step, Flow):
            src = int(step.src)
            dst = int(step.dst)
            yield Traffic(name, frozenset((src, dst)), (src, dst))
        elif isinstance(step, CollectiveStep) and not _is_wait(step):
            ranks = frozenset(map(int, step.group))
            group = groups.get(name, "")
            yield Traffic(name, ranks, None, group)


def _is_wait(step: CollectiveStep) -> bool:
    """Return whether a collective only stands for a wait, as of a sender for its receiver."""
    return step.matrix is None and step.size_bytes <= 1


def _of_hosts(hosts: Sequence[str], job: Job) -> Iterator[Traffic]:
    places = {}
    for place, host in enumerate(hosts):
        places[host] = place
    ends_by_flow = {}
    for flow in job.flows:
        ends_by_flow[flow.name] = flow.ends

    for echelonflow in job.echelonflows:
        ends = set(map(ends_by_flow.__getitem__, echelonflow.flows))
        names = frozenset[str]().union(*ends)
        ranks = frozenset(map(places.__getitem__, names))
        direction = None
        if len(ends) == 1 and len(ranks) == 2:
            src, dst = ends.pop()
            direction = places[src], places[dst]
        yield Traffic(echelonflow.name, ranks, direction)


def _communicators(traffic: Iterable[Traffic]) -> Iterator[Communicator]:
    collectives: dict[tuple[frozenset[int], str], list[Traffic]] = {}
    sends = []
    for each in traffic:
        # What stays at one place does not pass the network.
        if len(each.ranks) < 2:
            continue
        if each.direction is None:
            key = each.ranks, each.group
            collectives.setdefault(key, []).append(each)
        else:
            sends.append(each)

    for (ranks, group), members in collectives.items():
        yield Communicator(ranks, tuple(members), group)
    for ranks in chains(each.ranks for each in sends):
        members = [each for each in sends if each.ranks <= ranks]
        yield Communicator(ranks, tuple(members))
