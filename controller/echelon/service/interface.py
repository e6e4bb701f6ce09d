"""What the API asks of the service. `echelon.service.control.Control` is the one that runs; all calls are made on its
event loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from echelon.service.resources import (
    DistanceReport,
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

    Raises `echelon.service.errors.ServiceError`, and `echelon.documents.DocumentError` for a spec that is none.
    """

    def status(self) -> StatusResource: ...

    def problems(self) -> Sequence[str]:
        """Why the service is not ready (no leader known, store gone, no plan yet); empty: it is. For /readyz."""

    def jobs(self) -> Sequence[JobSummary]: ...

    def job(self, name: str) -> JobResource: ...

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        """A job, named by its key `job`. Registering the same spec again changes nothing; another spec of that name is
        a `ConflictError`, or with `replace` takes its place."""

    async def remove(self, name: str) -> None: ...

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource: ...

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        """The job as soon as it is installed or unplanned, else as it is after `timeout_s`."""

    def plan(self) -> PlanResource:
        """Raises `UnavailableError` before there is one."""

    def intent(self, switch: str) -> IntentResource: ...

    async def difference(self, switch: str) -> SwitchDifference:
        """Reads the switch; writes nothing."""

    def switches(self) -> Sequence[SwitchResource]: ...

    def switch(self, name: str) -> SwitchResource: ...

    def policy(self) -> PolicyResource: ...

    async def set_policy(self, setting: PolicySetting) -> PolicyResource: ...

    def links(self) -> Sequence[LinkResource]: ...

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource: ...
