"""Jobs with fewer layers, so that a simulation takes less work.

A mixture of experts sends from everyone to everyone in each layer, twice: 94 layers on 16 hosts are
45,000 flows. Layers that look the same and follow each other become one, which computes and sends
as much as all of them.

The level of a step is the largest number of steps that come before it, one after another. Levels
look the same if their steps do: flows by ends and bytes, units by host and duration. A stack is a
place where looks repeat after a few levels, the levels of a layer. Of each few layers of a stack
the first stands for all: each of its steps does the work of those on its level of the others that
look the same, and what waited for them waits for it.
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
        top = self.start + self.levels * self.layers
        stride = merged * self.levels
        for begin in range(self.start, top, stride):
            # There may be fewer layers left.
            end = min(begin + stride, top)
            # The first of these layers stands for all of them.
            for level in range(begin, begin + self.levels):
                yield range(level, end, self.levels)


def with_fewer_layers(job: Job, most_flows: int) -> Job:
    """Return the job with several layers in one, so that it has some `most_flows` flows.

    Jobs without layers that look the same stay as they are.
    """
    times_too_many = len(job.flows) / most_flows
    merged = ceil(times_too_many)
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
    steps: dict[str, _Step] = {}
    for unit in job.computes:
        steps[unit.name] = unit
    for flow in job.flows:
        steps[flow.name] = flow
    depths: dict[str, int] = {}
    levels = defaultdict(list)
    for name in topological_order(job):
        step = steps[name]
        before = map(depths.__getitem__, step.after)
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
    # The fewest levels that repeat are those of one layer; more would be several layers.
    for levels in range(1, _MOST_LEVELS + 1):
        repeated = 0
        for level in range(start, len(looks) - levels):
            if looks[level] != looks[level + levels]:
                break
            repeated += 1
        layers = 1 + repeated // levels
        if layers > 1:
            return _Stack(start, levels, layers)
    return None


def _merge(
    same: Sequence[Sequence[_Step]],
    replaced: dict[str, str],
    factors: dict[str, int],
) -> None:
    """Let the steps of the first of these levels stand for those of the others."""
    # Levels that look the same have steps that look the same, one by one in this order.
    first, *later = [sorted(level, key=_order) for level in same]
    for level in later:
        for step, kept in zip(level, first, strict=True):
            replaced[step.name] = kept.name
    for step in first:
        factors[step.name] = len(same)


def _order(step: _Step) -> str:
    """Return the look of a step as a text, because looks of flows and units have no order."""
    return repr(_look(step))


def _merged(
    job: Job,
    replaced: Mapping[str, str],
    factors: Mapping[str, int],
) -> Job:
    """Return the job without the steps that are replaced; others do `factors` times as much."""

    def after(step: _Step) -> tuple[str, ...]:
        names = [replaced.get(name, name) for name in step.after]
        distinct = dict.fromkeys(names)
        return tuple(distinct)

    computes = []
    for unit in job.computes:
        if unit.name in replaced:
            continue
        factor = factors.get(unit.name, 1)
        duration_s = unit.duration_s * factor
        merged_unit = replace(unit, after=after(unit), duration_s=duration_s)
        computes.append(merged_unit)

    flows = []
    for flow in job.flows:
        if flow.name in replaced:
            continue
        factor = factors.get(flow.name, 1)
        size_bytes = flow.size_bytes * factor
        merged_flow = replace(flow, after=after(flow), size_bytes=size_bytes)
        flows.append(merged_flow)

    echelonflows = []
    for echelonflow in job.echelonflows:
        offsets_s = _offsets_s(echelonflow, replaced)
        if offsets_s:
            names = tuple(offsets_s)
            times_s = tuple(offsets_s.values())
            merged = EchelonFlow(echelonflow.name, names, times_s)
            echelonflows.append(merged)

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
            # Offsets ascend, in the order of the dictionary, too.
            offsets_s.pop(kept, None)
            offsets_s[kept] = offset_s
    return offsets_s
