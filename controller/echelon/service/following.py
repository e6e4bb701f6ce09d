"""What switches report of flows, and what a reactive policy does about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial

from echelon.lowering.intent import Intent, TableEntry
from echelon.plan import FlowPlan
from echelon.policies.base import Policy
from echelon.reaction import DecisionDue, Reaction
from echelon.scheduler import CentralScheduler, FlowKey
from echelon.service import logs
from echelon.service.jobs import RegisteredJob
from echelon.service.metrics import Metrics
from echelon.service.planning import Planned
from echelon.southbound.errors import SouthboundError
from echelon.southbound.session import DigestReport
from echelon.telemetry.decoding import Decoder
from echelon.telemetry.tracker import JobView, Tracker, paths_of

log = logs.get(__name__)

ReadCounters = Callable[[str, Iterable[TableEntry]], Awaitable[Mapping[TableEntry, int]]]
"""(switch, entries) -> bytes that matched each. Raises `SouthboundError`."""

Decide = Callable[[CentralScheduler, DecisionDue], Awaitable[None]]
"""Makes the new plan, and returns when every switch that is up has acknowledged it."""


class Following:
    """Telemetry of all jobs in the plan, and the central scheduler where the policy is reactive."""

    def __init__(
        self, metrics: Metrics, read_counters: ReadCounters, decide: Decide, corrected: Callable[[str], None]
    ) -> None:
        """`corrected` is told when `tracker.corrections` of a job are others than before."""
        self.tracker = Tracker()
        self._metrics = metrics
        self._read_counters = read_counters
        self._decide = decide
        self._corrected = corrected
        self._decoder = Decoder()
        self._intents: Mapping[str, Intent] = {}
        self._jobs: dict[str, tuple[RegisteredJob, tuple[FlowPlan, ...]]] = {}
        """As the tracker knows them, and the flows of their plan."""
        self._reaction: Reaction | None = None
        self._counted: dict[FlowKey, int] = {}
        """Bytes of each flow that were read last."""
        self._uncounted: set[str] = set()
        """Switches whose counters could not be read."""
        self._deciding = asyncio.Lock()

    def planned(self, planned: Planned, policy: Policy | None) -> None:
        """A plan is in force: follow its jobs, and no others."""
        self.installing(planned)
        by_job = planned.plan.by_job
        for name in [name for name in self.tracker.jobs if name not in by_job]:
            self.tracker.remove(name)
            self._jobs.pop(name, None)
            self._metrics.job_removed(name)
        for registered in planned.registered:
            name = registered.name
            known, flows = self._jobs.get(name, (None, None))
            if known is not registered or flows is not by_job[name]:
                self._jobs[name] = registered, by_job[name]
                paths = paths_of(by_job[name])[name]
                self.tracker.add(registered.reported, paths, numbered_by_sender=registered.is_numbered_by_sender)
                if self.tracker.corrections(name) != registered.observed_s:
                    self._corrected(name)
        self._react(planned, policy)

    def installing(self, planned: Planned) -> None:
        """These intents are about to be written."""
        self._intents = planned.intents
        for intent in planned.intents.values():
            self._decoder.hold(intent)

    def corrections(self, job: RegisteredJob) -> Mapping[str, tuple[Fraction, ...]] | None:
        """Offsets (seconds) by EchelonFlow that should replace those of the job; None: what switches saw is not of this
        job, but of a former one of its name."""
        known, _ = self._jobs.get(job.name, (None, None))
        return self.tracker.corrections(job.name) if known is not None and known.is_expected_as(job) else None

    def is_reacting(self, scheduler: CentralScheduler) -> bool:
        """Whether decisions of that scheduler are about the plan in force."""
        return self._reaction is not None and self._reaction.scheduler is scheduler

    def view(self, job: str) -> JobView | None:
        """None: the job is in no plan."""
        return self.tracker.view(job) if job in self.tracker else None

    async def digests(self, switch: str, report: DigestReport) -> None:
        """Returns when what the report calls for has been done: then the switch may be told so."""
        decoded = self._decoder.decode(switch, report.fields)
        events = decoded.events
        self._metrics.digests(switch, len(events), decoded.unknown)
        now = time.time()
        for event in events:
            if event.job not in self.tracker:
                # The last packets of a job are reported after it has left.
                continue
            self._metrics.job_seen(event.job, now)
            seen = self.tracker.observe(event)
            if seen.iteration_s is not None:
                self._metrics.job_iteration(event.job, float(seen.iteration_s))
            if seen.tardiness_s is not None:
                self._metrics.job_tardiness(event.job, float(seen.tardiness_s))
            if seen.corrected:
                self._corrected(event.job)
        if self._reaction is None:
            return
        # One at a time, whichever switch reports: a decision rests on what the one before has written.
        async with self._deciding:
            due, reaction = None, None
            while self._reaction is not None and reaction is not self._reaction:
                # Again for a plan that has come meanwhile: it has not heard of them.
                reaction = self._reaction
                due = await reaction.observe(events)
            if due is not None and reaction is not None and reaction is self._reaction:
                await self._decide(reaction.scheduler, due)

    async def decide_anew(self) -> None:
        """After a plan, which knows nothing of the flows that are under way: until they are heard of again their queues
        would be those of flows that rest."""
        async with self._deciding:
            reaction = self._reaction
            if reaction is None or not reaction.scheduler.active:
                return
            due = await reaction.due()
            if reaction is self._reaction:
                await self._decide(reaction.scheduler, due)

    def _react(self, planned: Planned, policy: Policy | None) -> None:
        if not planned.plan.reactive or policy is None:
            self._reaction = None
            self._counted.clear()
            return
        before = self._reaction
        scheduler = CentralScheduler(policy, planned.jobs, planned.plan)
        self._reaction = Reaction(scheduler, partial(self._bytes_passed, scheduler))
        self._counted = {key: count for key, count in self._counted.items() if key in scheduler.paths}
        if before is None:
            return
        scheduler.take_over(before.scheduler)
        self._reaction.now_s = before.now_s
        self._reaction.bytes_at_start |= {
            key: count for key, count in before.bytes_at_start.items() if key in scheduler.paths
        }

    async def _bytes_passed(self, scheduler: CentralScheduler, keys: Sequence[FlowKey]) -> Mapping[FlowKey, int]:
        """As they were read last where they cannot be read: one switch that is away must not hold up all flows."""
        by_switch: dict[str, dict[TableEntry, FlowKey]] = {}
        for key in keys:
            switch = scheduler.paths[key][-2]
            classifier = self._intents[switch].classifiers.get(key)
            # None: there is a plan without it meanwhile.
            if classifier is not None:
                by_switch.setdefault(switch, {})[classifier] = key
        await asyncio.gather(*(self._count(switch, of) for switch, of in by_switch.items()))
        return {key: self._counted.get(key, 0) for key in keys}

    async def _count(self, switch: str, flows: Mapping[TableEntry, FlowKey]) -> None:
        try:
            read = await self._read_counters(switch, list(flows))
        except SouthboundError as error:
            if switch not in self._uncounted:
                self._uncounted.add(switch)
                log.warning("decisions go by the last count of bytes", switch=switch, problem=str(error))
        else:
            self._uncounted.discard(switch)
            self._counted |= {flows[entry]: count for entry, count in read.items()}
