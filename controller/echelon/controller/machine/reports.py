"""The reports of switches about flows, which become facts about jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from echelon.controller.machine.facts import (
    DigestsReceived,
    Fact,
    IterationTimed,
    JobLeft,
    JobSeen,
    TardinessSeen,
)
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.lines import FlowsByJob, JobFlows
from echelon.controller.machine.planning import Planned
from echelon.model.kept import by_name, replaced, without
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.telemetry.events import Decoder, FlowEvent
from echelon.switches.telemetry.flow_log import FlowLog
from echelon.switches.telemetry.tracker import JobView, Tracker, paths_of


@dataclass(frozen=True, slots=True)
class DecodedReport:
    """A list of digests, decoded."""

    events: tuple[FlowEvent, ...]
    facts: tuple[Fact, ...]


@dataclass
class _Followed:
    """A job as the tracker knows it, for as long as it is in the plan."""

    flows: JobFlows
    """Its flows in the plan."""
    head_at: float | None = None
    """The last start of its head flow, in seconds since the epoch."""

    @cached_property
    def by_name(self) -> Mapping[str, FlowPlan]:
        """The flows by name, of a job that was seen under this plan."""
        return {flow.flow: flow for flow in self.flows}


class Following:
    """The telemetry of all jobs in the plan."""

    def __init__(self) -> None:
        self.log = FlowLog()
        """The flows that switches saw last."""
        self._tracker = Tracker()
        self._decoder = Decoder()
        self._jobs: dict[str, _Followed] = {}
        self._jobs_before: Mapping[str, RegisteredJob] = {}
        """The jobs of the last plan."""
        self._flows_before: FlowsByJob = {}
        """The flows of the last plan, by job."""

    def follow_plan(self, planned: Planned, now_s: float) -> list[Fact]:
        """Follow the jobs of a new plan and no others."""
        self.learn_numbers(planned, now_s)
        by_job = planned.plan.by_job
        facts: list[Fact] = []
        for name in without(self._flows_before, by_job):
            self._tracker.remove(name)
            del self._jobs[name]
            facts.append(JobLeft(name))
        jobs = by_name(planned.registered)
        changed = {
            *replaced(jobs, self._jobs_before),
            *replaced(by_job, self._flows_before),
        }
        for name in filter(changed.__contains__, by_job):
            self._follow(jobs[name], by_job[name])
        self._jobs_before = jobs
        self._flows_before = by_job
        return facts

    def _follow(self, job: RegisteredJob, flows: JobFlows) -> None:
        """Follow a job that is new or has changed. What was seen of it stays."""
        followed = _Followed(flows)
        if job.name in self._jobs:
            followed.head_at = self._jobs[job.name].head_at
        self._jobs[job.name] = followed
        paths = paths_of(flows).get(job.name, {})
        self._tracker.add(job.job, paths, numbered_by_sender=job.is_numbered_by_sender)

    def learn_numbers(self, planned: Planned, now_s: float) -> None:
        """Learn the flow numbers of intents before any switch has them."""
        for intent in planned.intents.values():
            self._decoder.hold(intent, now_s)

    def reconnected(self, switch: str) -> None:
        """Note a new session.

        Events of the switch were missed, and its clock may be another one.
        """
        self._tracker.reconnected(switch)
        self.log.reconnected(switch)

    def note_digests(
        self,
        switch: str,
        digests: Sequence[Mapping[str, int]],
        now: Instant,
    ) -> DecodedReport:
        """Decode a list of digests and take note of it."""
        decoded = self._decoder.decode(switch, digests, now.s)
        facts: list[Fact] = [DigestsReceived(switch, len(decoded.events), decoded.unknown)]
        for event in decoded.events:
            if event.job not in self._tracker:
                # The last packets of a job are reported after it has left.
                continue
            facts.append(JobSeen(event.job))
            seen = self._tracker.observe(event)
            self._note(event, now.epoch_s)
            if seen.iteration_s is not None:
                facts.append(IterationTimed(event.job, float(seen.iteration_s)))
                started_at = self.log.since_1970(switch, float(event.time_s))
                self._jobs[event.job].head_at = started_at or now.epoch_s
            if seen.tardiness_s is not None:
                facts.append(TardinessSeen(event.job, float(seen.tardiness_s)))
        return DecodedReport(decoded.events, tuple(facts))

    def _note(self, event: FlowEvent, epoch_s: float) -> None:
        flow = self._jobs[event.job].by_name.get(event.flow)
        if flow is not None:
            has_deadline = isinstance(flow.ranking, Deadline)
            self.log.observe(event, flow.path, epoch_s, has_deadline=has_deadline)

    def head_at(self, job: str) -> float | None:
        """Return when the head flow of a job started last, in seconds since the epoch.

        None: it was not seen.
        """
        followed = self._jobs.get(job)
        if followed is None:
            return None
        return followed.head_at

    def view(self, job: str) -> JobView | None:
        """Return what was seen of a job; None: the job is in no plan."""
        if job in self._tracker:
            return self._tracker.view(job)
        return None
