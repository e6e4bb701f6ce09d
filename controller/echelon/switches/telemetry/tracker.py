"""The tracker: flow events become iteration times, tardiness and observed distances.

It works while jobs come and go and plans change, in memory that does not grow with time. No I/O;
for one thread.

Starts are taken at the first switch of a flow's path, where the flow has not waited in the network
yet. Tardiness is taken at the last switch, where the flow's last packet has passed every queue but
one. Times of different switches are never compared: each has its own clock.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, TypeVar

from echelon.model.jobs.graph import EchelonFlow, Job
from echelon.planning.plan import FlowPlan
from echelon.switches.telemetry.epochs import BEHIND, Counting, IterationClock
from echelon.switches.telemetry.events import FlowEvent

HISTORY = 64
"""Number of iterations of a job that are remembered."""

SMOOTHING = Fraction(1, 4)
"""The weight of the newest iteration in an observed distance (an exponentially weighted mean)."""

MAX_VALUES = 4096
"""Maximum number of values to keep of incomplete iterations.

A lost event leaves an iteration incomplete until it is too old.
"""

T = TypeVar("T")

Paths = Mapping[str, Sequence[str]]
"""The nodes of each flow's path from source host to destination host, both included."""


@dataclass(frozen=True, slots=True)
class EchelonFlowView:
    """The observations of one EchelonFlow."""

    tardiness_s: tuple[Fraction, ...]
    """Largest tardiness of its flows in each of the latest whole iterations, oldest first."""
    distances_s: tuple[Fraction, ...] | None
    """Smoothed start of each flow after the head flow's; None: no switch has seen all."""


@dataclass(frozen=True, slots=True)
class JobView:
    """The observations of one job."""

    iteration_times_s: tuple[Fraction, ...]
    """The latest known times, oldest first. An iteration that was not seen has none."""
    tardiness_s: Fraction | None
    """The largest tardiness of its EchelonFlows in the newest iteration that had all of them."""
    echelonflows: Mapping[str, EchelonFlowView]


@dataclass(frozen=True, slots=True)
class Observation:
    """The figures that one event completed."""

    iteration_s: Fraction | None = None
    """Duration of the iteration of the job that ended."""
    tardiness_s: Fraction | None = None
    """The job's largest tardiness in an iteration that is newer than those reported before."""


NOTHING = Observation()


class Tracker:
    """The record of what switches saw of jobs.

    It takes the events of each switch in their order, and those of several switches in any order.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, _TrackedJob] = {}

    def add(
        self,
        job: Job,
        paths: Paths,
        *,
        numbered_by_sender: bool = True,
    ) -> None:
        """Follow the job.

        A job that is followed already keeps its observations. If its EchelonFlows or computing
        changed, it keeps only its iteration times; if its flows changed, nothing. Flows that moved
        to another path are followed from their next iteration on.

        `numbered_by_sender`: the epochs of all switches mean the same iteration (shim). Otherwise
        each switch counts for itself, and an EchelonFlow whose flows end at several switches has no
        tardiness. Raises `KeyError` for a flow without a path.
        """
        former = self._jobs.get(job.name)
        if former is not None and former.is_same(job, numbered_by_sender):
            former.reroute(paths)
            return
        tracked = _TrackedJob(job, paths, numbered_by_sender)
        self._jobs[job.name] = tracked
        if former is not None:
            tracked.inherit(former)

    def remove(self, job: str) -> None:
        """Forget the job, if it is followed. Later reports of it are ignored."""
        self._jobs.pop(job, None)

    def reconnected(self, switch: str) -> None:
        """Note a new session with the switch: events were missed, its clock may be another one."""
        for job in self._jobs.values():
            job.lose(switch)

    def observe(self, event: FlowEvent) -> Observation:
        """Take note of an event.

        Events of jobs, flows or switches that are not followed are ignored.
        """
        job = self._jobs.get(event.job)
        if job is None or event.flow not in job.paths:
            return NOTHING
        return job.observe(event)

    def __contains__(self, job: str) -> bool:
        return job in self._jobs

    @property
    def jobs(self) -> Iterable[str]:
        """The followed jobs, in the order in which they were added."""
        return self._jobs.keys()

    def view(self, job: str) -> JobView:
        """Return what was seen of a job. Raise KeyError for a job that is not followed."""
        return self._jobs[job].view()


def head_flow(job: Job) -> str | None:
    """Return the flow by whose starts iterations are timed; None: the job has no flows."""
    if job.echelonflows:
        return job.echelonflows[0].flows[0]
    if job.flows:
        return job.flows[0].name
    return None


def paths_of(flows: Iterable[FlowPlan]) -> dict[str, Paths]:
    """Return the paths of a plan's flows, by job."""
    by_job: dict[str, dict[str, Sequence[str]]] = {}
    for flow in flows:
        paths = by_job.setdefault(flow.job, {})
        paths[flow.flow] = flow.path
    return dict(by_job)


class _TrackedJob:
    """A followed job: its flows, where they are seen, and what was seen."""

    def __init__(
        self,
        job: Job,
        paths: Paths,
        numbered_by_sender: bool,
    ) -> None:
        self._job = job
        self._numbered_by_sender = numbered_by_sender
        self.paths = {flow.name: tuple(paths[flow.name]) for flow in job.flows}
        self._head = head_flow(job)
        self._clock = IterationClock()
        self._counting: dict[str, Counting] = {}
        """The numbers of iterations by switch, or for all together where senders number them."""
        self._formations: dict[str, _Formation] = {}
        self._formation_by_flow: dict[str, _Formation] = {}
        for echelonflow in job.echelonflows:
            formation = _Formation(echelonflow)
            self._formations[echelonflow.name] = formation
            for flow in echelonflow.flows:
                self._formation_by_flow[flow] = formation
        self._complete: dict[int, list[Fraction]] = {}
        """The tardiness of the EchelonFlows that are complete, by iteration."""
        self._tardiness: tuple[int, Fraction] | None = None
        self._iteration_times_s: deque[Fraction] = deque(maxlen=HISTORY)
        for formation in self._formations.values():
            formation.place(self.paths, numbered_by_sender)

    def is_same(self, job: Job, numbered_by_sender: bool) -> bool:
        mine = self._job
        if mine is job:
            return True
        if self._numbered_by_sender != numbered_by_sender or mine.computes != job.computes:
            return False
        return mine.flows == job.flows and mine.echelonflows == job.echelonflows

    def inherit(self, other: _TrackedJob) -> None:
        """Take over what a former job of the same name knows of the same flows."""
        if other._job.flows != self._job.flows:
            return
        self._iteration_times_s = other._iteration_times_s
        if self._head == other._head and self.paths == other.paths:
            self._clock = other._clock

    def reroute(self, paths: Paths) -> None:
        """Follow flows on other paths."""
        moved = {flow for flow, path in self.paths.items() if tuple(paths[flow]) != path}
        for flow in moved:
            self.paths[flow] = tuple(paths[flow])
        if self._head in moved:
            self._clock.lose()
        for formation in self._formations.values():
            if not moved.isdisjoint(formation.flows):
                formation.place(self.paths, self._numbered_by_sender)

    def lose(self, switch: str) -> None:
        if self._head is not None and self.paths[self._head][1] == switch:
            self._clock.lose()
        for formation in self._formations.values():
            formation.lose(switch)
        self._counting.pop(switch, None)

    def observe(self, event: FlowEvent) -> Observation:
        path = self.paths[event.flow]
        at_first = event.switch == path[1]
        at_last = event.switch == path[-2]
        if not (at_first or at_last):
            return NOTHING
        iteration_s = self._time(event) if at_first else None
        domain = "" if self._numbered_by_sender else event.switch
        counting = self._counting.setdefault(domain, Counting())
        iteration = counting.number(event.epoch)
        formation = self._formation_by_flow.get(event.flow)
        tardiness_s = None
        if formation is not None and at_first and event.started:
            formation.start(iteration, event.flow, event.time_s)
        if formation is not None and at_last and event.finished:
            tardiness_s = self._finished(formation, event, iteration)
        if iteration_s is None and tardiness_s is None:
            return NOTHING
        return Observation(iteration_s, tardiness_s)

    def _time(self, event: FlowEvent) -> Fraction | None:
        """Return the duration of the iteration that ends with the event, if one does."""
        if self._head is None or event.switch != self.paths[self._head][1]:
            return None
        if event.flow != self._head:
            self._clock.other(event.epoch)
            return None
        iteration_s = None
        if event.started:
            iteration_s, restarted = self._clock.start(event.epoch, event.time_s)
            if restarted:
                for counting in self._counting.values():
                    counting.restart()
            if iteration_s is not None:
                self._iteration_times_s.append(iteration_s)
        if event.finished:
            self._clock.finish(event.epoch, event.time_s)
        return iteration_s

    def _finished(
        self,
        formation: _Formation,
        event: FlowEvent,
        iteration: int,
    ) -> Fraction | None:
        """Return the job's largest tardiness, if this was the last flow of the newest iteration."""
        late_s = formation.finish(iteration, event.flow, event.tardiness_s)
        if late_s is None:
            return None
        _drop_up_to(iteration - BEHIND, self._complete)
        seen = self._complete.setdefault(iteration, [])
        seen.append(late_s)
        if len(seen) < len(self._formations):
            return None
        del self._complete[iteration]
        if self._tardiness is not None and self._tardiness[0] >= iteration:
            return None
        tardiness_s = max(seen)
        self._tardiness = (iteration, tardiness_s)
        return tardiness_s

    def view(self) -> JobView:
        tardiness_s = None if self._tardiness is None else self._tardiness[1]
        echelonflows = {name: formation.view() for name, formation in self._formations.items()}
        return JobView(tuple(self._iteration_times_s), tardiness_s, echelonflows)


def _drop_up_to(last: int, by_iteration: dict[int, Any]) -> None:
    """Remove what belongs to iterations up to `last`."""
    for iteration in list(by_iteration):
        if iteration <= last:
            del by_iteration[iteration]


class _Formation:
    """A followed EchelonFlow."""

    def __init__(self, echelonflow: EchelonFlow) -> None:
        self.name = echelonflow.name
        self.flows = echelonflow.flows
        self._tardiness_s: list[tuple[int, Fraction]] = []
        """The tardiness in each iteration, in their order."""
        self._distances_s: tuple[Fraction, ...] | None = None
        self._starts: Gathering[Fraction] = Gathering(self.flows)
        self._finishes: Gathering[Fraction] = Gathering(self.flows)
        self._switches: frozenset[str] = frozenset()
        self._has_distances = False
        self._has_tardiness = False
        self._begun_in: int | None = None

    def place(self, paths: Mapping[str, Sequence[str]], numbered_by_sender: bool) -> None:
        """Note where its flows are seen from now on."""
        first = {paths[flow][1] for flow in self.flows}
        last = {paths[flow][-2] for flow in self.flows}
        self._switches = frozenset(first | last)
        self._has_distances = len(first) == 1
        self._has_tardiness = numbered_by_sender or len(last) == 1
        self._forget()

    def lose(self, switch: str) -> None:
        if switch in self._switches:
            self._forget()

    def _forget(self) -> None:
        self._starts.clear()
        self._finishes.clear()
        self._begun_in = None

    def start(
        self,
        iteration: int,
        flow: str,
        start_s: Fraction,
    ) -> None:
        """Note the start of a flow; the last start of an iteration updates the distances."""
        if not self._has_distances:
            return
        if self._begun_in is None:
            # If the switch began to follow a flow that was under way, its "first" packet is from
            # the middle.
            self._begun_in = iteration
        if iteration <= self._begun_in:
            return
        starts_s = self._starts.put(iteration, flow, start_s)
        if starts_s is None:
            return
        head_s = starts_s[self.flows[0]]
        observed_s = tuple(starts_s[name] - head_s for name in self.flows)
        if self._distances_s is None:
            self._distances_s = observed_s
            return
        smoothed_s = []
        for before_s, latest_s in zip(self._distances_s, observed_s, strict=True):
            smoothed_s.append(before_s + SMOOTHING * (latest_s - before_s))
        self._distances_s = tuple(smoothed_s)

    def finish(
        self,
        iteration: int,
        flow: str,
        tardiness_s: Fraction,
    ) -> Fraction | None:
        """Return the EchelonFlow's tardiness, if its last flow of the iteration finished."""
        if not self._has_tardiness:
            return None
        finishes = self._finishes.put(iteration, flow, tardiness_s)
        if finishes is None:
            return None
        late_s = max(finishes.values())
        insort(self._tardiness_s, (iteration, late_s))
        del self._tardiness_s[:-HISTORY]
        return late_s

    def view(self) -> EchelonFlowView:
        tardiness_s = tuple(late_s for _, late_s in self._tardiness_s)
        return EchelonFlowView(tardiness_s, self._distances_s)


class Gathering(Generic[T]):
    """Values of the flows of an EchelonFlow, one of each in an iteration, until they are complete.

    Several iterations are gathered at a time, because switches report up to the timeout of a digest
    list apart.
    """

    def __init__(self, flows: Sequence[str]) -> None:
        self._flows = tuple(flows)
        most_iterations = MAX_VALUES // len(self._flows)
        self._kept = max(2, min(BEHIND, most_iterations))
        self._values: dict[int, dict[str, T] | None] = {}
        """The values by iteration; None for an iteration that was complete."""
        self._newest = -1

    def put(
        self,
        iteration: int,
        flow: str,
        value: T,
    ) -> Mapping[str, T] | None:
        """Take a value, and return the values by flow if this was the last that was missing.

        The first of two values of a flow counts. A value that is too old, or belongs to an
        iteration that was complete, is ignored. Numbers of iterations only grow (`Counting`).
        """
        if iteration <= self._newest - self._kept:
            return None
        if iteration > self._newest:
            self._newest = iteration
            _drop_up_to(iteration - self._kept, self._values)
        values = self._values.setdefault(iteration, {})
        if values is None or flow in values:
            return None
        values[flow] = value
        if len(values) < len(self._flows):
            return None
        self._values[iteration] = None
        return values

    def clear(self) -> None:
        """Give up incomplete iterations: values were lost, or later ones mean other iterations."""
        for iteration, values in self._values.items():
            if values is not None:
                self._values[iteration] = None
