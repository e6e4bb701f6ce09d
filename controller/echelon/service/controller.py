"""The service that the API asks: the leader's machine while this controller leads, a standby otherwise."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from echelon.control import effects, events
from echelon.control.errors import RefusedError, UnavailableError
from echelon.control.jobs import NO_QUOTA, five_tuple, parse_job
from echelon.control.jobstore import ChosenPolicy, ends_of
from echelon.control.machine import InForce, Machine
from echelon.control.rehearsal import ChangeOutcome
from echelon.policies import PolicyChoiceError, choices, parse_parameters
from echelon.service import views
from echelon.service.interface import Change, FlowQuery, JobQuery, LinkChange, Registered, Registration, Removal
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
from echelon.service.trail import ORIGIN
from echelon.southbound.errors import SouthboundError
from echelon.telemetry.sizes import HostIteration

if TYPE_CHECKING:
    from echelon.service.config import ServiceConfig
    from echelon.service.leader import Leader


STUCK_S = 120.0
"""Seconds after which a switch that does not hold its intent is stuck, as for the alert `EchelonSwitchStuck`."""


class ControllerService:
    """The implementation of `echelon.service.interface.Service`. A standby answers nothing but status and readiness."""

    def __init__(self, config: ServiceConfig, started_at: float) -> None:
        self.leading: Leader | None = None
        """Set while this controller leads."""
        self.beginning: str | None = None
        """What this controller does before it leads in a moment; None: it does not."""
        self.leader_url: str | None = None
        """URL of the controller that leads, as far as a standby knows."""
        self.problem: str | None = None
        """The reason, in one line, why nobody can be asked who leads."""
        self.config = config
        self._started_at = started_at

    @property
    def _leader(self) -> Leader:
        if self.leading is None:
            if self.beginning is not None:
                raise UnavailableError(f"{self.beginning} (ask again in a moment)")
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
                problems=tuple(self.problems()),
                plan_problem=self.problem,
                switches={},
            )
        machine = leader.machine
        by_state = machine.progress.counts()
        return StatusResource(
            version=version("echelon-p4"),
            fabric=self.config.fabric.name,
            role="leader",
            term=leader.term,
            leader=leader.url,
            started_at=self._started_at,
            policy=str(machine.jobs.policy),
            jobs=len(machine.jobs.jobs),
            installed_jobs=by_state.get("installed", 0),
            jobs_by_state=dict(by_state),
            problems=(*self.problems(), *self._concerns(leader)),
            plan=0 if machine.in_force is None else machine.in_force.planned.version,
            plan_problem=machine.plan_problem,
            settled=machine.settled,
            searching=machine.searching,
            switches=leader.switches.states(),
        )

    def problems(self) -> Sequence[str]:
        leader = self.leading
        if leader is None:
            if self.beginning is not None or self.problem is not None:
                return [self.beginning or self.problem or ""]
            return [] if self.leader_url is not None else ["no controller leads"]
        problems = [] if leader.store_problem is None else [leader.store_problem]
        if leader.machine.in_force is None:
            problems.append(leader.machine.plan_problem or "there is no plan yet")
        return problems

    def _concerns(self, leader: Leader) -> Iterator[str]:
        """Yield what does not keep the service from its work, but may keep jobs from theirs."""
        if leader.machine.in_force is not None and leader.machine.plan_problem is not None:
            yield f"plan: {leader.machine.plan_problem}"
        for seen in leader.switches.snapshots():
            if seen.problem is not None:
                prefix = f"switch {seen.name}: "
                yield seen.problem if seen.problem.startswith(prefix) else f"{prefix}{seen.problem}"
            elif seen.state not in ("ready", "writing"):
                yield f"switch {seen.name}: {seen.state}"

    def stuck(self) -> Sequence[str]:
        if self.leading is None:
            return []
        return [
            f"switch {name} has not held its intent for {unready_s:.0f} s (echelon switch show {name})"
            for name, unready_s in self.leading.switches.unready_s().items()
            if unready_s >= STUCK_S
        ]

    def events(self) -> Sequence[EventResource]:
        return [EventResource(**asdict(record)) for record in self._leader.trail.records]

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def jobs(self, wanted: JobQuery) -> Sequence[JobSummary]:
        machine = self._machine
        names = sorted(machine.jobs.jobs)
        first = 0 if wanted.after is None else bisect_right(names, wanted.after)
        jobs = (machine.jobs.jobs[name] for name in islice(names, first, None))
        # Of many jobs only those that are wanted are shown.
        found = (
            job
            for job in jobs
            if (wanted.state is None or machine.progress.state(job.name)[0] == wanted.state)
            and (wanted.worker is None or wanted.worker in job.spec.hosts)
        )
        return [views.summary(job, machine) for job in islice(found, wanted.limit)]

    def job(self, name: str) -> JobResource:
        machine = self._machine
        return views.job(machine.jobs.known(name), machine, with_flows=True)

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        leader, make = self._leader, _request(Registration(spec, replace))
        return await leader.ask(
            make, lambda answer: Registered(views.job(answer.value, leader.machine), answer.created)
        )

    async def remove(self, name: str) -> None:
        await self._leader.ask(_request(Removal(name)), lambda _: None)

    async def rehearse(self, change: Change) -> DryRunResource:
        leader, make = self._leader, _request(change)
        outcome = await leader.ask(
            lambda request: events.DryRun(request, make(request)), lambda answer: cast(ChangeOutcome, answer.value)
        )
        # A policy may change every entry of the fabric.
        return await asyncio.to_thread(views.dry_run, outcome)

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource:
        leader = self._leader
        offsets_s = report.offsets if isinstance(report.offsets, tuple) else (report.offsets,)
        return await leader.ask(
            lambda request: events.ReportDistances(request, name, report.echelonflow, offsets_s),
            lambda answer: views.job(answer.value, leader.machine),
        )

    def connections(self, name: str) -> ConnectionsResource:
        return views.connections(self._machine.jobs.known(name), self.config.fabric)

    async def report_connections(self, name: str, host: str, report: ConnectionReport) -> ConnectionsResource:
        seen = tuple(
            five_tuple("tcp", one.local[0], one.remote[0], one.local[1], one.remote[1]) for one in report.connections
        )
        return await self._leader.ask(
            lambda request: events.ReportConnections(request, name, host, seen),
            lambda answer: views.connections(answer.value, self.config.fabric, host),
        )

    async def report_iterations(self, name: str, host: str, report: IterationReport) -> HostMeasurement:
        measured = tuple(
            HostIteration(one.duration, one.sent, one.retransmitted or 0, one.stalled) for one in report.iterations
        )
        return await self._leader.ask(
            lambda request: events.ReportIterations(request, name, host, measured),
            lambda _: views.measurement(host, measured),
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

    def plan(self, wanted: FlowQuery) -> tuple[PlanResource, Iterator[FlowPlanResource]]:
        in_force, problem = self._in_force, self._machine.plan_problem
        # An unknown name would look like a job without flows.
        if wanted.job is not None:
            self._machine.jobs.known(wanted.job)
        if wanted.switch is not None:
            self._leader.switches[wanted.switch]
        return views.plan(in_force, problem), views.flows(in_force.planned.plan, wanted)

    def choices(self, job: str | None) -> Iterator[ChoiceResource]:
        machine = self._machine
        if job is not None:
            machine.jobs.known(job)
        return views.choices(machine.searches, job)

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

    async def queues(self, switch: str) -> SwitchQueues:
        connection = self._leader.switches[switch]
        try:
            counts = await connection.queue_counts()
        except SouthboundError as error:
            return SwitchQueues(switch=switch, reachable=False, problem=str(error), at=time.time())
        found = views.queues(switch, counts, self.config.fabric)
        return SwitchQueues(switch=switch, reachable=True, at=time.time(), queues=found)

    def flows(self, after: int, job: str | None) -> FlowTable:
        machine = self._machine
        if job is not None:
            machine.jobs.known(job)
        log = machine.flow_log
        return views.flow_table((one for one in log.after(after) if job in (None, one.job)), log.count)

    async def waits(self) -> WaitsResource:
        planned = self._in_force.planned
        jobs = {one.name: one for one in planned.registered}
        seen = list(self._machine.flow_log.after(0))
        rates_bps = self.config.fabric.rate_bps
        # A second for ten thousand flows.
        return await asyncio.to_thread(lambda: views.waits_of(views.spans(seen, planned.plan, jobs), rates_bps))

    def switches(self) -> Sequence[SwitchResource]:
        return [views.switch(seen) for seen in self._leader.switches.snapshots()]

    def switch(self, name: str) -> SwitchResource:
        return views.switch(self._leader.switches[name].snapshot())

    # -- settings ------------------------------------------------------------------------------------------------------

    def policy(self) -> PolicyResource:
        return _policy(self._machine.jobs.policy)

    async def set_policy(self, setting: PolicySetting) -> PolicyResource:
        return await self._leader.ask(_request(setting), lambda answer: _policy(answer.value))

    def links(self) -> Sequence[LinkResource]:
        drained = self._machine.jobs.drained
        return [views.link(cable, drained) for cable in self.config.fabric.cables]

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource:
        leader = self._leader

        def render(answer: effects.Answer) -> LinkResource:
            cables = self.config.fabric.cables
            cable = next(cable for cable in cables if ends_of(cable.a.node, cable.b.node) == answer.value)
            return views.link(cable, leader.machine.jobs.drained)

        return await leader.ask(_request(LinkChange(a, b, setting)), render)


def _request(change: Change) -> Callable[[int], events.ChangeRequest]:
    """Return what makes the request for a change of its number. Raise what is wrong with the change by itself."""
    match change:
        case Registration(spec, replace):
            parsed, origin = parse_job(spec), ORIGIN.get()
            quota = NO_QUOTA if origin is None else origin.quota
            return lambda request: events.RegisterJob(request, spec, parsed, replace, quota=quota)
        case Removal(name):
            return lambda request: events.RemoveJob(request, name)
        case PolicySetting(name=name, parameters=parameters):
            try:
                parse_parameters(name, parameters)
            except PolicyChoiceError as error:
                at = "name" if error.parameter is None else "parameters"
                raise RefusedError(str(error), at, code=error.code) from None
            chosen = ChosenPolicy(name, dict(parameters))
            return lambda request: events.ChoosePolicy(request, chosen)
        case LinkChange(a, b, setting):
            return lambda request: events.SetLink(request, a, b, setting.state == "drained", setting.force)


def _policy(chosen: ChosenPolicy) -> PolicyResource:
    return PolicyResource(
        name=chosen.name,
        parameters=dict(chosen.parameters),
        choices=choices(),
    )
