"""An assignment of communicators to the queues of a port, and its plan."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.communicators import communicators
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import (
    CONTROL_QUEUE,
    LEVELS,
    FlowPlans,
    Plan,
    PortSchedule,
    QueuePlan,
)
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.echelon.candidates import PlanCandidate
from echelon.planning.policies.levels import (
    BEST_EFFORT_QUEUE,
    JOB_QUEUES,
    ranked_flows,
    strict,
)
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.fixed import InTurn

PATHS_BY_ADDRESS: Mapping[str, Callable[[], PathChooser] | None] = {
    "kept": None,
    "address": partial(LeastCongested, by_address=True),
}
"""Choosers of paths by name: kept ones, or the least congested that switches have by address."""
RATIOS = (0, 1, 2, 4)
"""The weight of a class over that of the next lower one; 0: classes are in strict order."""
_MOST_WEIGHT = 100
"""The highest weight that SONiC takes."""
_IN_LABEL = 4
"""The most communicators that a label names."""

Communicator = tuple[str, str]
"""A job and the first EchelonFlow of the communicator, by name."""


def queues_of(classes: int) -> Sequence[int]:
    """Return the queues of so many classes, from 1 to 8, the lowest first.

    From the seventh on, a class shares the queue of best effort, and then that of acknowledgements.
    """
    preferred = [
        *reversed(JOB_QUEUES),
        BEST_EFFORT_QUEUE,
        CONTROL_QUEUE,
    ]
    return sorted(preferred[:classes])


def schedule_of(
    classes: int,
    ratio: int,
) -> PortSchedule:
    """Return the queues of every port for so many classes with a ratio of `RATIOS`."""
    if not ratio:
        return strict()
    # Switches serve strict queues by their number, and share the rest: so best effort shares, too.
    schedule = [QueuePlan(0)] * CONTROL_QUEUE
    weight = 1
    for queue in queues_of(classes):
        if queue != CONTROL_QUEUE:
            schedule[queue] = QueuePlan(0, min(weight, _MOST_WEIGHT))
            weight *= ratio
    return (*schedule, QueuePlan(1))


def communicators_of(jobs: Iterable[Job]) -> list[Communicator]:
    """Return the communicators of some jobs."""
    members = []
    for job in jobs:
        for name in dict.fromkeys(communicators(job).values()):
            members.append((job.name, name))
    return members


@dataclass(frozen=True, slots=True)
class Assignment(PlanCandidate):
    """A class for each communicator; those without one have the class in the middle."""

    choosers = PATHS_BY_ADDRESS
    order: str = "classes"
    classes: int = LEVELS
    """The number of classes."""
    chosen: tuple[tuple[Communicator, int], ...] = ()
    """The class of each communicator, from 0 for the lowest, by name."""
    ratio: int = 0
    """One of `RATIOS`."""

    @property
    def label(self) -> str:
        """Return a name for people."""
        words = [f"{self.classes} classes"]
        if self.paths != "kept":
            words.append(f"paths={self.paths}")
        if self.ratio:
            words.append(f"weights ×{self.ratio}")
        for communicator, number in self.chosen[:_IN_LABEL]:
            name = "/".join(communicator)
            words.append(f"{name}={number}")
        if len(self.chosen) > _IN_LABEL:
            words.append("…")
        return " ".join(words)

    def new_policy(self, similar: object = None) -> Assigned:
        """Return a new policy with these classes."""
        return Assigned(self)

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "classes": self.classes,
            "communicators": [[*communicator, number] for communicator, number in self.chosen],
            "paths": self.paths,
            "ratio": self.ratio,
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Assignment:
        """Return what `to_document` returned. Raises `ValueError`."""
        classes = int(document["classes"])
        ratio = int(document["ratio"])
        if ratio not in RATIOS:
            raise ValueError(f"there is no ratio {ratio} of classes")
        # Older stores have no paths.
        paths = str(document.get("paths", "kept"))
        if paths not in PATHS_BY_ADDRESS:
            raise ValueError(f"there are no paths '{paths}'")
        chosen = {}
        for job, echelonflow, number in document["communicators"]:
            if number not in range(classes):
                raise ValueError(f"there is no class {number} of {classes}")
            chosen[job, echelonflow] = number
        assignment = cls(classes=classes, ratio=ratio, paths=paths)
        return assignment.with_classes(chosen)

    def with_classes(self, changed: Mapping[Communicator, int]) -> Assignment:
        """Return this assignment with other classes of some communicators.

        In strict order, they are spread over all classes in their order, so that there is room
        between them for the next.
        """
        chosen = {**dict(self.chosen), **changed}
        if not self.ratio:
            levels = sorted({*chosen.values()})
            spread = {}
            for place, level in enumerate(levels):
                spread[level] = (2 * place + 1) * self.classes // (2 * len(levels))
            chosen = {communicator: spread[number] for communicator, number in chosen.items()}
        # Equal assignments are simulated once.
        ordered = sorted(chosen.items())
        return replace(self, chosen=tuple(ordered))

    @property
    def queue_by_class(self) -> Sequence[int]:
        """Return the queue of each class.

        In strict order, those that some communicator has get the queues of jobs as far as there
        are, and the others that of the next lower one.
        """
        if self.ratio:
            return queues_of(self.classes)
        levels = sorted({number for _, number in self.chosen})
        queues = queues_of(max(1, len(levels)))
        by_class = []
        for number in range(self.classes):
            place = bisect_right(levels, number) - 1
            by_class.append(queues[max(0, place)])
        return by_class


class Assigned:
    """A policy of one assignment."""

    name = "classes"

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._paths = FlowPaths()
        classes = dict(assignment.chosen)
        self._flows = Kept(partial(_flows, assignment.queue_by_class, classes))

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return the plan. Raises `PlanError` if a worker cannot be reached."""
        assignment = self._assignment
        paths_by_job = self._paths.update(jobs, fabric, paths)
        rows = {job.name: (job, paths_by_job[job.name]) for job in jobs}
        flows = self._flows.update(rows)
        schedules = {}
        if assignment.ratio:
            # NICs serve classes in strict order, and have no weights of their own.
            for host in fabric.hosts:
                for port in fabric.ports[host]:
                    schedules[host, fabric.neighbour[host, port]] = strict()
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=schedule_of(assignment.classes, assignment.ratio),
            schedules=schedules,
            hosts_rank=True,
        )


def _flows(
    queues: Sequence[int],
    classes: Mapping[Communicator, int],
    job: Job,
    paths: Paths,
) -> FlowPlans:
    middle = len(queues) // 2
    rankings: dict[str, Ranking] = dict.fromkeys(paths, InTurn(queues[middle]))
    names = communicators(job)
    for echelonflow in job.echelonflows:
        communicator = job.name, names[echelonflow.name]
        number = classes.get(communicator, middle)
        ranking = InTurn(queues[number])
        rankings |= dict.fromkeys(echelonflow.flows, ranking)
    return ranked_flows(job.name, paths, rankings)
