"""The machine of `echelon.controller.machine`, run durably.

Its effects are carried out on the store, the switches and the clock. Everything runs on one event
loop, but for long computations. Planning and most others run in threads. Searches for better plans
run in a process of their own, and so does the building of large job graphs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.effects import BuildJob, Compare, Effect, PlanningWork
from echelon.controller.machine.errors import ServiceError, UnavailableError
from echelon.controller.machine.events import Event, Request
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.invariants import InvariantError
from echelon.controller.machine.invariants import check as check_invariants
from echelon.controller.machine.jobs import RegisteredJob
from echelon.controller.machine.kept_plan import can_be_kept
from echelon.controller.machine.machine import OVER, InForce, Machine, Settings
from echelon.controller.machine.planning import KeptPlan, Planned, Planner
from echelon.controller.machine.records import Changes
from echelon.controller.names import short_list
from echelon.controller.service import logs, moving
from echelon.controller.service.daemon_thread import DaemonThread
from echelon.controller.service.history import History
from echelon.controller.service.log_lines import MOST_NAMES, log_fact
from echelon.controller.service.loop import MachineLoop
from echelon.controller.service.metrics import Metrics
from echelon.controller.service.plan_file import PlanFile, UnusablePlanError
from echelon.controller.service.store import (
    EmptyStoreError,
    Leadership,
    NotLeaderError,
    Store,
    StoreError,
)
from echelon.controller.service.store.sqlite import SqliteStore
from echelon.controller.service.switches import Switches
from echelon.controller.service.trail import Origin, Trail
from echelon.controller.service.work_process import LOWEST, WorkLostError, WorkProcess
from echelon.model.documents import DocumentError
from echelon.switches.southbound.election import ElectionError, election_id, outranking
from echelon.switches.southbound.errors import SouthboundError
from echelon.switches.southbound.session import DigestReport
from echelon.switches.targets import TARGETS

if TYPE_CHECKING:
    from echelon.controller.service.config import ServiceConfig

T = TypeVar("T")
Render = Callable[[effects.Answer], T]
"""A function from the machine's answer to what the client gets."""

_COUNT_S = 0.1
"""Staleness of the jobs-by-state metric, unless counting takes long."""
_COUNT_SHARE = 1 / 50
"""The largest part of the time that counting may take."""
KEPT_FROM = 500
"""The jobs of a plan from which on it is kept for the next start: fewer take part of a second."""
_KEPT_AFTER_S = 10.0
"""The time without changes after which a plan is kept."""
_KEEPING_SHARE = 1 / 50
"""The largest part of the time that keeping plans may take."""
_SEARCH_AFTER_S = 0.1
"""The time between a plan and a search for a better one, in which other changes may come."""

log = logs.get(__name__)


class Leader(MachineLoop):
    """The controller that keeps the switches at the accepted state, for one term of leadership.

    The term must have been won. Call `open` first, then `run` until it is cancelled.
    """

    def __init__(
        self,
        config: ServiceConfig,
        store: Store,
        leadership: Leadership,
        metrics: Metrics,
        *,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self.trail: Trail
        """The record of changes. It and `machine` are there once `open` has returned."""
        self.switches = Switches(
            config,
            leadership.term,
            metrics,
            self.submit,
            on_digests=self._take_digests,
            rng=rng or random.Random(),
        )
        self.history = History()
        self._config = config
        self._store = store
        self._leadership = leadership
        self._metrics = metrics
        self._about: dict[str, Any] = {}
        """The fields of log records about the event that is being handled."""
        self._asked: dict[int, tuple[asyncio.Future[Any], Render[Any]]] = {}
        self._alarms: dict[int, asyncio.TimerHandle] = {}
        self._counting: asyncio.TimerHandle | None = None
        self._count_took_s = 0.0
        self._plan_file: PlanFile | None = None
        """The plan for the next start; None: the store is no file."""
        self._saving: set[asyncio.Task[None]] = set()
        """Tasks that save.

        Only they may outlive `run`: a change that reaches the disk has to be acknowledged.
        """
        loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = loop.create_future()
        self._planning = DaemonThread("planning")
        # A thread of its own: a controller that starts with many jobs times all of them.
        self._timing = DaemonThread("alone")
        self._search_process = WorkProcess(LOWEST)
        self._searching = ThreadPoolExecutor(1, thread_name_prefix="searching")
        self._build_process = WorkProcess()
        self._building = ThreadPoolExecutor(1, thread_name_prefix="building")
        self._searches: set[asyncio.Task[None]] = set()
        """Tasks that search for better plans.

        They end with `run`; they take long, and hold up nothing.
        """
        self._over = False
        self._checked: InForce | None = None
        """The plan that was in force when invariants were checked last."""

    @property
    def term(self) -> int:
        """The term of this leadership."""
        return self._leadership.term

    @property
    def url(self) -> str:
        """The URL of this controller's API."""
        return self._leadership.candidate.url

    @property
    def store_problem(self) -> str | None:
        """The reason, in one line, why the store cannot be relied on now."""
        return self._store.problem

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is being saved, computed, read or written now."""
        if self._saving or self._tasks:
            return False
        return "writing" not in self.switches.states()

    async def open(self) -> None:
        """Load the accepted state.

        Raises `StoreError`, and `DocumentError` for a job that this version cannot read.
        """
        snapshot = await self._store.load()
        config = self._config
        if not config.accept_empty and not any(snapshot.documents.values()):
            await self._check_unmarked()
        self.trail = Trail(snapshot["events"])
        capabilities = {}
        for name, switch in config.switches.items():
            target = TARGETS[switch.target]
            capabilities[name] = target.capabilities(switch.options)
        settings = Settings(
            fabric=config.fabric,
            policy=config.policy,
            max_jobs=config.limits.jobs,
            flows_per_job=config.limits.flows_per_job,
            coalesce_s=config.coalesce_s,
            correct_sizes=config.correct_sizes,
            reroute=config.reroute,
            reroute_after_s=config.reroute_after_s,
            audit_s=config.audit_s,
            search_after_s=_SEARCH_AFTER_S,
            moved_by_hand=not config.move_command,
        )
        planner = Planner(capabilities, clock=time.perf_counter)
        if isinstance(self._store, SqliteStore):
            file = PlanFile(
                self._store.path,
                config.fabric,
                capabilities,
                config.policy,
            )
            self._plan_file = file
            if len(snapshot["jobs"]) >= KEPT_FROM:
                saved = await self._store.digest()
                planner.kept = await self._kept_plan(file, saved)

        try:
            self.machine = Machine(settings, planner, snapshot, self._now())
        except DocumentError as error:
            document = f"{self._store.url}: {error.file}"
            raise DocumentError(document, error.path, error.reason) from None
        except ValueError as error:
            raise StoreError(f"{self._store.url}: {error} (put back a copy)") from error
        self._metrics.leadership(self.term)
        job_count = len(self.machine.jobs.jobs)
        log.info(
            "loaded",
            term=self.term,
            jobs=job_count,
            store=self._store.url,
        )

    async def _kept_plan(self, file: PlanFile, saved: str) -> KeptPlan | None:
        """Return the plan from before the start, if it holds."""
        try:
            kept = await asyncio.to_thread(file.read, saved)
        except UnusablePlanError as error:
            log.info(
                "no kept plan, so that all jobs are planned",
                file=str(file.path),
                problem=str(error),
            )
            return None
        log.info(
            "the plan from before the start is kept", file=str(file.path), jobs=len(kept.parts)
        )
        return kept

    async def _keep_plans(self, file: PlanFile) -> None:
        """Keep the plan in force for the next start, whenever nothing has changed for a while."""
        kept_version = 0
        rest_s = _KEPT_AFTER_S
        while True:
            since = self._lasting_version
            await asyncio.sleep(rest_s)
            planned = self.machine.lasting
            if planned is None or planned.version != since or since == kept_version:
                continue
            if self._saving:
                continue
            kept_version = since
            began_s = time.perf_counter()
            await self._keep_plan(file, planned)
            took_s = time.perf_counter() - began_s
            rest_s = max(_KEPT_AFTER_S, took_s / _KEEPING_SHARE)

    async def _keep_plan(self, file: PlanFile, planned: Planned) -> None:
        """Keep a plan for the next start. Nothing is being saved."""
        assert isinstance(self._store, SqliteStore)
        if len(planned.registered) < KEPT_FROM or not can_be_kept(planned):
            return
        try:
            # The store has what this plan follows from: whatever is saved from now on comes behind
            # this call.
            saved = await self._store.digest()
            await asyncio.to_thread(file.write, planned, saved)
        except Exception as error:
            # Nothing depends on the file.
            log.warning("the plan is not kept for the next start", problem=str(error))

    @property
    def _lasting_version(self) -> int:
        """The version of the plan that a restart would make; 0: it would make another one."""
        planned = self.machine.lasting
        if planned is None:
            return 0
        return planned.version

    async def _check_unmarked(self) -> None:
        """Raise `EmptyStoreError` if a switch that answers holds entries of this service.

        Such entries come from jobs that this service no longer knows of.
        """
        counts = await self.switches.marked()
        for switch, count in counts.items():
            if count:
                why = f"switch '{switch}' holds {count} entries of service '{self._config.name}'"
                raise EmptyStoreError(self._store.url, why)

    async def run(self) -> None:
        """Plan and write until cancelled. Raises what makes that impossible."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self.switches.run_in(tasks)
                self.submit(events.Started())
                if self._plan_file is not None:
                    tasks.create_task(self._keep_plans(self._plan_file))
                await self._failure
        finally:
            # What is being saved now is in the store at the end, and not in this plan.
            planned = None if self._saving else self.machine.lasting
            self._over = True
            # Clients that wait for a job are told.
            self.submit(events.LeadershipLost())
            await self._end_work()
            self._metrics.leadership(None)
            leads = not self._leadership.lost.is_set()
            if planned is not None and self._plan_file is not None and leads:
                await self._keep_plan(self._plan_file, planned)

    async def _end_work(self) -> None:
        """End timers, tasks, threads and processes, but for tasks that save."""
        for alarm in self._alarms.values():
            alarm.cancel()
        if self._counting is not None:
            self._counting.cancel()

        # A search may take minutes, and its result would be of no use to the next leader.
        unfinished = [*self._tasks, *self._searches]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

        workers = (
            (self._search_process, self._searching),
            (self._build_process, self._building),
        )
        for process, thread in workers:
            process.end()
            # Only the process's own thread may close it.
            thread.submit(process.close)
            thread.shutdown(wait=False)
        for executor in (self._planning, self._timing):
            executor.shutdown(wait=False, cancel_futures=True)

    async def saved(self) -> None:
        """Wait until every change that was under way when `run` ended is on disk, or has failed."""
        while self._saving:
            await asyncio.wait(self._saving)

    # -- events ------------------------------------------------------------------------------------

    async def ask(self, make: Callable[[int], Request], render: Render[T]) -> T:
        """Submit a request, and return its answer as `render` shows it.

        `make` returns the request for a number. `render` is called as soon as the answer is there,
        before anything else can change. Raises the reason of a refusal.
        """
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        # Before the request is submitted, because its answer may come at once.
        self._asked[number] = future, render
        request = make(number)
        self.trail.remember(number, request)
        try:
            self.submit(request)
            return await future
        finally:
            # A change continues even if its client has gone.
            if self._asked.pop(number, None) is not None:
                self.submit(events.StopWaiting(number))

    async def _take_digests(self, switch: str, report: DigestReport) -> None:
        await self._report(switch, report.fields)

    def _now(self) -> Instant:
        return Instant(time.monotonic(), time.time())

    def _handle(self, event: Event) -> None:
        todo = self._decide(event)
        if self._config.check_invariants and not self._is_sound(todo):
            return

        request = getattr(event, "request", None)
        self._about = self.trail.fields(request)
        for effect in todo:
            self._carry_out(effect)

        # Digests are too many, and change no job's state by themselves.
        if not isinstance(event, events.Digests):
            self._count_jobs_soon()

    def _count_jobs_soon(self) -> None:
        # Counting takes time in proportion to the jobs: once for all news of a moment.
        if self._counting is None and not self._over:
            loop = asyncio.get_running_loop()
            delay_s = max(_COUNT_S, self._count_took_s / _COUNT_SHARE)
            self._counting = loop.call_later(delay_s, self._count_jobs)

    def _decide(self, event: Event) -> Sequence[Effect]:
        """Return what the machine wants done after an event."""
        try:
            return self.machine.handle(event, self._now())
        except Exception as error:
            # A fault of ours in one place must not end the service, which would come back to it
            # start after start.
            log.exception("an event could not be handled", kind=type(event).__name__)
            request = getattr(event, "request", None)
            if request is None:
                return []
            reason = f"the controller failed: {type(error).__name__}: {error}"
            return [effects.Refuse(request, ServiceError(reason))]

    def _is_sound(self, todo: Sequence[Effect]) -> bool:
        """Return whether the machine's invariants hold. If not, end before the step's effects."""
        since = self._checked
        self._checked = self.machine.in_force
        try:
            check_invariants(self.machine, todo, since)
        except InvariantError as error:
            # The story ends with the process.
            story = [record.text for record in self.machine.story(error.job)]
            log.error(
                "an invariant of the controller does not hold (report it with this log)",
                invariant=error.invariant,
                job=error.job,
                problem=error.problem,
                story=story,
            )
            self._fail(error)
            return False
        return True

    def _count_jobs(self) -> None:
        self._counting = None
        began_s = time.perf_counter()
        counts = self.machine.progress.counts()
        self._count_took_s = time.perf_counter() - began_s
        self._metrics.count(facts.JobsCounted(counts))

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case effects.Answer(request):
                self.trail.forget(request)
                self._answer(request, effect)
            case effects.Refuse(request, error):
                self.trail.forget(request)
                future, _ = self._asked.pop(request, (None, None))
                if future is not None and not future.done():
                    future.set_exception(error)
            case effects.Save():
                self._start(self._save(effect), self._saving)
            case effects.Install(version, intents):
                self.switches.install(intents, version)
            case effects.ReadCounters():
                self._start(self._read_counters(effect))
            case effects.AcknowledgeDigests(number):
                self._end_report(number)
            case effects.SetAlarm():
                self._set_alarm(effect)
            case effects.RaiseTerm():
                self._start(self._raise_term(effect))
            case effects.AdvanceMove():
                self._start(self._advance_move(effect))
            case effects.UseTerm(term):
                self._metrics.leadership(term)
                self.switches.set_term(term)
            case effects.BuildJob() if not effect.job.is_light:
                self._start(self._build_apart(effect))
            case effects.BuildJob() | effects.Compare():
                self._start(self._compute(effect, None))
            case effects.SearchPlan():
                self._start(self._search(effect), self._searches)
            case effects.EndSearch():
                self._search_process.end()
            case _ if isinstance(effect, PlanningWork):
                self._start(self._compute(effect, self._planning))
            case effects.TimeAlone():
                self._start(self._time_alone(effect))
            case _:
                self._record(effect)
                # The context is only around this: a task that starts inside a context would keep
                # it.
                with logs.context(**self._about):
                    self._metrics.count(effect)
                    log_fact(effect)

    def _record(self, fact: Effect) -> None:
        self.history.take(fact, time.monotonic())
        match fact:
            case facts.PlanChosen(jobs, plan, before) if plan != before:
                # It is saved with the plan.
                choice = f"{plan} instead of {before} for {short_list(jobs, MOST_NAMES)}"
                self.trail.note("choose plan", choice)
            case facts.LinksMoved(by_hand=False):
                self.record("links moved", str(fact))
            case facts.LinksDown():
                self.record("links down" if fact.down else "links up", str(fact))
            case facts.IntentLacking(_, problem):
                self.record("intent held" if problem is None else "intent refused", str(fact))
            case facts.SwitchRepaired(switch, _, detail, times=1):
                # Those that follow would push out the rest of the trail.
                self.record("switch repaired", f"{switch} ({detail})")
            case facts.SwitchDisturbed(switch, None):
                self.record("switch quiet", switch)
            case facts.SwitchDisturbed(switch, problem):
                self.record("switch disturbed", f"{switch} ({problem})")
            case facts.TermContested(switch, taken_by, _, pause_s):
                # A switch may not have noticed yet that a session of our own has ended.
                if taken_by != election_id(self.term):
                    action = "switch left" if pause_s is None else "switch taken"
                    self.record(action, f"{switch} to election id {taken_by}")

    def record(
        self,
        action: str,
        subject: str,
        origin: Origin | None = None,
    ) -> None:
        """Record an action that changes no accepted state, and save the record at once.

        `origin` is the client; None: the controller acts by itself.
        """
        self.trail.note(action, subject, origin)
        self._start(self._save_records(), self._saving)

    async def _save_records(self) -> None:
        changes = self.trail.recorded(None, Changes({}, []))
        if self._leadership.lost.is_set() or not changes.puts:
            return
        try:
            await self._store.commit(changes)
        except StoreError as error:
            log.warning("records of the trail are not saved yet", problem=str(error))
        else:
            self.trail.saved(None, changes)

    def _answer(self, request: int, answer: effects.Answer) -> None:
        future, render = self._asked.pop(request, (None, None))
        if future is None or render is None or future.done():
            return
        try:
            future.set_result(render(answer))
        except Exception as error:
            future.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    def _set_alarm(self, effect: effects.SetAlarm) -> None:
        number = next(self._numbers)
        loop = asyncio.get_running_loop()
        self._alarms[number] = loop.call_later(effect.delay_s, self._ring, number, effect.alarm)

    def _ring(self, number: int, alarm: events.Alarm) -> None:
        del self._alarms[number]
        self.submit(alarm)

    async def _save(self, effect: effects.Save) -> None:
        began_s = time.perf_counter()
        try:
            # The store may be led again by now, by this process, in a later term that has loaded
            # without this change.
            if self._leadership.lost.is_set():
                raise NotLeaderError(OVER)
            changes = self.trail.recorded(effect.request, effect.changes)
            await self._store.commit(changes)
        except StoreError as error:
            self._metrics.count(facts.CommitFailed())
            self.submit(events.SaveFailed(effect.request, error))
        except Exception as error:
            self._metrics.count(facts.CommitFailed())
            log.exception("saving failed")
            text = f"the change could not be saved: {type(error).__name__}: {error}"
            self.submit(events.SaveFailed(effect.request, ServiceError(text)))
        else:
            self.trail.saved(effect.request, changes)
            duration_s = time.perf_counter() - began_s
            self._metrics.count(facts.ChangeCommitted(duration_s))
            self.submit(events.Saved(effect.request))

    async def _compute(
        self, effect: BuildJob | Compare | PlanningWork, executor: Executor | None
    ) -> None:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(executor, effect.run)
        self.submit(result)

    async def _build_apart(self, effect: BuildJob) -> None:
        """Build a large graph in another process.

        In this one it would hold the interpreter for many milliseconds at once.
        """
        work = partial(self._build_process.run, effect.run)
        loop = asyncio.get_running_loop()
        try:
            answer = await loop.run_in_executor(self._building, work)
        except WorkLostError as error:
            reason = f"the job cannot be built: {error.reason} (try again, or make it smaller)"
            answer = events.JobBuilt(effect.request, UnavailableError(reason))
        else:
            if isinstance(answer.built, RegisteredJob):
                job = effect.job.with_graph_of(answer.built)
                answer = events.JobBuilt(effect.request, job)
        self.submit(answer)

    async def _search(self, effect: effects.SearchPlan) -> None:
        search = partial(effect.run, time.perf_counter)
        work = partial(self._search_process.run, search)
        loop = asyncio.get_running_loop()
        answer: events.SearchFound | events.SearchFailed
        try:
            answer = await loop.run_in_executor(self._searching, work)
        except WorkLostError as error:
            reason = f"the search: {error.reason}"
            answer = events.SearchFailed(effect.number, reason, error.retry)
        self.submit(answer)

    async def _time_alone(self, effect: effects.TimeAlone) -> None:
        loop = asyncio.get_running_loop()
        try:
            timed = await loop.run_in_executor(self._timing, effect.run)
        except Exception:
            log.exception("timing a job alone failed", job=effect.job.name)
        else:
            if timed is not None:
                self.submit(timed)

    async def _read_counters(self, effect: effects.ReadCounters) -> None:
        try:
            bytes_seen = await self.switches[effect.switch].bytes_seen(effect.entries)
        except SouthboundError as error:
            self.submit(events.CountersFailed(effect.reading, effect.switch, str(error)))
        else:
            self.submit(events.CountersRead(effect.reading, effect.switch, bytes_seen))

    async def _advance_move(self, effect: effects.AdvanceMove) -> None:
        config = self._config
        wiring = effect.wiring
        problem = None
        if wiring.begun:
            problem = await moving.switch_links(config.move_command, config.file.parent, wiring)
        else:
            await moving.drain(self.switches, wiring, config.drain_s)
        self.submit(events.MoveAdvanced(effect.number, problem))

    async def _raise_term(self, effect: effects.RaiseTerm) -> None:
        """Raise the term above that of another primary.

        The other one cannot have the lease, because this controller holds it.
        """
        switch = effect.switch
        taken_by = effect.election_id
        now_us = time.time_ns() // 1000
        try:
            wanted = outranking(taken_by, now_us, self.term)
            term = await self._leadership.raise_term(wanted)
        except ElectionError as error:
            reason = f"cannot lead the switch: {error}"
            self.submit(events.TermFailed(switch, taken_by, reason, retry=False))
        except StoreError as error:
            reason = f"the store refuses a higher term: {error}"
            self.submit(events.TermFailed(switch, taken_by, reason, retry=True))
        else:
            self.submit(events.TermSaved(term))
