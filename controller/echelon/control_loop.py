"""From jobs to switches and back: plan, lower, reconcile, and for a reactive policy again at every flow event."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from echelon.fabric.model import Fabric
from echelon.jobs.graph import Job
from echelon.lowering.capabilities import Capabilities
from echelon.lowering.identity import FlowKey, Identity
from echelon.lowering.intent import Intent, TableEntry
from echelon.lowering.lower import DIGEST, lower
from echelon.plan import Plan
from echelon.policies.base import Policy
from echelon.reaction import Reaction
from echelon.scheduler import CentralScheduler
from echelon.southbound.session import DigestReport, SwitchSession
from echelon.telemetry.events import FlowEvent, decode_event
from echelon.telemetry.tracker import Tracker, paths_of


@dataclass
class _Installed:
    """What the switches hold now."""

    plan: Plan
    intents: Mapping[str, Intent]


class ControlLoop:
    """Keeps connected switches at what one policy wants for a set of jobs. Runs on the event loop that calls `start`.

    `digests` counts, per switch, the flow events that were received.
    """

    def __init__(
        self,
        fabric: Fabric,
        jobs: Sequence[Job],
        policy: Policy,
        identities: Mapping[FlowKey, Identity],
        sessions: Mapping[str, SwitchSession],
        capabilities: Capabilities,
    ) -> None:
        self._fabric = fabric
        self._jobs = jobs
        self._policy = policy
        self._identities = identities
        self._sessions = sessions
        self._capabilities = capabilities
        self._tasks: list[asyncio.Task[None]] = []
        self._installed: _Installed | None = None
        self._reaction: Reaction | None = None
        self._deciding = asyncio.Lock()
        self.tracker: Tracker | None = None
        self.digests: dict[str, int] = dict.fromkeys(sessions, 0)

    async def start(self) -> Plan:
        """Plan and write to every switch; then follow their digests until `stop`.

        Raises what policies, lowering and southbound raise: nothing was acknowledged then.
        """
        plan = self._policy.plan(self._jobs, self._fabric)
        intents = lower(plan, self._fabric, self._identities, self._capabilities)
        paths = paths_of(plan.flows)
        self.tracker = Tracker()
        for job in self._jobs:
            self.tracker.add(job, paths.get(job.name, {}))
        if plan.reactive:
            self._reaction = Reaction(CentralScheduler(self._policy, self._jobs, plan), self._bytes_passed)
        # Listen first: the digest configuration is part of the intent.
        self._tasks = [
            asyncio.create_task(self._follow(name, session), name=f"digests of {name}")
            for name, session in self._sessions.items()
        ]
        applied = await asyncio.gather(*(session.reconcile(intents[name]) for name, session in self._sessions.items()))
        for one in applied:
            one.require()
        self._installed = _Installed(plan, intents)
        return plan

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def failure(self) -> BaseException | None:
        """What ended the following of a switch's digests, if anything did."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                return error
        return None

    async def _follow(self, name: str, session: SwitchSession) -> None:
        async for report in session.digests(DIGEST):
            events = self._decode(name, report)
            self.digests[name] += len(events)
            if self._reaction is None:
                continue
            # One at a time, whichever switch reports: a decision rests on what the one before has written.
            async with self._deciding:
                due = await self._reaction.observe(events)
                if due is not None:
                    await self._install(self._reaction.scheduler.decide(due.now_s, due.bytes_passed))
            # Last: the switch, and virtual time with it, may wait for this.
            await session.acknowledge(report)

    def _decode(self, name: str, report: DigestReport) -> list[FlowEvent]:
        if self._installed is None:
            # Traffic that was there before: the switch may still report by the identifiers of another plan.
            return []
        assert self.tracker is not None
        flows = self._installed.intents[name].flows
        events = []
        for fields in report.fields:
            event = decode_event(name, flows, fields)
            self.tracker.observe(event)
            events.append(event)
        return events

    async def _bytes_passed(self, keys: Sequence[FlowKey]) -> Mapping[FlowKey, int]:
        assert self._installed is not None
        assert self._reaction is not None
        by_switch: dict[str, dict[TableEntry, FlowKey]] = defaultdict(dict)
        for key in keys:
            switch = self._reaction.scheduler.paths[key][-2]
            by_switch[switch][self._installed.intents[switch].classifiers[key]] = key
        out: dict[FlowKey, int] = {}
        for switch, entries in by_switch.items():
            for entry, count in (await self._sessions[switch].bytes_seen(entries)).items():
                out[entries[entry]] = count
        return out

    async def _install(self, plan: Plan) -> None:
        intents = lower(plan, self._fabric, self._identities, self._capabilities)
        applied = await asyncio.gather(*(session.update(intents[name]) for name, session in self._sessions.items()))
        for one in applied:
            one.require()
        self._installed = _Installed(plan, intents)
