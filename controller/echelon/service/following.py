"""What switches report of flows, and what a reactive policy does about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from echelon.lowering.intent import Intent, TableEntry
from echelon.plan import FlowPlan
from echelon.policies.base import Policy
from echelon.reaction import DecisionDue, Reaction
from echelon.scheduler import CentralScheduler, FlowKey
from echelon.service import logs
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
        self._flows: dict[str, tuple[FlowPlan, ...]] = {}
        self._classifiers: dict[str, tuple[Intent, dict[FlowKey, TableEntry]]] = {}
        self._reaction: Reaction | None = None
        self._deciding = asyncio.Lock()

    def planned(self, planned: Planned, policy: Policy | None) -> None:
        """A plan is in force: follow its jobs, and no others."""
        self.installing(planned)
        by_job = planned.plan.by_job
        for name in [name for name in self.tracker.jobs if name not in by_job]:
            self.tracker.remove(name)
            self._flows.pop(name, None)
            self._metrics.job_removed(name)
        for registered in planned.registered:
            name = registered.name
            if self._flows.get(name) is not by_job.get(name):
                self._flows[name] = by_job[name]
                paths = paths_of(by_job[name])[name]
                self.tracker.add(registered.reported, paths, numbered_by_sender=registered.is_numbered_by_sender)
        self._react(planned, policy)

    def installing(self, planned: Planned) -> None:
        """These intents are about to be written."""
        self._intents = planned.intents
        for intent in planned.intents.values():
            self._decoder.hold(intent)

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
            reaction = self._reaction
            try:
                due = await reaction.observe(events)
                if due is not None and reaction is self._reaction:
                    await self._decide(reaction.scheduler, due)
            except SouthboundError as error:
                # The next event decides anew; until then the queues stay as they are.
                log.warning("flow events without consequence", switch=switch, problem=str(error))

    def _react(self, planned: Planned, policy: Policy | None) -> None:
        if not planned.plan.reactive or policy is None:
            self._reaction = None
            return
        before = self._reaction
        scheduler = CentralScheduler(policy, planned.jobs, planned.plan)
        self._reaction = Reaction(scheduler, self._bytes_passed)
        if before is None:
            return
        # Flows that are under way stay so, on their new paths.
        for key, flow in before.scheduler.active.items():
            if key in scheduler.paths:
                path = scheduler.paths[key]
                links = tuple(pairwise(path))
                scheduler.active[key] = replace(flow, links=links, sequence=len(scheduler.active))
        self._reaction.bytes_at_start |= {
            key: count for key, count in before.bytes_at_start.items() if key in scheduler.paths
        }

    async def _bytes_passed(self, keys: Sequence[FlowKey]) -> Mapping[FlowKey, int]:
        assert self._reaction is not None
        by_switch: dict[str, dict[TableEntry, FlowKey]] = {}
        for key in keys:
            switch = self._reaction.scheduler.paths[key][-2]
            by_switch.setdefault(switch, {})[self._classifiers_of(switch)[key]] = key
        read = await asyncio.gather(*(self._read_counters(switch, list(of)) for switch, of in by_switch.items()))
        return {
            by_switch[switch][entry]: count
            for switch, counts in zip(by_switch, read, strict=True)
            for entry, count in counts.items()
        }

    def _classifiers_of(self, switch: str) -> Mapping[FlowKey, TableEntry]:
        intent = self._intents[switch]
        kept = self._classifiers.get(switch)
        if kept is None or kept[0] is not intent:
            found = {(flow.job, flow.flow): flow.classifier for part in intent.parts for flow in part.known}
            kept = self._classifiers[switch] = (intent, found)
        return kept[1]
