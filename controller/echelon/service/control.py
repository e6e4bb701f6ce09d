"""The leader: jobs in, plans made, switches kept at them. One event loop; planning in a thread of its own.

A change goes: checked -> on disk (answered here) -> planned -> numbers on disk -> intents handed to the connections ->
acknowledged by the switches -> numbers of what has gone are free. Whatever breaks off on the way is taken up again from
disk and from what the switches hold.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from typing import TYPE_CHECKING, Any, TypeVar

from echelon.fluid import alone_iteration_s
from echelon.lowering.intent import TableEntry
from echelon.lowering.lower import limits
from echelon.lowering.numbering import Numbering
from echelon.policies import PlanError, PolicyChoiceError, choices, parse_parameters
from echelon.reaction import DecisionDue
from echelon.scheduler import CentralScheduler
from echelon.service import logs, views
from echelon.service.errors import RefusedError, UnavailableError, UnknownError
from echelon.service.following import Following
from echelon.service.interface import Registered
from echelon.service.jobs import RegisteredJob
from echelon.service.metrics import Metrics
from echelon.service.planning import Planned, Planner, PlanningError, Wanted
from echelon.service.progress import Progress
from echelon.service.register import Register, ends_of
from echelon.service.resources import (
    DistanceReport,
    IntentResource,
    JobResource,
    JobState,
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
from echelon.service.store import Changes, Document, Key, Leadership, Store, StoreError
from echelon.service.switches import Switches
from echelon.southbound.election import ElectionError, outranking
from echelon.southbound.errors import SouthboundError
from echelon.southbound.session import DigestReport
from echelon.targets import TARGETS

if TYPE_CHECKING:
    from echelon.service.config import ServiceConfig

T = TypeVar("T")

_RETRY_S = 1.0
"""After the store did not take what only waits for it."""
_COUNT_S = 0.1
"""The metric of jobs by state is so old at most."""
_OVER = "this controller does not lead any more (ask again: another one does)"
_REACTION_S = 5.0
"""A reactive policy's decision waits so long at most for switches to acknowledge it."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Made:
    """The plan in force."""

    planned: Planned
    at: float
    """Seconds since the epoch."""


class Control:
    """Implements `echelon.service.interface.Service` for as long as this controller leads.

    `open` first, then `run` until it is cancelled. The store's leadership must have been won.
    """

    def __init__(
        self,
        config: ServiceConfig,
        store: Store,
        leadership: Leadership,
        metrics: Metrics,
        *,
        started_at: float,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._leadership = leadership
        self._metrics = metrics
        self._started_at = started_at
        self._register = Register(
            config.fabric,
            PolicySetting(name=config.policy.name, parameters=dict(config.policy.parameters)),
            store,
            leadership,
            metrics,
            max_jobs=config.limits.jobs,
            flows_per_job=config.limits.flows_per_job,
        )
        self._fabric = config.fabric
        """Without the links that are drained."""
        self._progress = Progress()
        self._moved = asyncio.Event()
        """Set, and replaced, whenever a job may have come further."""
        self._changed = asyncio.Event()
        """There is something to plan."""
        self._counting: asyncio.TimerHandle | None = None
        self._planned_generation = -1
        """Of the register, that the last attempt to plan has seen."""
        self._made: _Made | None = None
        self._plan_problem: str | None = None
        self._unsaved: dict[str, Document] = {}
        """Numbers that the store has not taken yet."""
        capabilities = {
            name: TARGETS[switch.target].capabilities(switch.options) for name, switch in config.switches.items()
        }
        self._planner = Planner(capabilities, Numbering({name: limits(of) for name, of in capabilities.items()}))
        self._planning = ThreadPoolExecutor(1, thread_name_prefix="planning")
        self._adopting = asyncio.Lock()
        """One plan at a time on its way to the switches."""
        self._following = Following(metrics, self._read_counters, self._decide, self._corrected)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = False
        """It has been running, and does no more."""
        self._timing = ThreadPoolExecutor(1, thread_name_prefix="alone")
        """Not one of those that requests wait for: a controller that starts with many jobs has all of them to do."""
        self._alone: dict[str, tuple[RegisteredJob, float]] = {}
        """Seconds that an iteration takes on an otherwise empty fabric."""
        self._switches = Switches(
            config,
            leadership.term,
            metrics,
            self._progress,
            self,
            on_digests=self._on_digests,
            on_higher_primary=self._on_higher_primary,
            rng=rng or random.Random(),
        )

    # -- life ----------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load what was accepted. Raises `StoreError`, and `DocumentError` for a job that this version cannot read."""
        snapshot = await self._store.load()
        self._register.load(snapshot)
        for name in self._register.jobs:
            self._progress.accepted(name, time.monotonic())
        self._fabric = self._config.fabric.without(self._register.drained)
        try:
            self._planner.restore(snapshot["numbers"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._store.url}: {error} (put back a copy)") from error
        self._metrics.leadership(self._leadership.term)
        log.info("loaded", term=self._leadership.term, jobs=len(self._register.jobs), store=self._store.url)
        self._changed.set()

    async def run(self) -> None:
        """Plan and write until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._switches.run_in(tasks)
                tasks.create_task(self._plan_for_ever(), name="planning")
        finally:
            self._over = True
            # Whoever waits for a job is told.
            self._moved.set()
            if self._counting is not None:
                self._counting.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._planning.shutdown(wait=False, cancel_futures=True)
            self._timing.shutdown(wait=False, cancel_futures=True)
            self._metrics.leadership(None)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _beside(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Nobody waits for it; `what` failed is said if it does."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error(f"{what} failed", problem=f"{type(error).__name__}: {error}", exc_info=error)

        self._spawn(work).add_done_callback(ended)

    # -- what is asked -------------------------------------------------------------------------------------------------

    def status(self) -> StatusResource:
        return StatusResource(
            version=installed_version("echelon-p4"),
            fabric=self._config.fabric.name,
            role="leader",
            term=self._leadership.term,
            leader=self._leadership.candidate.url,
            started_at=self._started_at,
            policy=_policy_text(self._register.policy),
            jobs=len(self._register.jobs),
            installed_jobs=self._count_jobs()["installed"],
            plan=0 if self._made is None else self._made.planned.version,
            plan_problem=self._plan_problem,
            settled=self._is_settled(),
            switches=self._switches.states(),
        )

    def problems(self) -> Sequence[str]:
        problems = []
        if self._store.problem is not None:
            problems.append(self._store.problem)
        if self._made is None:
            problems.append(self._plan_problem or "there is no plan yet")
        return problems

    def jobs(self) -> Sequence[JobSummary]:
        return [self._summary(job) for job in self._register.jobs.values()]

    def job(self, name: str) -> JobResource:
        return self._resource(self._register.known(name), with_flows=True)

    async def register(self, spec: Mapping[str, Any], *, replace: bool) -> Registered:
        job, created, changed = await self._register.register(spec, replace=replace)
        if changed:
            log.info("job registered" if created else "job changed", job=job.name, flows=job.spec.flow_count)
            self._accepted(job.name)
        return Registered(self._resource(job), created)

    async def remove(self, name: str) -> None:
        await self._register.remove(name)
        log.info("job removed", job=name)
        self._progress.removed(name)
        self._alone.pop(name, None)
        self._replan()

    async def report_distances(self, name: str, report: DistanceReport) -> JobResource:
        job = await self._register.report_distances(name, report)
        log.info("distances reported", job=name, echelonflow=report.echelonflow)
        self._accepted(name)
        return self._resource(job)

    async def installed(self, name: str, timeout_s: float) -> JobResource:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._register.known(name) and not self._progress.settled(name):
                    if self._over:
                        raise UnavailableError(_OVER)
                    await self._moved.wait()
        return self.job(name)

    def plan(self) -> PlanResource:
        made = self._in_force()
        return PlanResource(
            number=made.planned.version,
            made_at=made.at,
            policy=made.planned.plan.policy,
            jobs=len(made.planned.registered),
            flows=tuple(views.flow_plan(flow) for flow in made.planned.plan.flows),
            problem=self._plan_problem,
        )

    def intent(self, switch: str) -> IntentResource:
        return views.intent(self._in_force().planned.intents[self._switches[switch].name])

    async def difference(self, switch: str) -> SwitchDifference:
        connection, intent = self._switches[switch], self._in_force().planned.intents[switch]
        try:
            found = await connection.difference(intent)
        except SouthboundError as error:
            return SwitchDifference(switch=switch, reachable=False, problem=str(error))
        return views.difference(switch, found)

    def switches(self) -> Sequence[SwitchResource]:
        return [views.switch(seen) for seen in self._switches.snapshots()]

    def switch(self, name: str) -> SwitchResource:
        return views.switch(self._switches[name].snapshot())

    def policy(self) -> PolicyResource:
        return PolicyResource(
            name=self._register.policy.name,
            parameters=self._register.policy.parameters,
            choices=choices(),
        )

    async def set_policy(self, setting: PolicySetting) -> PolicyResource:
        try:
            parse_parameters(setting.name, setting.parameters)
        except PolicyChoiceError as error:
            raise RefusedError(str(error), "name" if error.parameter is None else "parameters") from None
        await self._register.set_policy(setting)
        log.info("policy changed", policy=_policy_text(setting))
        self._replan()
        return self.policy()

    def links(self) -> Sequence[LinkResource]:
        return [views.link(cable, self._register.drained) for cable in self._config.fabric.cables]

    async def set_link(self, a: str, b: str, setting: LinkSetting) -> LinkResource:
        fabric, ends = self._config.fabric, ends_of(a, b)
        cable = next((cable for cable in fabric.cables if ends_of(cable.a.node, cable.b.node) == ends), None)
        if cable is None:
            raise UnknownError(f"there is no link between '{a}' and '{b}' in fabric '{fabric.name}'")
        if a in fabric.hosts or b in fabric.hosts:
            raise RefusedError("the only link of a host cannot be drained (remove the jobs of that host instead)")
        await self._register.set_drained(ends, setting.state == "drained")
        self._fabric = fabric.without(self._register.drained)
        log.info("link changed", link=f"{a}-{b}", state=setting.state)
        self._replan()
        return views.link(cable, self._register.drained)

    def _in_force(self) -> _Made:
        if self._made is None:
            raise UnavailableError(self._plan_problem or "there is no plan yet (ask again in a moment)")
        return self._made

    def _is_settled(self) -> bool:
        return (
            self._made is not None
            and self._register.generation == self._planned_generation
            and self._switches.hold(self._made.planned.version)
        )

    def _summary(self, job: RegisteredJob) -> JobSummary:
        state, problem = self._progress.state(job.name)
        return views.summary(job, state, problem, self._following.view(job.name))

    def _resource(self, job: RegisteredJob, *, with_flows: bool = False) -> JobResource:
        state, problem = self._progress.state(job.name)
        timings, installed_at = self._progress.timings(job.name)
        seen = self._following.view(job.name)
        return JobResource(
            name=job.name,
            number=job.number,
            spec=dict(job.document),
            state=state,
            problem=problem,
            accepted_at=job.accepted_at,
            installed_at=installed_at,
            workers=tuple(job.spec.hosts),
            flow_count=job.spec.flow_count,
            alone_iteration_s=self._alone.get(job.name, (job, None))[1],
            iteration_times_s=() if seen is None else tuple(float(one) for one in seen.iteration_times_s),
            echelonflows=views.echelonflows(job, seen),
            flows=views.flow_numbers(job) if with_flows else (),
            timings=timings,
        )

    # -- planning ------------------------------------------------------------------------------------------------------

    def _accepted(self, name: str) -> None:
        self._progress.accepted(name, time.monotonic())
        self._replan()

    def _replan(self) -> None:
        self._changed.set()
        self.moved()

    def _count_jobs(self) -> Counter[JobState]:
        return Counter(self._progress.state(name)[0] for name in self._register.jobs)

    async def _in_planning(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._planning, work, *arguments)

    async def _plan_for_ever(self) -> None:
        while True:
            await self._changed.wait()
            # Whatever else comes in this time is part of the same plan.
            await asyncio.sleep(self._config.coalesce_s)
            async with self._adopting:
                self._changed.clear()
                await self._plan_once()

    async def _plan_once(self) -> None:
        wanted = Wanted(tuple(self._register.jobs.values()), self._fabric, self._register.policy)
        generation, began_s = self._register.generation, time.monotonic()
        try:
            planned = await self._in_planning(self._planner.plan, wanted)
        except PlanningError as error:
            self._keep_the_last(str(error), generation)
            return
        await self._save_numbers(planned)
        self._plan_problem = _left_out(planned)
        self._progress.planned(
            planned.version,
            planned.plan.by_job,
            planned.problems,
            self._unchanged_since(generation),
            began_s=began_s,
            policy_s=planned.policy_s,
            lowering_s=planned.lowering_s,
        )
        self._planned_generation = generation
        self._following.planned(planned, self._planner.policy)
        self._install(planned)
        if planned.plan.reactive:
            self._beside(self._following.decide_anew(), "deciding anew")
        self._metrics.plan_complete(not planned.problems)
        for name, problem in planned.problems.items():
            log.warning("job left out of the plan", job=name, plan=planned.version, problem=problem)

    def _keep_the_last(self, problem: str, generation: int) -> None:
        self._planned_generation = generation
        self._plan_problem = problem
        self._progress.failed(problem, self._unchanged_since(generation))
        self._metrics.plan_failed()
        log.error("no new plan, the last good one holds", policy=self._register.policy.name, problem=problem)
        self.moved()

    def _unchanged_since(self, generation: int) -> list[str]:
        return [name for name, changed in self._register.generations.items() if changed <= generation]

    async def _save_numbers(self, planned: Planned) -> None:
        """On disk before any switch has them: a controller that comes after this one gives the same."""
        self._unsaved |= planned.kept
        problem = self._plan_problem
        while self._unsaved:
            puts: dict[Key, Document] = {("numbers", name): doc for name, doc in self._unsaved.items() if doc}
            deletes: list[Key] = [("numbers", name) for name, doc in self._unsaved.items() if not doc]
            try:
                await self._register.commit(Changes(puts=puts, deletes=deletes))
            except StoreError as error:
                self._plan_problem = str(error)
                log.error("the store does not take a plan's numbers; nothing is written meanwhile", problem=str(error))
                await asyncio.sleep(_RETRY_S)
            else:
                self._unsaved, self._plan_problem = {}, problem

    def _install(self, planned: Planned) -> None:
        self._made = _Made(planned, time.time())
        self._metrics.planned(planned.version, len(planned.plan.flows), planned.policy_s, planned.lowering_s)
        log.info(
            "planned",
            plan=planned.version,
            policy=planned.plan.policy,
            jobs=len(planned.registered),
            policy_s=round(planned.policy_s, 6),
            lowering_s=round(planned.lowering_s, 6),
        )
        self._switches.install(planned)
        self.moved()

    # -- what switches tell --------------------------------------------------------------------------------------------

    def moved(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        # Counting takes as long as there are jobs: once for all news of a moment.
        if self._counting is None and not self._over:
            self._counting = asyncio.get_running_loop().call_later(_COUNT_S, self._tell_counts)

    def _tell_counts(self) -> None:
        self._counting = None
        self._metrics.jobs(self._count_jobs())

    def session_opened(self, switch: str) -> None:
        self._following.tracker.reconnected(switch)

    def acknowledged(self, switch: str, version: int) -> None:
        self._beside(self._settle(switch, version), "taking back numbers")

    async def _settle(self, switch: str, version: int) -> None:
        if await self._in_planning(self._planner.settle, switch, version) and self._plan_problem is not None:
            # There may be room now for a job that was left out.
            self._replan()

    def completed(self, job: str) -> None:
        self._beside(self._time_alone(self._register.jobs[job]), "timing a job alone")

    async def _time_alone(self, job: RegisteredJob) -> None:
        """For comparison with what switches see."""
        if self._alone.get(job.name, (None, 0.0))[0] is job:
            return
        loop = asyncio.get_running_loop()
        try:
            alone_s = await loop.run_in_executor(self._timing, alone_iteration_s, job.job, self._fabric)
        except PlanError:
            # The links that it needs were drained meanwhile.
            return
        # It may have gone, or be another one by now.
        if self._register.jobs.get(job.name) is job:
            self._alone[job.name] = (job, float(alone_s))

    def _on_higher_primary(self, switch: str, primary_id: int) -> None:
        self._beside(self._outrank(switch, primary_id), "outranking another controller")

    async def _outrank(self, switch: str, primary_id: int) -> None:
        """We hold the lease: whoever is primary there has none."""
        log.warning("a switch obeys a controller of a higher election id", switch=switch, election_id=primary_id)
        while True:
            try:
                wanted = outranking(primary_id, time.time_ns() // 1000, self._leadership.term)
                term = await self._leadership.raise_term(wanted)
                break
            except ElectionError as error:
                log.error("cannot lead a switch", switch=switch, problem=str(error))
                return
            except StoreError as error:
                log.error("the store does not take a higher term", switch=switch, problem=str(error))
                await asyncio.sleep(_RETRY_S)
        self._metrics.leadership(term)
        self._switches.set_term(term)

    async def _on_digests(self, switch: str, version: int | None, report: DigestReport) -> None:
        await self._following.digests(switch, report)

    async def _read_counters(self, switch: str, entries: Iterable[TableEntry]) -> Mapping[TableEntry, int]:
        return await self._switches[switch].bytes_seen(entries)

    def _corrected(self, name: str) -> None:
        job = self._register.jobs.get(name)
        if job is None or not self._config.correct_distances:
            return
        observed_s = self._following.corrections(job)
        if observed_s is None or observed_s == job.observed_s:
            return
        self._register.correct(replace(job, observed_s=observed_s))
        self._metrics.distances_corrected()
        log.info("distances corrected by what switches saw", job=name)
        self._replan()

    async def _decide(self, scheduler: CentralScheduler, due: DecisionDue) -> None:
        # Carried through even if the session ends that reported: what was decided about numbers must come to the disk.
        version = await asyncio.shield(self._spawn(self._react(scheduler, due)))
        if version is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACTION_S):
                while not self._switches.hold(version):
                    await self._moved.wait()

    async def _react(self, scheduler: CentralScheduler, due: DecisionDue) -> int | None:
        """The version of the new intents, if there are any."""
        async with self._adopting:
            # Another plan, or policy, may be in force by now.
            if self._made is None or not self._following.is_reacting(scheduler):
                return None
            try:
                planned = await self._in_planning(self._planner.react, scheduler, due, self._made.planned, self._fabric)
            except PlanningError as error:
                log.error("no new plan, the last good one holds", problem=str(error))
                return None
            await self._save_numbers(planned)
            self._following.installing(planned)
            self._install(planned)
            return planned.version


def _policy_text(setting: PolicySetting) -> str:
    """As `echelon run --policy` takes it."""
    if not setting.parameters:
        return setting.name
    return f"{setting.name}({', '.join(f'{key}={value}' for key, value in sorted(setting.parameters.items()))})"


def _left_out(planned: Planned) -> str | None:
    first = next(iter(planned.problems.values()), None)
    if first is None:
        return None
    return f"{len(planned.problems)} of {len(planned.problems) + len(planned.registered)} jobs are left out: {first}"
