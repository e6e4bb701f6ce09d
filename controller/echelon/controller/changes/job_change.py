"""The common part of the changes of a job's contents."""

from __future__ import annotations

from dataclasses import dataclass, replace

from echelon.controller.machine.change import ChangeRequest, ControllerState
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.jobstore import JobStore
from echelon.controller.machine.planning import PlanRequest
from echelon.controller.machine.records import Changes


@dataclass(frozen=True, slots=True)
class JobChange(ChangeRequest):
    """A change of a job's contents.

    Its target is the job as it will be: the very same object if nothing changes.
    """

    def is_done(self, target: RegisteredJob, jobs: JobStore) -> bool:
        return jobs.jobs.get(target.name) is target

    def to_save(self, target: RegisteredJob, jobs: JobStore) -> Changes:
        return jobs.change_job(target)

    def planned(
        self,
        target: RegisteredJob,
        before: PlanRequest,
        jobs: JobStore,
    ) -> PlanRequest:
        by_name = {job.name: job for job in before.jobs}
        by_name[target.name] = target
        return replace(before, jobs=tuple(by_name.values()))


def keep(
    job: RegisteredJob,
    state: ControllerState,
    now: Instant,
) -> None:
    """Hold a job that is saved, and follow it to the switches."""
    state.jobs.keep(job)
    state.progress.accepted(job.name, now.s)
