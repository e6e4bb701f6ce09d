"""The service that the API asks: the leader's machine while this controller leads, a standby otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from echelon.control import effects, events
from echelon.control.errors import RefusedError, UnavailableError
from echelon.control.jobs import parse_job
from echelon.control.jobstore import ChosenPolicy, ends_of
from echelon.control.machine import InForce, Machine
from echelon.policies import PolicyChoiceError, choices, parse_parameters
from echelon.service import views
from echelon.service.interface import Registered
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
from echelon.southbound.errors import SouthboundError

if TYPE_CHECKING:
    from echelon.service.config import ServiceConfig
    from echelon.service.leader import Leader


class ControllerService:
    """The implementation of `echelon.service.interface.Service`. A standby answers nothing but status and readiness."""

    def __init__(self, config: ServiceConfig, started_at: float) -> None:
        self.leading: Leader | None = None
        """Set while this controller leads."""
        self.reloading = False
        """Whether this controller leads again in a moment, with a changed configuration."""
        self.leader_url: str | None = None
        """URL of the controller that leads, as far as a standby knows."""
        self.problem: str | None = None
        """The reason, in one line, why nobody can be asked who leads."""
        self.config = config
        self._started_at = started_at

    @property
    def _leader(self) -> Leader:
        if self.leading is None:
            if self.reloading:
                raise UnavailableError("the service takes up a changed configuration (ask again in a moment)")
            if self.leader_url is None:
                raise UnavailableError(self.problem or "no controller leads at the moment (ask again soon)")
            raise UnavailableError(
                f"this controller is a standby; {self.leader_url} leads", self.leader_url, code="standby"
            )
        return self.leading

    @property
    def _machine(self) -> Machine:
        return self._leader.machine

    @property
    def _in_force(self) -> InForce:
        machine = self._machine
        if machine.in_force is None:
            raise UnavailableError(
                machine.plan_problem or "there is no plan yet (ask again in a moment)", code="no-plan"
            )
        return machine.in_force

    # -- status --------------------------------------------------------------------------------------------------------

    def status(self) -> StatusResource:
        leader = self.leading
        if leader is None:
            return StatusResource(
                version=version("echelon-p4"),
                fabric=self.config.fabric.name,
                role="standby",
                term=None,
                leader=self.leader_url,
                started_at=self._started_at,
                policy=self.config.policy.name,
                jobs=0,
                installed_jobs=0,
                plan=0,
                plan_problem=self.problem,
                switches={},
            )
        machine = leader.machine
        jobs = machine.jobs.jobs
        return StatusResource(
            version=version("echelon-p4"),
            fabric=self.config.fabric.name,
            role="leader",
            term=leader.term,
            leader=leader.url,
            started_at=self._started_at,
            policy=str(machine.jobs.policy),
            jobs=len(jobs),
            installed_jobs=sum(machine.progress.state(name)[0] == "installed" for name in jobs),
            plan=0 if machine.in_force is None else machine.in_force.planned.version,
            plan_problem=machine.plan_problem,
            settled=machine.settled,
            switches=leader.switches.states(),
        )

    def problems(self) -> Sequence[str]:
        leader = self.leading
        if leader is None:
            if self.problem is not None:
                return [self.problem]
            return [] if self.leader_url is not None else ["no controller leads"]
        problems = [] if leader.store_problem is None else [leader.store_problem]
        if leader.machine.in_force is None:
            problems.append(leader.machine.plan_problem or "there is no plan yet")
        return problems

    def events(self) -> Sequence[EventResource]:
        return [EventResource(**asdict(record)) for record in self._leader.trail.records]

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self) -> Sequence[JobSummary]:
        machine = self._machine
        return [views.summary(job, machine) for job in machine.jobs.jobs.values()]

    def job(self, name: str) -> JobResource:
        machine = self._machine
        return views.job(machine.jobs.known(name), machine, with_flows=True)

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        leader, parsed = self._leader, parse_job(spec)
        return await leader.ask(
            lambda request: events.RegisterJob(request, spec, parsed, replace),
            lambda answer: Registered(views.job(answer.value, leader.machine), answer.created),
        )

    async def remove(self, name: str) -> None:
        await self._leader.ask(lambda request: events.RemoveJob(request, name), lambda _: None)

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource:
        leader = self._leader
        offsets_s = report.offsets if isinstance(report.offsets, tuple) else (report.offsets,)
        return await leader.ask(
            lambda request: events.ReportDistances(request, name, report.echelonflow, offsets_s),
            lambda answer: views.job(answer.value, leader.machine),
        )

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        leader = self._leader
        show = partial(views.job, machine=leader.machine, with_flows=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await leader.ask(
                    lambda request: events.AwaitJob(request, name), lambda answer: show(answer.value)
                )
        return show(leader.machine.jobs.known(name))

    # -- plan and switches ---------------------------------------------------------------------------------------------

    def plan(self) -> PlanResource:
        return views.plan(self._in_force, self._machine.plan_problem)

    def intent(self, switch: str) -> IntentResource:
        planned = self._in_force.planned
        return views.intent(planned.intents[self._leader.switches[switch].name])

    async def difference(self, switch: str) -> SwitchDifference:
        connection, intent = self._leader.switches[switch], self._in_force.planned.intents[switch]
        try:
            found = await connection.difference(intent)
        except SouthboundError as error:
            return SwitchDifference(switch=switch, reachable=False, problem=str(error))
        return views.difference(switch, found)

    def switches(self) -> Sequence[SwitchResource]:
        return [views.switch(seen) for seen in self._leader.switches.snapshots()]

    def switch(self, name: str) -> SwitchResource:
        return views.switch(self._leader.switches[name].snapshot())

    # -- settings ------------------------------------------------------------------------------------------------------

    def policy(self) -> PolicyResource:
        return _policy(self._machine.jobs.policy)

    async def set_policy(self, setting: PolicySetting) -> PolicyResource:
        leader = self._leader
        try:
            parse_parameters(setting.name, setting.parameters)
        except PolicyChoiceError as error:
            raise RefusedError(
                str(error), "name" if error.parameter is None else "parameters", code=error.code
            ) from None
        chosen = ChosenPolicy(setting.name, dict(setting.parameters))
        return await leader.ask(lambda request: events.ChoosePolicy(request, chosen), lambda _: _policy(chosen))

    def links(self) -> Sequence[LinkResource]:
        drained = self._machine.jobs.drained
        return [views.link(cable, drained) for cable in self.config.fabric.cables]

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource:
        leader = self._leader

        def render(answer: effects.Answer) -> LinkResource:
            cables = self.config.fabric.cables
            cable = next(cable for cable in cables if ends_of(cable.a.node, cable.b.node) == answer.value)
            return views.link(cable, leader.machine.jobs.drained)

        drained, force = setting.state == "drained", setting.force
        return await leader.ask(lambda request: events.SetLink(request, a, b, drained, force), render)


def _policy(chosen: ChosenPolicy) -> PolicyResource:
    return PolicyResource(
        name=chosen.name,
        parameters=dict(chosen.parameters),
        choices=choices(),
    )
