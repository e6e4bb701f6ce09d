"""A client registers a job, or replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from echelon.controller.changes.job_change import JobChange, keep
from echelon.controller.machine.agents import addresses, reported_protocol
from echelon.controller.machine.change import AppliedChange, ControllerState, TrailEntry
from echelon.controller.machine.errors import ConflictError
from echelon.controller.machine.facts import Fact, LogLine, StoryLines, of_job
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import (
    NO_QUOTA,
    BuiltJob,
    Connections,
    Quota,
    RegisteredJob,
    check_hosts,
    check_size,
)
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class JobAccepted(Fact):
    """A new or changed job is saved."""

    job: str
    created: bool
    flows: int

    def story(self) -> StoryLines:
        kind = "new" if self.created else "changed"
        return of_job(self.job, f"accepted as a {kind} job (flows: {self.flows})")

    def log_line(self) -> LogLine:
        event = "job registered" if self.created else "job changed"
        return event, {"job": self.job, "flows": self.flows}


@dataclass(frozen=True, slots=True)
class RegisterJob(JobChange):
    """A client registers a job.

    The same spec again changes nothing; another spec under the same name is refused, or with
    `replace` takes its place.
    """

    document: Mapping[str, Any]
    """The job file's mapping, as it was sent."""
    spec: JobSpec
    replace: bool
    built: BuiltJob | None = None
    quota: Quota = NO_QUOTA

    builds_graph: ClassVar[bool] = True
    creates_job: ClassVar[bool] = True

    @property
    def queue(self) -> str:
        return self.spec.job

    def check(self, state: ControllerState, now: Instant) -> RegisteredJob:
        spec = self.spec
        fabric = state.jobs.whole_fabric
        before = state.jobs.jobs.get(spec.job)
        if before is not None:
            if before.spec == spec:
                return before
            if not self.replace:
                raise ConflictError(
                    f"there is another job '{spec.job}' (take another name, or replace it with"
                    " PUT)",
                    "job",
                )
        check_hosts(spec, fabric)

        # A job that is replaced keeps its number: its packets may be under way.
        if before is None:
            number = state.jobs.free_number(_reserved_numbers(state))
            accepted_at = now.epoch_s
            owner = self.quota.owner
        else:
            number = before.number
            accepted_at = before.accepted_at
            owner = before.owner
        job = RegisteredJob(
            name=spec.job,
            number=number,
            accepted_at=accepted_at,
            document=dict(self.document),
            spec=spec,
            offsets_s={},
            built=self.built,
            owner=owner,
            connections=_kept_connections(before, spec, fabric),
        )
        self._check_quota(job, state)
        return job

    def reserve(self, target: RegisteredJob, state: ControllerState) -> None:
        state.jobs.reserve_number(target)

    def check_graph(self, job: RegisteredJob, state: ControllerState) -> None:
        check_size(job, state.flows_per_job)
        self._check_quota(job, state)

    def apply(
        self,
        target: RegisteredJob,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        created = target.name not in state.jobs.jobs
        keep(target, state, now)
        accepted = JobAccepted(target.name, created, target.flow_count)
        return AppliedChange(target, [accepted], created)

    def trail_entry(self) -> TrailEntry:
        return "replace job" if self.replace else "register job", self.spec.job

    def story(self) -> str:
        replaces = " or replaces it" if self.replace else ""
        return f"a client registers it{replaces}"

    def _check_quota(self, job: RegisteredJob, state: ControllerState) -> None:
        """Raise `RefusedError` for a job that is too much for its client.

        A client may replace the job of another one: that counts for the other one.
        """
        owner = job.owner
        if owner is None or owner != self.quota.owner:
            return
        if self.quota.jobs is None and self.quota.flows is None:
            return
        jobs = dict(state.jobs.jobs)
        jobs |= {changing.name: changing for changing in state.changing_jobs}
        jobs.pop(job.name, None)
        besides = [registered for registered in jobs.values() if registered.owner == owner]
        self.quota.check(job, besides)


def _reserved_numbers(state: ControllerState) -> list[int]:
    """Return the numbers of new jobs that are not saved yet."""
    saved = state.jobs.jobs
    return [job.number for job in state.changing_jobs if job.name not in saved]


def _kept_connections(
    before: RegisteredJob | None,
    spec: JobSpec,
    fabric: Fabric,
) -> dict[str, Connections]:
    """Return the reported connections that stay when `spec` replaces the job's file.

    These are the connections between its hosts.
    """
    protocol = reported_protocol(spec)
    if before is None or protocol is None:
        return {}
    by_address = addresses(spec, fabric)
    kept: dict[str, Connections] = {}
    for host, seen in before.connections.items():
        still = [
            connection
            for connection in seen
            if connection[0] == protocol
            and by_address.get(connection[1]) == host
            and connection[2] in by_address
        ]
        if still:
            kept[host] = frozenset(still)
    return kept
