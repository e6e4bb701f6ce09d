"""A client removes a job."""

from __future__ import annotations

from dataclasses import dataclass, replace

from echelon.controller.machine.change import (
    AppliedChange,
    ChangeRequest,
    ControllerState,
    TrailEntry,
)
from echelon.controller.machine.facts import Fact, LogLine, StoryLines, of_job
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes


@dataclass(frozen=True, slots=True)
class JobRemoved(Fact):
    """A job is no longer saved."""

    job: str

    def story(self) -> StoryLines:
        return of_job(self.job, "removed")

    def log_line(self) -> LogLine:
        return "job removed", {"job": self.job}


@dataclass(frozen=True, slots=True)
class RemoveJob(ChangeRequest):
    """A client removes a job."""

    job: str

    @property
    def queue(self) -> str:
        return self.job

    def check(self, state: ControllerState, now: Instant) -> None:
        state.jobs.find(self.job)

    def to_save(self, target: None, jobs: JobStore) -> Changes:
        return jobs.removal(self.job)

    def apply(
        self,
        target: None,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        state.jobs.drop(self.job)
        state.progress.removed(self.job)
        return AppliedChange(self.job, [JobRemoved(self.job)])

    def planned(
        self,
        target: None,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        left = (job for job in before.jobs if job.name != self.job)
        return replace(before, jobs=tuple(left))

    def trail_entry(self) -> TrailEntry:
        return "remove job", self.job

    def story(self) -> str:
        return "a client removes it"
