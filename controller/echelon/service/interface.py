"""The service as the API sees it (`echelon.service.controller`). All calls are made on its event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from echelon.service.resources import (
    DistanceReport,
    EventResource,
    IntentResource,
    JobResource,
    JobSummary,
    LinkResource,
    LinkSetting,
    PlanResource,
    PolicyResource,
    PolicySetting,
    StatusResource,
    SwitchDifference,
    SwitchResource,
)


@dataclass(frozen=True, slots=True)
class Registered:
    job: JobResource
    created: bool
    """False: the job was there already, the same (or was changed, where that was asked for)."""


class Service(Protocol):
    """Every call that changes something returns after the change is on disk. Reads never wait.

    Raises `echelon.control.errors.ServiceError`, and `echelon.documents.DocumentError` for a spec that is none.
    """

    def status(self) -> StatusResource: ...

    def problems(self) -> Sequence[str]:
        """Return why the service is not ready (no leader known, store gone, no plan yet); empty: it is ready."""

    def events(self) -> Sequence[EventResource]:
        """Return the changes that clients asked for, oldest first."""

    def jobs(self) -> Sequence[JobSummary]: ...

    def job(self, name: str) -> JobResource: ...

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        """Register a job, named by its key `job`.

        Registering the same spec again changes nothing. Another spec of that name raises `ConflictError`, or takes the
        place of the first with `replace`.
        """

    async def remove(self, name: str) -> None: ...

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource: ...

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        """Return the job as soon as it is installed or unplanned, at the latest after `timeout_s`."""

    def plan(self) -> PlanResource:
        """Return the plan in force. Raises `UnavailableError` before there is one."""

    def intent(self, switch: str) -> IntentResource: ...

    async def difference(self, switch: str) -> SwitchDifference:
        """Read a switch, and return what would be written to it."""

    def switches(self) -> Sequence[SwitchResource]: ...

    def switch(self, name: str) -> SwitchResource: ...

    def policy(self) -> PolicyResource: ...

    async def set_policy(self, setting: PolicySetting) -> PolicyResource: ...

    def links(self) -> Sequence[LinkResource]: ...

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource: ...
