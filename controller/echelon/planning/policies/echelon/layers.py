"""Jobs with fewer layers, so that a simulation takes less work.

A mixture of experts sends from everyone to everyone in each layer, twice: 94 layers on 16 hosts are
45,000 flows. Layers that look the same and follow each other become one, which computes and sends
as much as all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from echelon.model.jobs.analysis import topological_order
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job

_MOST_LEVELS = 8
"""The most levels of a layer: attention, dispatch, experts and combination are four."""

_Step = ComputeUnit | Flow


@dataclass(frozen=True, slots=True)
class _Stack:
    """Layers that look the same, one after another."""

    start: int
    """The level of the first one: so many steps come before, one after another."""
    levels: int
    """The levels of each layer."""
    layers: int

    def merged_levels(self, merged: int) -> Iterator[range]:
        """Yield the levels that become one, if so many layers do."""
        length = self.levels * self.layers
        for begin in range(0, length, merged * self.levels):
            end = min(begin + merged * self.levels, length)
            # The first of these layers stands for all of them.
            for level in range(begin, begin + self.levels):
                yield range(self.start + level, self.start + end, self.levels)


def with_fewer_layers(job: Job, most_flows: int) -> Job:
    """Return the job with several layers in one, so that it has some `most_flows` flows.

    Jobs without layers that look the same stay as they are.
    """
    merged = ceil(len(job.flows) / most_flows)
    if merged <= 1:
        return job
    levels = _levels(job)
    looks = []
    for level in levels:
        level_looks = sorted(map(_order, level))
        looks.append(tuple(level_looks))
    replaced: dict[str, str] = {}
    """The names of steps that stay, by the names of those that go."""
    factors: dict[str, int] = {}
    """How many steps a step stands for, by name; 1 where it is not named."""
    for stack in _stacks(looks):
        for places in stack.merged_levels(merged):
            same = [levels[place] for place in places]
            _merge(same, replaced, factors)
    return _merged(job, replaced, factors)


def _levels(job: Job) -> list[list[_Step]]:
    """Return the steps by how many come before them, one after another."""
    steps: dict[str, _Step] = {unit.name: unit for unit in job.computes}
    steps.update({flow.name: flow for flow in job.flows})
    depths: dict[str, int] = {}
    levels = defaultdict(list)
    for name in topological_order(job):
        step = steps[name]
        before = [depths[earlier] for earlier in step.after]
        depth = 1 + max(before, default=-1)
        depths[name] = depth
        levels[depth].append(step)
    return [levels[depth] for depth in range(len(levels))]


def _look(step: _Step) -> Hashable:
    if isinstance(step, Flow):
        return "flow", step.ends, step.size_bytes
    return "unit", step.worker, step.duration_s


def _stacks(looks: Sequence[Hashable]) -> Iterator[_Stack]:
    """Yield the stacks of layers, none of which overlap."""
    start = 0
    while start < len(looks):
        stack = _stack(looks, start)
        if stack is None:
            start += 1
        else:
            yield stack
            start += stack.levels * stack.layers


def _stack(looks: Sequence[Hashable], start: int) -> _Stack | None:
    """Return the stack that begins at a level; None: the levels after it look otherwise."""
    for levels in range(1, _MOST_LEVELS + 1):
        end = start
        while end + levels < len(looks) and looks[end] == looks[end + levels]:
            end += 1
        layers = (end - start) // levels + 1
        if layers > 1:
            return _Stack(start, levels, layers)
    return None


def _merge(
    same: Sequence[Sequence[_Step]],
    replaced: dict[str, str],
    factors: dict[str, int],
) -> None:
    """Let the steps of the first of these levels stand for those of the others."""
    first = sorted(same[0], key=_order)
    for level in same[1:]:
        for step, kept in zip(sorted(level, key=_order), first, strict=True):
            replaced[step.name] = kept.name
    for step in first:
        factors[step.name] = len(same)


def _order(step: _Step) -> str:
    return repr(_look(step))


def _merged(
    job: Job,
    replaced: Mapping[str, str],
    factors: Mapping[str, int],
) -> Job:
    def after(step: _Step) -> tuple[str, ...]:
        return tuple(dict.fromkeys(replaced.get(name, name) for name in step.after))

    computes = []
    for unit in job.computes:
        if unit.name not in replaced:
            duration_s = unit.duration_s * factors.get(unit.name, 1)
            merged_unit = replace(unit, after=after(unit), duration_s=duration_s)
            computes.append(merged_unit)
    flows = []
    for flow in job.flows:
        if flow.name not in replaced:
            size_bytes = flow.size_bytes * factors.get(flow.name, 1)
            merged_flow = replace(flow, after=after(flow), size_bytes=size_bytes)
            flows.append(merged_flow)
    echelonflows = []
    for echelonflow in job.echelonflows:
        offsets_s = _offsets_s(echelonflow, replaced)
        if offsets_s:
            times_s = tuple(offsets_s.values())
            echelonflows.append(EchelonFlow(echelonflow.name, tuple(offsets_s), times_s))
    return replace(
        job,
        computes=tuple(computes),
        flows=tuple(flows),
        echelonflows=tuple(echelonflows),
    )


def _offsets_s(echelonflow: EchelonFlow, replaced: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the offsets of the flows that stay: those of the last flow that each stands for."""
    members = set(echelonflow.flows)
    offsets_s: dict[str, Fraction] = {}
    for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
        kept = replaced.get(name, name)
        if kept in members:
            # Offsets ascend.
            offsets_s.pop(kept, None)
            offsets_s[kept] = offset_s
    return offsets_s
