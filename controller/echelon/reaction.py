"""What a reactive policy makes of flow events: who is active now, how much of each has passed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon.scheduler import CentralScheduler, FlowKey
from echelon.telemetry.events import FlowEvent

BytesPassed = Callable[[Sequence[FlowKey]], Awaitable[Mapping[FlowKey, int]]]
"""Bytes of each flow that have reached the last switch of its path, since that switch was configured."""


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """The arguments of `CentralScheduler.decide`."""

    now_s: Fraction
    bytes_passed: Mapping[FlowKey, int]


@dataclass
class Reaction:
    """Feeds a central scheduler with the events of all switches.

    Calls must not overlap: each decision rests on what the one before has written.
    """

    scheduler: CentralScheduler
    bytes_passed: BytesPassed
    bytes_at_start: dict[FlowKey, int] = field(default_factory=dict)
    """Counters run on from iteration to iteration; this is where each flow's present iteration began."""
    now_s: Fraction = Fraction(0)
    """Of the newest event."""

    async def observe(self, events: Sequence[FlowEvent]) -> DecisionDue | None:
        """What to decide on, or None where the events change nothing. Raises what `bytes_passed` raises."""
        changed = False
        for event in events:
            key = (event.job, event.flow)
            if key not in self.scheduler.paths:
                continue
            path = self.scheduler.paths[key]
            if event.started and path[1] == event.switch:
                restarted = key in self.scheduler.active
                if self.scheduler.start(key, event.epoch, event.time_s):
                    # What had passed when the last iteration's flow ended: this one's bytes may be ahead of this news.
                    if restarted or key not in self.bytes_at_start:
                        self.bytes_at_start[key] = await self._count(key)
                    changed = True
            if event.finished and path[-2] == event.switch and self.scheduler.finish(key, event.epoch):
                self.bytes_at_start[key] = await self._count(key)
                changed = True
        if not changed:
            return None
        self.now_s = events[-1].time_s
        return await self.due()

    async def due(self) -> DecisionDue:
        """What to decide on as things are. Raises as `observe`."""
        total = await self.bytes_passed(list(self.scheduler.active))
        # A restarted switch counts from 0; of a flow whose start was not counted nothing is known to have passed.
        passed = {key: max(0, count - self.bytes_at_start.setdefault(key, count)) for key, count in total.items()}
        return DecisionDue(self.now_s, passed)

    async def _count(self, key: FlowKey) -> int:
        return (await self.bytes_passed([key]))[key]
