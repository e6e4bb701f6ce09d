"""The truth about the iterations of flows, written where ports and hosts in C read it.

References and memories are those of `echelon.planning.rankings.deadline`: no switch has to find out
anything, and all of them know the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from bench.ladder.laboratory import shim
from bench.ladder.tofino import in_switches
from echelon.model.jobs.graph import FlowKey
from echelon.planning.plan import Plan
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline, Memory, Relative
from echelon.switches.lowering.identity import Identity, ShimIdentity

_NS_PER_S = 1_000_000_000
_EPOCHS = 256
_MOST_MEMORY = 0xFFFF


@dataclass(frozen=True, slots=True)
class ShimFlow:
    """A flow whose packets have the shim, with its ranking in the plan."""

    job: str
    identity: ShimIdentity
    ranking: Ranking

    @property
    def relative(self) -> tuple[Deadline, Relative] | None:
        """Return its ranking, if that is relative to other flows."""
        ranking = in_switches(self.ranking)
        if isinstance(ranking, Deadline) and ranking.relative is not None:
            return ranking, ranking.relative
        return None


def shim_flows(plan: Plan, identities: Mapping[FlowKey, Identity]) -> list[ShimFlow]:
    """Return the flows of a plan that have the shim."""
    flows = []
    for flow in plan.flows:
        identity = identities[flow.job, flow.flow]
        if isinstance(identity, ShimIdentity):
            flows.append(ShimFlow(flow.job, identity, flow.ranking))
    return flows


@dataclass(slots=True)
class _Job:
    """The newest iteration of a job."""

    epoch: int | None = None
    iteration: int = 0
    memory: Memory = field(default_factory=Memory)

    def enter(self, epoch: int) -> None:
        """Take note of a flow in an iteration, of which the shim tells the last eight bits."""
        if self.epoch is None:
            self.iteration = 1
        else:
            # A job begins each of its iterations, so that it never gets ahead by 256 of them.
            self.iteration += (epoch - self.epoch) % _EPOCHS
        self.epoch = epoch


@dataclass(slots=True)
class _Reference:
    """The reference of an EchelonFlow in an iteration: when its first flow started."""

    iteration: int
    start_s: float
    offset_s: float
    flows: list[int] = field(default_factory=list)
    """The flows that have started in that iteration, by their place."""

    @property
    def time_s(self) -> float:
        return self.start_s - self.offset_s

    def precedes(self, other: _Reference) -> bool:
        """Return whether this is the reference of the iteration that they share."""
        return (self.start_s, self.offset_s) < (other.start_s, other.offset_s)


class Truth:
    """The references and memories of all ranked flows of a run.

    `in_c` is the array of flows that C reads. `started` and `finished` are called with the place of
    a flow, whose epoch is in that array; `now_ns` tells the time.
    """

    def __init__(
        self,
        ffi: Any,
        flows: Sequence[ShimFlow],
        now_ns: Callable[[], int],
    ) -> None:
        self.in_c = ffi.new("ladder_flow[]", max(1, len(flows)))
        self._flows = flows
        self._now_ns = now_ns
        self._jobs = {flow.job: _Job() for flow in flows}
        self._references: dict[tuple[str, str], _Reference] = {}
        for place, flow in enumerate(flows):
            row = self.in_c[place]
            identity = flow.identity
            # As the four bytes of the shim that name a flow.
            row.key = identity.job << 16 | identity.flow
            if flow.relative is None:
                continue
            ranking, relative = flow.relative
            row.is_ranked = 1
            row.highest = ranking.highest
            row.lowest = max(ranking.highest - len(relative.steps), ranking.lowest)
            row.left_s = float(ranking.left_s)
            row.slope = float(1 / relative.unit_s)
            row.head_start = float(relative.head_start)

    @property
    def _now_s(self) -> float:
        return self._now_ns() / _NS_PER_S

    def started(self, place: int) -> None:
        """Take note that a flow has sent its first packet in an iteration."""
        flow = self._flows[place]
        if flow.relative is None:
            return
        ranking, relative = flow.relative
        job = self._jobs[flow.job]
        job.enter(self.in_c[place].epoch)
        # The first flow of an iteration ends the one before. Memory ignores the others.
        alone_tardiness_s = float(relative.alone_tardiness_s)
        job.memory.begin(job.iteration, alone_tardiness_s)

        key = flow.job, ranking.echelonflow
        reference = _Reference(job.iteration, self._now_s, float(ranking.offset_s))
        before = self._references.get(key)
        if before is None or before.iteration < reference.iteration:
            self._references[key] = reference
        elif reference.precedes(before):
            # Another flow started at the same time. Those that have started follow this one now.
            reference.flows = before.flows
            self._references[key] = reference
            for started in reference.flows:
                self._write(started, reference)
        reference = self._references[key]
        reference.flows.append(place)
        self._write(place, reference)

    def finished(self, place: int) -> None:
        """Take note that all of a flow has arrived."""
        flow = self._flows[place]
        if flow.relative is None:
            return
        ranking, _ = flow.relative
        reference = self._references[flow.job, ranking.echelonflow]
        deadline_s = reference.time_s + float(ranking.offset_s)
        self._jobs[flow.job].memory.finish(self._now_s - deadline_s)

    def _write(self, place: int, reference: _Reference) -> None:
        """Write what is true of a flow in the iteration that it has started."""
        flow = self._flows[place]
        assert flow.relative is not None
        ranking, relative = flow.relative
        memory_s = self._jobs[flow.job].memory.delay_s
        row = self.in_c[place]
        periods = Fraction(memory_s) / relative.unit_s
        row.reference_ns = round(reference.time_s * _NS_PER_S)
        row.due_s = reference.time_s + float(ranking.due_s)
        row.memory_s = float(memory_s)
        row.memory = _in_stamp(periods)


def _in_stamp(periods: Fraction) -> int:
    """Return a memory as packets tell it, which is none for a job that was early."""
    units = round(periods * shim.MEMORY_UNIT)
    if units < 0:
        return 0
    return min(units, _MOST_MEMORY)
