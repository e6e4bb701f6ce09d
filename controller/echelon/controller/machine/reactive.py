"""Decisions of a reactive policy, from a switch's report to its acknowledgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Literal

from echelon.controller.machine import effects, events, facts
from echelon.controller.machine.decisions import DecisionDue
from echelon.controller.machine.effects import Effects
from echelon.controller.machine.planning import Intents, Planned, Planner
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import FlowKey, Job
from echelon.planning.allocation import ActiveFlow
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan
from echelon.switches.lowering.intent import TableEntry
from echelon.switches.telemetry.events import FlowEvent

HOLD_S = 5.0
"""Longest wait for switches to acknowledge a decision before the next one begins."""

Counters = dict[str, dict[TableEntry, FlowKey]]
"""The counters that are read of each switch, and the flows that they count."""

_Stage = Literal["idle", "reading", "due", "deciding", "holding"]
"""reading: counters of switches are being read. due: the decision waits for the planner. deciding:
it is being made, or its numbers saved. holding: switches are being brought to it."""


class ActiveFlows:
    """The flows of a plan that are active, and how many bytes of each have passed.

    They outlive their plan.
    """

    def __init__(self, jobs: Iterable[Job], plan: Plan) -> None:
        self.active: dict[FlowKey, ActiveFlow] = {}
        """The active flows, those whose start is newest last."""
        self._now_s = Fraction(0)
        self._starts = 0
        self._counted: dict[FlowKey, int] = {}
        """Each flow's counter at its last switch, as it was read last."""
        self._at_start: dict[FlowKey, int] = {}
        """Each flow's counter at the start of its iteration: counters are never reset."""
        self._starting: set[FlowKey] = set()
        """Flows whose next count is the one where their iteration begins."""
        self.follow(jobs, plan)

    def follow(self, jobs: Iterable[Job], plan: Plan) -> None:
        """Follow a new plan.

        Active flows that it has too stay active, in their order, on new paths.
        """
        self._sizes: dict[FlowKey, int] = {}
        self._echelonflows: dict[FlowKey, str] = {}
        for job in jobs:
            for flow in job.flows:
                self._sizes[job.name, flow.name] = flow.size_bytes
            for echelonflow in job.echelonflows:
                for name in echelonflow.flows:
                    self._echelonflows[job.name, name] = echelonflow.name
        self._paths = {(flow.job, flow.flow): flow.path for flow in plan.flows}
        self._finished: dict[FlowKey, int] = {}

        before = self.active
        self.active = {}
        for key, active in before.items():
            path = self._paths.get(key)
            if path is not None and self._is_as_before(key, active):
                self.active[key] = replace(active, links=links_of(path))
        self._counted = self._planned_only(self._counted)
        self._at_start = self._planned_only(self._at_start)
        self._starting &= self._paths.keys()

    def _is_as_before(self, key: FlowKey, active: ActiveFlow) -> bool:
        """Return whether a flow has the size and EchelonFlow that it had under the last plan."""
        if self._sizes.get(key) != active.size_bytes:
            return False
        return self._echelonflows.get(key) == active.echelonflow

    def _planned_only(self, counts: Mapping[FlowKey, int]) -> dict[FlowKey, int]:
        return {key: count for key, count in counts.items() if key in self._paths}

    def note_events(self, events: Sequence[FlowEvent]) -> bool:
        """Note what a switch reported. Return whether it calls for a decision."""
        changed = False
        for event in events:
            key = (event.job, event.flow)
            path = self._paths.get(key)
            if path is None:
                continue
            if event.started and path[1] == event.switch:
                changed |= self._note_start(key, event)
            if event.finished and path[-2] == event.switch:
                changed |= self._note_finish(key, event)
        if changed:
            self._now_s = events[-1].time_s
        return changed

    def _note_start(self, key: FlowKey, event: FlowEvent) -> bool:
        restarted = key in self.active
        if not self.start(key, event.epoch, event.time_s):
            return False
        # After a finish, the count is known already, and bytes of this iteration may be ahead of
        # this news.
        if restarted or key not in self._at_start:
            self._starting.add(key)
        return True

    def _note_finish(self, key: FlowKey, event: FlowEvent) -> bool:
        if not self.finish(key, event.epoch):
            return False
        self._starting.add(key)
        return True

    def start(
        self,
        key: FlowKey,
        iteration: int,
        now_s: Fraction,
    ) -> bool:
        """Note that the first packet of a flow was seen. Return whether that is news.

        It is no news of a flow without a plan, of one that is active in this iteration, or of one
        whose finish in this iteration was reported first, which happens where two switches report.
        In another iteration it is news: the report of the last finish was lost.
        """
        if key not in self._paths or self._finished.get(key) == iteration:
            return False
        active = self.active.get(key)
        if active is not None and active.iteration == iteration:
            return False
        size = self._sizes[key]
        self._starts += 1
        job, flow = key
        # The newest start is the last in line.
        self.active.pop(key, None)
        self.active[key] = ActiveFlow(
            job=job,
            flow=flow,
            iteration=iteration,
            echelonflow=self._echelonflows.get(key),
            links=links_of(self._paths[key]),
            size_bytes=size,
            remaining_bytes=Fraction(size),
            start_s=now_s,
            deadline_s=now_s,
            sequence=self._starts,
        )
        return True

    def finish(self, key: FlowKey, iteration: int) -> bool:
        """Note that the last packet of a flow was seen.

        Return whether an active flow ends: digests may come twice.
        """
        if key not in self._paths:
            return False
        active = self.active.get(key)
        if active is not None and active.iteration != iteration:
            return False
        self._finished[key] = iteration
        return self.active.pop(key, None) is not None

    def counters(self, intents: Intents) -> Counters:
        """Return the counters to read before the decision, by switch."""
        starting = sorted(self._starting - self.active.keys())
        by_switch: Counters = {}
        for key in (*self.active, *starting):
            # The last switch of its path counts what has arrived.
            switch = self._paths[key][-2]
            entry = intents[switch].flow_entry(*key)
            by_switch.setdefault(switch, {})[entry] = key
        return by_switch

    def note_counters(self, counts: Mapping[FlowKey, int]) -> None:
        """Note counters that were read.

        A flow whose counter cannot be read keeps its last count.
        """
        self._counted |= self._planned_only(counts)

    def due(self) -> DecisionDue:
        """Return what to decide on, once all counters that could be read have been."""
        for key in self._starting:
            self._at_start[key] = self._counted.get(key, 0)
        self._starting.clear()
        passed = {}
        for key in self.active:
            count = self._counted.get(key, 0)
            # Without a count at its start, nothing of a flow is known to have passed.
            count_at_start = self._at_start.setdefault(key, count)
            # A restarted switch counts from 0.
            passed[key] = max(0, count - count_at_start)
        return DecisionDue(self._now_s, tuple(self.active.values()), passed)


class Reactions:
    """One decision at a time, because each rests on what the one before has written.

    Reports that come meanwhile wait, and are decided on together.
    """

    def __init__(self) -> None:
        self.holding: int | None = None
        """The version of the decision that switches are being brought to."""
        self._stage: _Stage = "idle"
        self._flows: ActiveFlows | None = None
        """None: the policy in force is not reactive."""
        self._is_blind = False
        """Whether flows are under way of which the plan in force knows nothing."""
        self._waiting: list[tuple[int, Sequence[FlowEvent]]] = []
        """Reports that came while a decision was under way."""
        self._taken: list[int] = []
        """Reports that the decision under way is about."""
        self._reading = 0
        """The number of the last reading."""
        self._awaited: Counters = {}
        """Counters that are being read, by switch."""
        self._unread: set[str] = set()
        """Switches whose counters could not be read."""

    @property
    def is_due(self) -> bool:
        """Whether a decision waits for the planner."""
        return self._stage == "due"

    def follow_plan(self, planned: Planned) -> Effects:
        """Follow a new plan, which knows nothing of the flows that are under way."""
        if not planned.plan.reactive:
            self._flows = None
            self._is_blind = False
            acknowledged = [effects.AcknowledgeDigests(report) for report, _ in self._waiting]
            self._waiting = []
            return [*self.finish(), *acknowledged]
        if self._flows is None:
            self._flows = ActiveFlows(planned.jobs, planned.plan)
        else:
            self._flows.follow(planned.jobs, planned.plan)
            self._is_blind = bool(self._flows.active)
        return []

    def queue_report(self, report: int, events: Sequence[FlowEvent]) -> Effects:
        """Take a switch's report, which is acknowledged once it is dealt with."""
        if self._flows is None:
            return [effects.AcknowledgeDigests(report)]
        self._waiting.append((report, events))
        return []

    def advance(self, intents: Intents) -> Effects:
        """Begin with the reports that wait, if no decision is under way.

        `intents`: those in force.
        """
        if self._stage != "idle" or self._flows is None:
            return []
        if not self._waiting and not self._is_blind:
            return []
        is_due = self._is_blind
        for _, flow_events in self._waiting:
            is_due |= self._flows.note_events(flow_events)
        self._taken = [report for report, _ in self._waiting]
        self._waiting = []
        if not is_due:
            return self.finish()
        self._awaited = self._flows.counters(intents)
        self._reading += 1
        self._stage = "reading" if self._awaited else "due"
        return [
            effects.ReadCounters(self._reading, switch, tuple(entries))
            for switch, entries in self._awaited.items()
        ]

    def note_counters(
        self,
        reading: int,
        switch: str,
        bytes_seen: Mapping[TableEntry, int] | None,
        problem: str = "",
    ) -> Effects:
        """Take a switch's counters; None: they cannot be read, and the last ones count.

        One switch that is away must not hold up the flows of all others.
        """
        if reading != self._reading or switch not in self._awaited:
            return []
        entries = self._awaited.pop(switch)
        out: Effects = []
        if bytes_seen is None:
            if switch not in self._unread:
                out.append(facts.CountersUnread(switch, problem))
            self._unread.add(switch)
        elif self._flows is not None:
            self._unread.discard(switch)
            counts = {entries[entry]: count for entry, count in bytes_seen.items()}
            self._flows.note_counters(counts)
        if not self._awaited and self._stage == "reading":
            self._stage = "due"
        return out

    def decide(
        self,
        planner: Planner,
        last: Planned,
        fabric: Fabric,
    ) -> effects.Decide:
        """Return the work of the decision that is due."""
        assert self._flows is not None
        self._stage = "deciding"
        self._is_blind = False
        return effects.Decide(planner, self._flows.due(), last, fabric)

    def decided(self, version: int) -> Effects:
        """Wait for switches to acknowledge a decision, which is being installed."""
        self._stage = "holding"
        self.holding = version
        return [effects.SetAlarm(events.Alarm("hold", version), HOLD_S)]

    def finish(self) -> Effects:
        """End the decision under way, and acknowledge its reports."""
        taken = self._taken
        self._taken = []
        self._stage = "idle"
        self.holding = None
        self._awaited = {}
        return [effects.AcknowledgeDigests(report) for report in taken]
