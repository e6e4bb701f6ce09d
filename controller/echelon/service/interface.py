"""The service as the API sees it (`echelon.service.controller`). All calls are made on its event loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from echelon.control.progress import JobState
from echelon.service.resources import (
    ChoiceResource,
    ConnectionReport,
    ConnectionsResource,
    DistanceReport,
    DryRunResource,
    EventResource,
    FlowPlanResource,
    FlowTable,
    HostMeasurement,
    IntentResource,
    IterationReport,
    JobResource,
    JobSummary,
    LinkResource,
    LinkSetting,
    PlanResource,
    PolicyResource,
    PolicySetting,
    StatusResource,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
    WaitsResource,
)


@dataclass(frozen=True, slots=True)
class Registered:
    job: JobResource
    created: bool
    """False: the job was there already, the same (or was changed, where that was asked for)."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A job to register, or to put in the place of the one that has its name."""

    spec: Mapping[str, Any]
    replace: bool


@dataclass(frozen=True, slots=True)
class Removal:
    """A job to remove."""

    name: str


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link to drain or to restore."""

    a: str
    b: str
    setting: LinkSetting


Change = Registration | Removal | PolicySetting | LinkChange


@dataclass(frozen=True, slots=True)
class JobQuery:
    """The jobs that a client wants to see; None: no matter."""

    state: JobState | None = None
    worker: str | None = None
    """A host of the job."""
    after: str | None = None
    """Only jobs whose names come after this one; there need not be such a job."""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """The flows of the plan that a client wants to see; None: no matter."""

    job: str | None = None
    switch: str | None = None
    """A switch of the flow's path."""
    after: tuple[str, str] | None = None
    """Only flows that come after this one, by job and flow."""


class Service(Protocol):
    """Every call that changes something returns after the change is on disk. Reads never wait.

    Raises `echelon.control.errors.ServiceError`, and `echelon.documents.DocumentError` for a spec that is none.
    """

    def status(self) -> StatusResource: ...

    def problems(self) -> Sequence[str]:
        """Return why the service is not ready (no leader known, store gone, no plan yet); empty: it is ready."""

    def stuck(self) -> Sequence[str]:
        """Return the switches that have not held their intents for long, one line each."""

    def events(self) -> Sequence[EventResource]:
        """Return the changes that clients asked for, oldest first."""

    def jobs(self, wanted: JobQuery) -> Sequence[JobSummary]:
        """Return jobs in the order of their names."""

    def job(self, name: str) -> JobResource: ...

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        """Register a job, named by its key `job`.

        Registering the same spec again changes nothing. Another spec of that name raises `ConflictError`, or takes the
        place of the first with `replace`.
        """

    async def remove(self, name: str) -> None: ...

    async def rehearse(self, change: Change) -> DryRunResource:
        """Return what a change would do: it is checked and planned, but neither stored nor written."""

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource: ...

    def connections(self, name: str) -> ConnectionsResource:
        """Return the connections of a job that agents reported, and what an agent must know of it."""

    async def report_connections(self, name: str, host: str, report: ConnectionReport) -> ConnectionsResource:
        """Replace the connections of a job that a host reported before."""

    async def report_iterations(self, name: str, host: str, report: IterationReport) -> HostMeasurement:
        """Replace what a host measured of a job's latest iterations. This is not stored."""

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        """Return the job as soon as it is installed or unplanned, at the latest after `timeout_s`."""

    def plan(self, wanted: FlowQuery) -> tuple[PlanResource, Iterator[FlowPlanResource]]:
        """Return the plan in force without flows, and the wanted flows of it in the plan's order.

        Raises `UnknownError` for a job, switch or flow that there is not, and `UnavailableError` before there is a
        plan.
        """

    def choices(self, job: str | None) -> Iterator[ChoiceResource]:
        """Return why groups of jobs are planned as they are: all, or that of one job. Raises as `plan`."""

    def intent(self, switch: str) -> IntentResource: ...

    async def difference(self, switch: str) -> SwitchDifference:
        """Read a switch, and return what would be written to it."""

    async def queues(self, switch: str) -> SwitchQueues:
        """Read the counters of a switch's queues."""

    def flows(self, after: int, job: str | None) -> FlowTable:
        """Return the flows that switches saw last, with higher numbers than `after`, of one job or of all."""

    async def waits(self) -> WaitsResource:
        """Return which jobs waited for which others, by those flows."""

    def switches(self) -> Sequence[SwitchResource]: ...

    def switch(self, name: str) -> SwitchResource: ...

    def policy(self) -> PolicyResource: ...

    async def set_policy(self, setting: PolicySetting) -> PolicyResource: ...

    def links(self) -> Sequence[LinkResource]: ...

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource: ...
