"""Decisions of a reactive policy, from a switch's report to the acknowledgement that the switch awaits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from echelon.control import effects, events, facts
from echelon.control.effects import Effect
from echelon.control.planning import Planned, Planner
from echelon.control.reacting import Reacting
from echelon.control.scheduler import CentralScheduler
from echelon.fabric.model import Fabric
from echelon.jobs.graph import FlowKey
from echelon.lowering.intent import Intent, TableEntry
from echelon.telemetry.events import FlowEvent

HOLD_S = 5.0
"""Longest wait for switches to acknowledge a decision before the next one begins."""

_Stage = Literal["idle", "reading", "due", "deciding", "holding"]
"""reading: counters of switches are being read. due: the decision waits for the planner. deciding: it is being made, or
its numbers saved. holding: switches are being brought to it."""


class Reactions:
    """One decision at a time, because each rests on what the one before has written.

    Reports that come meanwhile wait, and are decided on together.
    """

    def __init__(self) -> None:
        self.holding: int | None = None
        """The version of the decision that switches are being brought to."""
        self._stage: _Stage = "idle"
        self._reacting: Reacting | None = None
        """None: the policy in force is not reactive."""
        self._anew = False
        """Flows are under way of which the plan in force knows nothing."""
        self._waiting: list[tuple[int, Sequence[FlowEvent]]] = []
        """Reports that came while a decision was under way."""
        self._taken: list[int] = []
        """Reports that the decision under way is about."""
        self._reading = 0
        """The number of the last reading."""
        self._awaited: dict[str, dict[TableEntry, FlowKey]] = {}
        """Counters that are being read, by switch."""
        self._unread: set[str] = set()
        """Switches whose counters could not be read."""

    @property
    def is_due(self) -> bool:
        """Whether a decision waits for the planner."""
        return self._stage == "due"

    @property
    def scheduler(self) -> CentralScheduler | None:
        """The central scheduler of the plan in force; None: its policy is not reactive."""
        return None if self._reacting is None else self._reacting.scheduler

    def planned(self, planned: Planned) -> list[Effect]:
        """Follow a new plan, which knows nothing of the flows that are under way."""
        if not planned.plan.reactive:
            self._reacting, self._anew = None, False
            waiting, self._waiting = self._waiting, []
            return [*self.finish(), *(effects.AcknowledgeDigests(report) for report, _ in waiting)]
        scheduler = CentralScheduler(planned.policy, planned.jobs, planned.plan)
        if self._reacting is None:
            self._reacting = Reacting(scheduler)
        else:
            self._reacting.replace(scheduler)
            self._anew = bool(scheduler.active)
        return []

    def report(self, report: int, events: Sequence[FlowEvent]) -> list[Effect]:
        """Take a switch's report, which is acknowledged once it is dealt with."""
        if self._reacting is None:
            return [effects.AcknowledgeDigests(report)]
        self._waiting.append((report, events))
        return []

    def advance(self, intents: Mapping[str, Intent]) -> list[Effect]:
        """Begin with the reports that wait, if no decision is under way. `intents`: those in force."""
        if self._stage != "idle" or self._reacting is None or not (self._waiting or self._anew):
            return []
        waiting, self._waiting = self._waiting, []
        changed = [self._reacting.observe(events) for _, events in waiting]
        self._taken = [report for report, _ in waiting]
        if not (any(changed) or self._anew):
            return self.finish()
        self._awaited = self._reacting.counters(intents)
        self._reading += 1
        self._stage = "reading" if self._awaited else "due"
        return [
            effects.ReadCounters(self._reading, switch, tuple(entries)) for switch, entries in self._awaited.items()
        ]

    def counted(
        self, reading: int, switch: str, bytes_seen: Mapping[TableEntry, int] | None, problem: str = ""
    ) -> list[Effect]:
        """Take a switch's counters; None: they cannot be read, and the last ones count.

        One switch that is away must not hold up the flows of all others.
        """
        if reading != self._reading or switch not in self._awaited:
            return []
        entries = self._awaited.pop(switch)
        out: list[Effect] = []
        if bytes_seen is None:
            if switch not in self._unread:
                out.append(facts.CountersUnread(switch, problem))
            self._unread.add(switch)
        elif self._reacting is not None:
            self._unread.discard(switch)
            self._reacting.count({entries[entry]: count for entry, count in bytes_seen.items()})
        if not self._awaited and self._stage == "reading":
            self._stage = "due"
        return out

    def decide(self, planner: Planner, last: Planned, fabric: Fabric) -> effects.Decide:
        """Return the work of the decision that is due."""
        assert self._reacting is not None
        self._stage, self._anew = "deciding", False
        return effects.Decide(planner, self._reacting.scheduler, self._reacting.due(), last, fabric)

    def decided(self, version: int) -> list[Effect]:
        """Wait for switches to acknowledge a decision, which is being installed."""
        self._stage, self.holding = "holding", version
        return [effects.SetAlarm(events.Alarm("hold", version), HOLD_S)]

    def finish(self) -> list[Effect]:
        """End the decision under way, and acknowledge its reports."""
        taken, self._taken = self._taken, []
        self._stage, self.holding, self._awaited = "idle", None, {}
        return [effects.AcknowledgeDigests(report) for report in taken]
