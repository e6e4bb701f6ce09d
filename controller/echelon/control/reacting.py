"""The state of a reactive policy: which flows are active, how many bytes of each have passed, and when it decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.control.scheduler import CentralScheduler
from echelon.jobs.graph import FlowKey
from echelon.lowering.intent import Intent, TableEntry
from echelon.telemetry.events import FlowEvent


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """The arguments of `CentralScheduler.decide`."""

    now_s: Fraction
    """The time of the newest event, by the clock of the switch that reported it."""
    bytes_passed: Mapping[FlowKey, int]


class Reacting:
    """The events and byte counts of a central scheduler. It outlives plans, and changes its scheduler with them."""

    def __init__(self, scheduler: CentralScheduler) -> None:
        self.scheduler = scheduler
        self._now_s = Fraction(0)
        self._counted: dict[FlowKey, int] = {}
        """Each flow's counter at its last switch, as it was read last."""
        self._at_start: dict[FlowKey, int] = {}
        """Each flow's counter where its present iteration began: counters run on from iteration to iteration."""
        self._starting: set[FlowKey] = set()
        """Flows whose next count is the one where their iteration begins."""

    def replace(self, scheduler: CentralScheduler) -> None:
        """Follow a new plan. Flows that are in both go on."""
        scheduler.take_over(self.scheduler)
        self.scheduler = scheduler
        paths = scheduler.paths
        self._counted = {key: count for key, count in self._counted.items() if key in paths}
        self._at_start = {key: count for key, count in self._at_start.items() if key in paths}
        self._starting = {key for key in self._starting if key in paths}

    def observe(self, events: Sequence[FlowEvent]) -> bool:
        """Note what a switch reported. Return whether it calls for a decision."""
        changed = False
        for event in events:
            key = (event.job, event.flow)
            path = self.scheduler.paths.get(key)
            if path is None:
                continue
            if event.started and path[1] == event.switch:
                restarted = key in self.scheduler.active
                if self.scheduler.start(key, event.epoch, event.time_s):
                    # After a finish, the count is known already, and bytes of this iteration may be ahead of this news.
                    if restarted or key not in self._at_start:
                        self._starting.add(key)
                    changed = True
            if event.finished and path[-2] == event.switch and self.scheduler.finish(key, event.epoch):
                self._starting.add(key)
                changed = True
        if changed:
            self._now_s = events[-1].time_s
        return changed

    def counters(self, intents: Mapping[str, Intent]) -> dict[str, dict[TableEntry, FlowKey]]:
        """Return the counters to read before the decision, by switch."""
        out: dict[str, dict[TableEntry, FlowKey]] = {}
        for key in (*self.scheduler.active, *sorted(self._starting - self.scheduler.active.keys())):
            switch = self.scheduler.paths[key][-2]
            out.setdefault(switch, {})[intents[switch].flow_entries[key]] = key
        return out

    def count(self, counts: Mapping[FlowKey, int]) -> None:
        """Note counters that were read. A flow whose counter cannot be read keeps its last count."""
        self._counted |= {key: count for key, count in counts.items() if key in self.scheduler.paths}

    def due(self) -> DecisionDue:
        """Return what to decide on, once all counters that could be read have been."""
        for key in self._starting:
            self._at_start[key] = self._counted.get(key, 0)
        self._starting.clear()
        passed = {}
        for key in self.scheduler.active:
            count = self._counted.get(key, 0)
            # A restarted switch counts from 0; without a count at its start, nothing of a flow is known to have passed.
            passed[key] = max(0, count - self._at_start.setdefault(key, count))
        return DecisionDue(self._now_s, passed)
