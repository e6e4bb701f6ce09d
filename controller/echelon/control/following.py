"""Telemetry: what switches report of flows becomes facts about jobs, and corrections of their profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from echelon.control.events import Instant
from echelon.control.facts import DigestsReceived, Fact, IterationTimed, JobLeft, JobSeen, TardinessSeen
from echelon.control.jobs import RegisteredJob
from echelon.control.planning import Planned
from echelon.plan import FlowPlan
from echelon.rankings.deadline import Deadline
from echelon.telemetry.events import Decoder, FlowEvent
from echelon.telemetry.flow_log import FlowLog
from echelon.telemetry.tracker import JobView, Tracker, paths_of


@dataclass(frozen=True, slots=True)
class DecodedReport:
    """A list of digests, decoded."""

    events: tuple[FlowEvent, ...]
    facts: tuple[Fact, ...]
    corrected: tuple[str, ...]
    """Jobs whose corrections have changed."""


@dataclass
class _Followed:
    """A job as the tracker knows it, for as long as it is in the plan."""

    registered: RegisteredJob
    flows: tuple[FlowPlan, ...]
    """Its flows in the plan."""
    head_at: float | None = None
    """When its head flow started last, in seconds since the epoch."""

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

    def follow_plan(self, planned: Planned, now_s: float) -> tuple[list[Fact], list[str]]:
        """Follow the jobs of a new plan and no others.

        Returns the facts that follow, and the jobs whose observations call for a correction that is not in the plan.
        """
        self.learn_numbers(planned, now_s)
        by_job = planned.plan.by_job
        facts: list[Fact] = []
        for name in [name for name in self._jobs if name not in by_job]:
            self._tracker.remove(name)
            del self._jobs[name]
            facts.append(JobLeft(name))
        corrected = []
        for registered in planned.registered:
            name = registered.name
            flows, known = by_job.get(name), self._jobs.get(name)
            if flows is None or (known is not None and known.registered is registered and known.flows is flows):
                continue
            self._jobs[name] = _Followed(registered, flows, None if known is None else known.head_at)
            paths = paths_of(flows).get(name, {})
            self._tracker.add(registered.reported, paths, numbered_by_sender=registered.is_numbered_by_sender)
            if self._tracker.corrections(name) != registered.observed_s:
                corrected.append(name)
        return facts, corrected

    def learn_numbers(self, planned: Planned, now_s: float) -> None:
        """Learn the flow numbers of intents before any switch has them."""
        for intent in planned.intents.values():
            self._decoder.hold(intent, now_s)

    def reconnected(self, switch: str) -> None:
        """Note a new session: events of the switch were missed, and its clock may be another one."""
        self._tracker.reconnected(switch)
        self.log.reconnected(switch)

    def note_digests(self, switch: str, digests: Sequence[Mapping[str, int]], now: Instant) -> DecodedReport:
        """Decode a list of digests and take note of it."""
        decoded = self._decoder.decode(switch, digests, now.s)
        facts: list[Fact] = [DigestsReceived(switch, len(decoded.events), decoded.unknown)]
        corrected = []
        for event in decoded.events:
            if event.job not in self._tracker:
                # The last packets of a job are reported after it has left.
                continue
            facts.append(JobSeen(event.job))
            seen = self._tracker.observe(event)
            self._note(event, now.at)
            if seen.iteration_s is not None:
                facts.append(IterationTimed(event.job, float(seen.iteration_s)))
                self._jobs[event.job].head_at = self.log.at(switch, float(event.time_s)) or now.at
            if seen.tardiness_s is not None:
                facts.append(TardinessSeen(event.job, float(seen.tardiness_s)))
            if seen.corrected:
                corrected.append(event.job)
        return DecodedReport(decoded.events, tuple(facts), tuple(corrected))

    def _note(self, event: FlowEvent, at: float) -> None:
        flow = self._jobs[event.job].by_name.get(event.flow)
        if flow is not None:
            self.log.observe(event, flow.path, at, has_deadline=isinstance(flow.ranking, Deadline))

    def corrections(self, job: RegisteredJob) -> Mapping[str, tuple[Fraction, ...]] | None:
        """Return the offsets (seconds) by EchelonFlow that should replace those of the job.

        None: the observations are not of this job, but of a former one of its name.
        """
        known = self._jobs.get(job.name)
        is_same = known is not None and known.registered.is_expected_as(job)
        return self._tracker.corrections(job.name) if is_same else None

    def head_at(self, job: str) -> float | None:
        """Return when the head flow of a job started last, in seconds since the epoch; None: it was not seen."""
        known = self._jobs.get(job)
        return None if known is None else known.head_at

    def view(self, job: str) -> JobView | None:
        """Return what was seen of a job; None: the job is in no plan."""
        return self._tracker.view(job) if job in self._tracker else None
