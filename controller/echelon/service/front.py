"""What the API talks to while leadership comes and goes: the leader's `Control` when this controller leads, else a
standby that says who does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from echelon.service.errors import UnavailableError
from echelon.service.interface import Registered, Service
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


class Front:
    """Implements `Service`. Everything but status and readiness is `UnavailableError` on a standby."""

    def __init__(self, fabric: str, policy: str, started_at: float) -> None:
        self._fabric = fabric
        self._policy = policy
        self._started_at = started_at
        self._leading: Service | None = None
        self.leader: str | None = None
        """URL of the controller that leads, as far as the standby knows."""
        self.problem: str | None = None
        """Why nobody can be asked who leads; one line."""

    def lead(self, service: Service) -> None:
        self._leading = service

    def stand_by(self) -> None:
        self._leading = None

    @property
    def _service(self) -> Service:
        if self._leading is None:
            if self.leader is None:
                raise UnavailableError(self.problem or "no controller leads at the moment (ask again soon)")
            raise UnavailableError(f"this controller is a standby; {self.leader} leads", self.leader)
        return self._leading

    def status(self) -> StatusResource:
        if self._leading is not None:
            return self._leading.status()
        return StatusResource(
            version=version("echelon-p4"),
            fabric=self._fabric,
            role="standby",
            term=None,
            leader=self.leader,
            started_at=self._started_at,
            policy=self._policy,
            jobs=0,
            installed_jobs=0,
            plan=0,
            plan_problem=self.problem,
            switches={},
        )

    def problems(self) -> Sequence[str]:
        if self._leading is not None:
            return self._leading.problems()
        if self.problem is not None:
            return [self.problem]
        return [] if self.leader is not None else ["no controller leads"]

    def jobs(self) -> Sequence[JobSummary]:
        return self._service.jobs()

    def job(self, name: str) -> JobResource:
        return self._service.job(name)

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        return await self._service.register(spec, replace=replace)

    async def remove(self, name: str) -> None:
        await self._service.remove(name)

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource:
        return await self._service.report_distances(name, report)

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        return await self._service.installed(name, timeout_s)

    def plan(self) -> PlanResource:
        return self._service.plan()

    def intent(self, switch: str) -> IntentResource:
        return self._service.intent(switch)

    async def difference(self, switch: str) -> SwitchDifference:
        return await self._service.difference(switch)

    def switches(self) -> Sequence[SwitchResource]:
        return self._service.switches()

    def switch(self, name: str) -> SwitchResource:
        return self._service.switch(name)

    def policy(self) -> PolicyResource:
        return self._service.policy()

    async def set_policy(self, setting: PolicySetting) -> PolicyResource:
        return await self._service.set_policy(setting)

    def links(self) -> Sequence[LinkResource]:
        return self._service.links()

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource:
        return await self._service.set_link(a, b, setting)
