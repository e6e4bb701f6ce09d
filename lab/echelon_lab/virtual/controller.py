"""The machine of `echelon.controller.machine` in virtual time.

It is the same controller as the service's, with a store in memory.

It runs on an event loop of its own, beside a testbed that runs in the calling thread. Work that the
service does in threads is done at once, and the reports of switches say how late it is.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from echelon.controller.changes import RegisterJob
from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.effects import Effect
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import BuiltJob
from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.machine import Machine, Settings
from echelon.controller.machine.planning import Planner
from echelon.controller.machine.records import (
    COLLECTIONS,
    Changes,
    CollectionName,
    Document,
    Snapshot,
)
from echelon.controller.service.loop import MachineLoop
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec
from echelon.planning.plan import Plan
from echelon.planning.policies import PlanError
from echelon.planning.policies.base import Policy, Reporting, no_report
from echelon.switches.lowering.at_hosts import HostRule
from echelon.switches.lowering.capabilities import Capabilities
from echelon.switches.lowering.lower import DIGEST
from echelon.switches.lowering.trees import JobTree
from echelon.switches.southbound.deadlines import no_deadlines
from echelon.switches.southbound.events import Acknowledged, SwitchChanged
from echelon.switches.southbound.session import IntentSession
from echelon_lab.scenarios.results import ChosenPlan

T = TypeVar("T")

_COALESCE_S = 0.001
"""All jobs of a run are accepted within this time, so that one plan has them all."""
_LAST_STATUS_S = 1.0
"""The wait for the last status of closed channels, in real seconds."""


class MemoryStore:
    """Documents in memory, saved as soon as they are handed over."""

    def __init__(self) -> None:
        self._documents: dict[CollectionName, dict[str, Document]] = {
            name: {} for name in COLLECTIONS
        }

    def load(self) -> Snapshot:
        """Return all documents as they are now."""
        return Snapshot({name: dict(documents) for name, documents in self._documents.items()})

    def commit(self, changes: Changes) -> None:
        """Apply the changes."""
        for (collection, key), document in changes.puts.items():
            self._documents[collection][key] = document
        for collection, key in changes.deletes:
            self._documents[collection].pop(key, None)


class VirtualController(MachineLoop):
    """A controller of every switch that accepts jobs, writes their plan and follows digests.

    A context manager: connected and written inside. `stop` closes all sessions, as if the
    controller had died. Entering it raises `PlanError` where there is no plan for all jobs, and
    `SouthboundError`.

    Args:
        fabric: with the switches to connect to.
        jobs: what their files say, and the graphs that the controller believes in.
        policy: makes the plans.
        sessions: with each switch, to be opened.
        capabilities: of every switch.
        acknowledged: called with a switch when a report of it was acknowledged.
        on_search: called with the share that is done of a search for a plan.
    """

    def __init__(
        self,
        fabric: Fabric,
        jobs: Sequence[tuple[JobSpec, BuiltJob]],
        policy: Policy,
        sessions: Mapping[str, IntentSession],
        capabilities: Capabilities,
        *,
        acknowledged: Callable[[str], None] = lambda _switch: None,
        on_search: Callable[[float], None] = no_report,
    ) -> None:
        super().__init__()
        settings = Settings(
            fabric,
            ChosenPolicy(policy.name),
            max_jobs=max(1, len(jobs)),
            flows_per_job=sys.maxsize,
            coalesce_s=_COALESCE_S,
            # It would come at another moment of virtual time in each run.
            search_again=False,
            starts_known=True,
        )
        planner = Planner(dict.fromkeys(fabric.switches, capabilities), lambda _: policy)
        self._store = MemoryStore()
        self._now_s = 0.0
        self.machine = Machine(settings, planner, self._store.load(), self._now())
        self.digests: dict[str, int] = dict.fromkeys(fabric.switches, 0)
        """Number of flow events received, by switch."""
        self.failure: BaseException | None = None
        """The error that keeps the controller from continuing; None: nothing.

        Its sessions are closed then, so that no switch waits for it.
        """
        self._jobs = jobs
        self._ranks = capabilities.ranks
        self._sessions = sessions
        self._acknowledged = acknowledged
        self._on_search = on_search
        self._turns = {name: asyncio.Lock() for name in fabric.switches}
        """Calls of one session that read or write must not overlap."""
        self._alarms: list[tuple[float, int, events.Alarm]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever,
            name="controller",
            daemon=True,
        )
        self._stack = AsyncExitStack()
        self._hung_up: asyncio.Task[None] | None = None
        self._running = False

    # -- life --------------------------------------------------------------------------------------

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with no_deadlines():
            return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = True
        try:
            self._call(self._open)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _open(self) -> None:
        for session in self._sessions.values():
            await self._stack.enter_async_context(session)
        for name, session in self._sessions.items():
            # Listen first: the digest configuration is part of the intent.
            if self._ranks:
                self._start(self._follow(name, session))
            self.submit(SwitchChanged(name, "writing"))
        self.submit(events.Started())
        for spec, built in self._jobs:
            document = spec.model_dump(mode="json", exclude_unset=True)
            self.submit(
                RegisterJob(
                    next(self._numbers),
                    document,
                    spec,
                    replace=False,
                    built=built,
                )
            )
        while self.failure is None and (self.machine.searching or not self.machine.settled):
            # No switch reports anything yet, so that time passes by alarms alone.
            if self._alarms and self.machine.in_force is None:
                self._now_s = max(self._now_s, self._alarms[0][0])
                self._ring()
            await asyncio.sleep(0)
        self._raise()

    async def _close(self) -> None:
        # Sessions first: as long as one is open, digests may still arrive that have to be taken.
        try:
            await self._hang_up()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._end_tasks()
            await self._loop.shutdown_asyncgens()

    def _hang_up(self) -> asyncio.Task[None]:
        """Close all sessions, once."""
        if self._hung_up is None:
            self._hung_up = self._loop.create_task(self._stack.aclose())
        return self._hung_up

    async def _end_tasks(self) -> None:
        # gRPC has tasks of its own, which end when the status of a cancelled call arrives after its
        # channel was closed.
        remaining = asyncio.all_tasks() - {asyncio.current_task()}
        if remaining:
            _, unfinished = await asyncio.wait(remaining, timeout=_LAST_STATUS_S)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def stop(self) -> None:
        """Close all sessions. Idempotent."""
        if not self._running:
            return
        self._running = False
        try:
            self._call(self._close)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def failed(self) -> bool:
        """Return whether anything keeps the controller from going on, other than `stop`."""
        return self._running and self.failure is not None

    def raise_failure(self) -> None:
        """Raise what keeps the controller from going on, if anything does."""
        if self.failed:
            self._raise()

    def _raise(self) -> None:
        if self.failure is not None:
            raise self.failure

    @property
    def entries(self) -> Mapping[str, int]:
        """Return how many table entries each switch holds, by what was written last."""
        return {name: session.entries for name, session in self._sessions.items()}

    @property
    def trees(self) -> Mapping[str, tuple[JobTree, ...]]:
        """Return the trees of each job that has any, in that plan."""
        assert self.machine.in_force is not None
        return self.machine.in_force.planned.trees

    @property
    def at_hosts(self) -> Mapping[str, tuple[HostRule, ...]]:
        """Return how the senders of each job rank in that plan, where switches do not."""
        assert self.machine.in_force is not None
        return self.machine.in_force.planned.at_hosts

    @property
    def plan(self) -> Plan:
        """Return the plan that is written to the switches."""
        assert self.machine.in_force is not None
        return self.machine.in_force.planned.plan

    @property
    def plans(self) -> Sequence[ChosenPlan]:
        """Return what the policy has chosen for jobs that share links."""
        searches = self.machine.searches
        plans = []
        for group, label in searches.plans.items():
            chosen = searches.chosen.get(group)
            choice = None
            if chosen:
                choice = chosen.choice
            plans.append(ChosenPlan.from_choice(group, label, choice))
        return plans

    # -- events ------------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return Instant(self._now_s, self._now_s)

    def _ring(self) -> None:
        """Give back the alarms whose time has come."""
        while self._alarms and self._alarms[0][0] <= self._now_s:
            self.submit(heapq.heappop(self._alarms)[2])

    async def _follow(self, name: str, session: IntentSession) -> None:
        async for report in session.digests(DIGEST):
            newest_us = max((fields["time_us"] for fields in report.fields), default=0)
            self._now_s = max(self._now_s, newest_us / 1_000_000)
            self._ring()
            await self._report(name, report.fields)
            # Last: where the switch waits for this, virtual time does, too.
            if self._awaits_acknowledgement(name):
                await session.acknowledge(report)
            self._acknowledged(name)

    def _awaits_acknowledgement(self, switch: str) -> bool:
        in_force = self.machine.in_force
        if in_force is None:
            return False
        digests = in_force.planned.intents[switch].digests
        return any(setting.ack_timeout_ns for setting in digests)

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case effects.Save(request, changes):
                self._store.commit(changes)
                self.submit(events.Saved(request))
            case effects.BuildJob():
                self.submit(effect.run())
            case effects.SearchPlan(search=search):
                if isinstance(search, Reporting):
                    search.report = self._on_search
                self.submit(effect.run())
            case _ if isinstance(effect, effects.PlanningWork):
                self.submit(effect.run())
            case effects.Install():
                self._start(self._install(effect))
            case effects.ReadCounters():
                self._start(self._read_counters(effect))
            case effects.AcknowledgeDigests(number):
                self._end_report(number)
            case effects.SetAlarm(alarm, delay_s):
                heapq.heappush(self._alarms, (self._now_s + delay_s, next(self._numbers), alarm))
            case facts.DigestsReceived(switch, count):
                self.digests[switch] += count
            case facts.PlanRefused(_, problem) | facts.DecisionRefused(problem):
                self._fail(PlanError(problem))
            case facts.PlanAdopted(problems=problems) if problems:
                self._fail(PlanError(next(iter(problems.values()))))
            case effects.Refuse(_, error):
                self._fail(PlanError(str(error)))
            case _:
                pass

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self._hang_up()

    async def _install(self, effect: effects.Install) -> None:
        async def update(name: str, session: IntentSession) -> None:
            async with self._turns[name]:
                applied = await session.update(effect.intents[name])
            applied.require()
            self.submit(Acknowledged(name, effect.version, applied.encoding_s, applied.rpc_s))

        await asyncio.gather(*(update(name, session) for name, session in self._sessions.items()))

    async def _read_counters(self, effect: effects.ReadCounters) -> None:
        async with self._turns[effect.switch]:
            bytes_seen = await self._sessions[effect.switch].bytes_seen(effect.entries)
        self.submit(events.CountersRead(effect.reading, effect.switch, bytes_seen))
