"""A service that keeps jobs in a dictionary and has one switch: enough to see what the API makes of requests and
errors. Whether the real one keeps its word is for its own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.control.errors import ConflictError, UnknownError
from echelon.documents import parse_document
from echelon.jobs.spec import JobSpec
from echelon.service.interface import Change, FlowQuery, JobQuery, Registered
from echelon.service.resources import (
    CandidateResource,
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
    JobForecast,
    JobResource,
    JobSummary,
    LinkResource,
    LinkSetting,
    PlanResource,
    PolicyResource,
    PolicySetting,
    QueueUse,
    RankingResource,
    StatusResource,
    SwitchDifference,
    SwitchQueues,
    SwitchResource,
    WaitResource,
    WaitsResource,
)


class MemoryService:
    def __init__(self) -> None:
        self._specs: dict[str, dict[str, Any]] = {}
        self._policy = PolicyResource(name="fair", parameters={}, choices={"fair": {}, "varys": {}})
        self._link = LinkResource(a="s1", b="s2", rate_bps=10**9, delay_s=0.0, state="up")
        self.problem_list: list[str] = []
        self.stuck_list: list[str] = []
        self.event_list: list[EventResource] = []
        self.reports: list[DistanceReport] = []
        self.rehearsed: list[Change] = []
        self.fault: Exception | None = None
        """The fault that the next calls raise."""
        self.release = asyncio.Event()
        """The event that `installed` waits for, and `difference` if `busy`."""
        self.busy = False
        self.waiting = 0
        """The number of calls that wait for it."""

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault

    def status(self) -> StatusResource:
        self._check()
        return StatusResource(
            version="0", fabric="f", role="leader", term=1, leader=None, started_at=0.0, policy=self._policy.name,
            jobs=len(self._specs), installed_jobs=0, plan=1, switches={"ready": 1},
        )  # fmt: skip

    def problems(self) -> Sequence[str]:
        return self.problem_list

    def stuck(self) -> Sequence[str]:
        return self.stuck_list

    def events(self) -> Sequence[EventResource]:
        self._check()
        return self.event_list

    def jobs(self, wanted: JobQuery) -> Sequence[JobSummary]:
        self._check()
        return [
            JobSummary(name=name, state="accepted", parallelism=spec["parallelism"], workers=(), flow_count=1)
            for name, spec in sorted(self._specs.items())
            if wanted.state in (None, "accepted")
            and (wanted.worker is None or wanted.worker in spec["workers"])
            and (wanted.after is None or name > wanted.after)
        ][: wanted.limit]

    def job(self, name: str) -> JobResource:
        self._check()
        if name not in self._specs:
            raise UnknownError(f"there is no job '{name}' (GET /jobs lists them)")
        workers = tuple(self._specs[name]["workers"])
        return JobResource(
            name=name,
            number=1,
            spec=self._specs[name],
            state="accepted",
            accepted_at=0.0,
            workers=workers,
            flow_count=1,
        )

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        self._check()
        name = parse_document(JobSpec, dict(spec), "job").job
        former = self._specs.get(name)
        if former is not None and former != spec and not replace:
            raise ConflictError(f"another job is named '{name}' (choose another name, or replace it)", "job")
        self._specs[name] = dict(spec)
        return Registered(self.job(name), former is None)

    async def remove(self, name: str) -> None:
        self.job(name)
        del self._specs[name]

    async def rehearse(self, change: Change) -> DryRunResource:
        self._check()
        self.rehearsed.append(change)
        return DryRunResource(switches=(), jobs=(JobForecast(job="other", before=1.0, after=1.5),))

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource:
        job = self.job(name)
        self.reports.append(report)
        return job

    def connections(self, name: str) -> ConnectionsResource:
        self.job(name)
        return ConnectionsResource(job=name, by="agent", idle_gap_s=0.05, addresses={}, connections={})

    async def report_connections(self, name: str, host: str, report: ConnectionReport) -> ConnectionsResource:
        self._check()
        known = self.connections(name)
        return known.model_copy(update={"connections": {host: report.connections}})

    async def report_iterations(self, name: str, host: str, report: IterationReport) -> HostMeasurement:
        self._check()
        self.job(name)
        times_s = tuple(float(one.duration) for one in report.iterations)
        return HostMeasurement(
            host=host, iteration_times_s=times_s, sent_bytes={}, retransmitted_bytes=0, stalled_s=0.0
        )

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        job = self.job(name)
        try:
            await asyncio.wait_for(self._wait(), timeout_s)
        except TimeoutError:
            return job
        return job.model_copy(update={"state": "installed"})

    async def _wait(self) -> None:
        self.waiting += 1
        try:
            await self.release.wait()
        finally:
            self.waiting -= 1

    def plan(self, wanted: FlowQuery) -> tuple[PlanResource, Iterator[FlowPlanResource]]:
        self._check()
        if wanted.job is not None:
            self.job(wanted.job)
        if wanted.switch is not None:
            self._name(wanted.switch)
        ranking = RankingResource(kind="fixed", parameters={"queue": 1})
        flows = [
            FlowPlanResource(job=name, flow=f"{name}-{switch}", path=("h1", switch, "h2"), ranking=ranking)
            for name in self._specs
            for switch in ("s1", "s2")
        ]
        if wanted.after is not None:
            flows = flows[[(flow.job, flow.flow) for flow in flows].index(wanted.after) + 1 :]
        head = PlanResource(number=1, made_at=0.0, policy="fair", jobs=len(self._specs), flows=())
        return head, (
            flow
            for flow in flows
            if wanted.job in (None, flow.job) and (wanted.switch is None or wanted.switch in flow.path)
        )

    def choices(self, job: str | None) -> Iterator[ChoiceResource]:
        self._check()
        tried = CandidateResource(plan="fair", mean=1.2, worst=1.3, score=1.33, draws=4, problem=None)
        for name in self._specs:
            if job in (None, name):
                yield ChoiceResource(
                    jobs=(name,), plan="fair", searched_at=1.5, search_s=0.25, before="rule k3", problem=None,
                    slowdowns={name: 1.2}, tried=(tried,),
                )  # fmt: skip

    def _name(self, switch: str) -> str:
        self._check()
        if switch not in ("s1", "s2"):
            raise UnknownError(f"there is no switch '{switch}' (GET /switches lists them)")
        return switch

    def intent(self, switch: str) -> IntentResource:
        return IntentResource(switch=self._name(switch), entries=(), queues=())

    async def difference(self, switch: str) -> SwitchDifference:
        name = self._name(switch)
        if self.busy:
            await self._wait()
        return SwitchDifference(switch=name, reachable=True)

    def flows(self, after: int, job: str | None) -> FlowTable:
        self._check()
        if job is not None:
            self.job(job)
        kept = [number for number in (1, 2, 3) if number > after]
        return FlowTable(
            count=3, jobs=("d",), flows=("f",), number=tuple(kept), job=(0,) * len(kept), flow=(0,) * len(kept),
            iteration=tuple(kept), start_s=tuple(map(float, kept)), finish_s=tuple(one + 0.5 for one in kept),
            tardiness_s=(None,) * len(kept),
        )  # fmt: skip

    async def waits(self) -> WaitsResource:
        self._check()
        wait = WaitResource(job="d", other="e", wait_s=1.5, links=(("s1", "s2"),))
        return WaitsResource(flows=3, from_s=1.0, to_s=3.5, waits=(wait,))

    async def queues(self, switch: str) -> SwitchQueues:
        use = QueueUse(port=1, to="s2", rate_bps=10**9, queue=0, packets=1, size_bytes=64, dropped_packets=0)
        return SwitchQueues(switch=self._name(switch), reachable=True, at=1.0, queues=(use,))

    def switches(self) -> Sequence[SwitchResource]:
        return [self.switch("s1"), self.switch("s2")]

    def switch(self, name: str) -> SwitchResource:
        return SwitchResource(
            name=self._name(name), address="127.0.0.1:9559", target="softswitch", device_id=1, state="ready", since=0.0
        )

    def policy(self) -> PolicyResource:
        self._check()
        return self._policy

    async def set_policy(self, setting: PolicySetting) -> PolicyResource:
        self._policy = self.policy().model_copy(update={"name": setting.name})
        return self._policy

    def links(self) -> Sequence[LinkResource]:
        self._check()
        return [self._link]

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource:
        if {self._name(a), self._name(b)} != {"s1", "s2"}:
            raise UnknownError(f"there is no link between '{a}' and '{b}' (GET /links lists them)")
        self._link = self._link.model_copy(update={"state": setting.state})
        return self._link
