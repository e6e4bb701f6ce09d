"""Properties of a job that follow from its iteration graph alone: orders and ideal finish times."""

from __future__ import annotations

import graphlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from itertools import pairwise
from typing import TypeVar

from echelon.model.jobs.graph import LOCAL, ComputeUnit, EchelonFlow, Ends, Flow, GraphError, Job

T = TypeVar("T")

__all__ = [
    "GraphError",
    "connections",
    "earliest_start_s",
    "ideal_finish_s",
    "leading_flows",
    "once",
    "ordered",
    "topological_order",
    "with_offsets",
    "with_profile_error",
]


def once(analyse: Callable[[Job], T]) -> Callable[[Job], T]:
    """Return the analysis with a result that is kept with the job.

    Planning asks for it again and again.
    """

    @wraps(analyse)
    def kept(job: Job) -> T:
        results: dict[str, T] = vars(job)
        if analyse.__name__ not in results:
            results[analyse.__name__] = analyse(job)
        return results[analyse.__name__]

    return kept


@once
def topological_order(job: Job) -> tuple[str, ...]:
    """Return the names of all compute units and flows, each after everything that it waits for.

    The order is by layers, and within a layer as the job lists the steps. Raises `GraphError` if
    there is no such order, or if names are unknown or not unique.
    """
    return _topological_order(job, _dependencies(job))


def _topological_order(job: Job, after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    try:
        return ordered(after)
    except GraphError as error:
        raise GraphError(f"job {job.name}: {error}", code=error.code) from None


def ordered(after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the names, each after those that `after` lists for it, and otherwise as listed.

    Raises `GraphError` if names wait for each other in a circle.
    """
    # Own code, because graphlib's sorter takes 2.5 times as long: 0.10 s instead of 0.04 s for 100
    # jobs of 22,000 flows in total, whose plan takes 0.5 s.
    followers: dict[str, list[str]] = {name: [] for name in after}
    missing = {name: len(needs) for name, needs in after.items()}
    for name, needs in after.items():
        for other in needs:
            followers[other].append(name)
    rank = {name: index for index, name in enumerate(after)}
    order: list[str] = []
    layer = [name for name, needs in after.items() if not needs]
    while layer:
        order += layer
        following = []
        for name in layer:
            for follower in followers[name]:
                missing[follower] -= 1
                if not missing[follower]:
                    following.append(follower)
        layer = sorted(following, key=rank.__getitem__)
    if len(order) < len(after):
        raise GraphError(f"waits for itself: {_a_cycle(after)}", code="cycle")
    return tuple(order)


def _a_cycle(after: Mapping[str, Sequence[str]]) -> str:
    try:
        graphlib.TopologicalSorter(after).prepare()
    except graphlib.CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    raise AssertionError("there is no cycle")


def earliest_start_s(job: Job, transfer_s: Callable[[Flow], Fraction]) -> dict[str, Fraction]:
    """Return when each step of an iteration starts, in seconds after the iteration's start.

    Every flow takes `transfer_s` of it and waits for nothing but its dependencies. Raises
    `GraphError`.
    """
    after = _dependencies(job)
    lasts = {unit.name: unit.duration_s for unit in job.computes}
    lasts |= {flow.name: transfer_s(flow) for flow in job.flows}
    start: dict[str, Fraction] = {}
    for name in _topological_order(job, after):
        ends = [start[other] + lasts[other] for other in after[name]]
        start[name] = max(ends, default=Fraction(0))
    return start


@once
def connections(job: Job) -> Mapping[Ends, tuple[Flow, ...]]:
    """Return the flows of an iteration by connection (`Flow.ends`), in the order of sending.

    This is the order in which they start on an infinitely fast network. The byte sequence of a
    connection consists of its flows in this order, the same in every iteration. Raises
    `GraphError`.
    """
    after = _dependencies(job)
    order = topological_order(job)
    # Integers of a unit that divides all durations are as exact as fractions, and much faster.
    units = math.lcm(*(unit.duration_s.denominator for unit in job.computes))
    lasts = {}
    for unit in job.computes:
        numerator, denominator = unit.duration_s.as_integer_ratio()
        lasts[unit.name] = numerator * (units // denominator)
    start: dict[str, int] = {}
    for name in order:
        ends = [start[other] + lasts.get(other, 0) for other in after[name]]
        start[name] = max(ends, default=0)
    rank = {name: index for index, name in enumerate(order)}

    def turn(flow: Flow) -> tuple[int, int]:
        return start[flow.name], rank[flow.name]

    by_connection: dict[Ends, list[Flow]] = {}
    for flow in sorted(job.flows, key=turn):
        by_connection.setdefault(flow.ends, []).append(flow)
    return {connection: tuple(flows) for connection, flows in by_connection.items()}


@once
def leading_flows(job: Job) -> frozenset[str]:
    """Return the names of the flows that wait for no other flow. Raises `GraphError`."""
    after = _dependencies(job)
    flows = {flow.name for flow in job.flows}
    behind_flows: set[str] = set()
    for name in topological_order(job):
        needs = after[name]
        if not flows.isdisjoint(needs) or not behind_flows.isdisjoint(needs):
            behind_flows.add(name)
    return frozenset(flows - behind_flows)


def ideal_finish_s(echelonflow: EchelonFlow, reference_s: Fraction) -> dict[str, Fraction]:
    """Return the ideal finish time of each flow, in seconds, for this reference time.

    This is the arrangement function.
    """
    offsets = zip(echelonflow.flows, echelonflow.offsets_s, strict=True)
    return {flow: reference_s + offset for flow, offset in offsets}


def with_offsets(job: Job, offsets_s: Mapping[str, Sequence[Fraction]]) -> Job:
    """Return `job` with other arrangement functions.

    `offsets_s` gives, by EchelonFlow, the ideal finish time of each of its flows after that of the
    first, seconds. Other EchelonFlows stay as they are. Raises
    `echelon.model.documents.DocumentError` if the job does not have an EchelonFlow, if there is not
    one offset for each flow, if the first is not 0, or if the offsets decrease.
    """
    if not offsets_s:
        return job
    echelonflows = {echelonflow.name: echelonflow for echelonflow in job.echelonflows}
    for name, measured_s in offsets_s.items():
        echelonflow = _checked(job, echelonflows, name, measured_s)
        offsets = tuple(echelonflow.slack_s + offset_s for offset_s in measured_s)
        echelonflows[name] = replace(echelonflow, offsets_s=offsets)
    return replace(job, echelonflows=tuple(echelonflows.values()))


def _checked(
    job: Job,
    echelonflows: Mapping[str, EchelonFlow],
    name: str,
    offsets_s: Sequence[Fraction],
) -> EchelonFlow:
    # pydantic and YAML take longer to import than everything else here.
    from echelon.model.documents import DocumentError, suggestion

    place = f"job {job.name}"
    if name not in echelonflows:
        reason = f"'{name}' is not an EchelonFlow of the job ({suggestion(name, echelonflows)})"
        raise DocumentError(place, "echelonflow", reason)
    flows = echelonflows[name].flows
    if len(offsets_s) != len(flows):
        reason = (
            f"has {len(offsets_s)} values, EchelonFlow '{name}' has {len(flows)} flows"
            " (give one for each)"
        )
        raise DocumentError(place, "offsets", reason)
    if offsets_s[0] != 0:
        reason = "is not 0 (offsets count from the ideal finish time of the first flow)"
        raise DocumentError(place, "offsets[0]", reason)
    for index, (before, after) in enumerate(pairwise(offsets_s), start=1):
        if after < before:
            reason = "is less than the one before (give them in ascending order)"
            raise DocumentError(place, f"offsets[{index}]", reason)
    return echelonflows[name]


def with_profile_error(job: Job, error: Fraction) -> Job:
    """Return `job` with a profile of its compute times that is wrong by `error`.

    1/5 means 20 % too long.

    The durations of compute units are scaled, and so are the arrangement offsets, which are
    differences of compute times. Flows and transfers inside a host stay as they are: bytes are
    counted, not profiled.
    """
    if not error:
        return job
    factor = 1 + error
    computes = []
    for unit in job.computes:
        if unit.kind == LOCAL:
            computes.append(unit)
        else:
            computes.append(replace(unit, duration_s=unit.duration_s * factor))
    echelonflows = []
    for echelonflow in job.echelonflows:
        offsets_s = tuple(offset * factor for offset in echelonflow.offsets_s)
        echelonflows.append(replace(echelonflow, offsets_s=offsets_s))
    return replace(
        job,
        computes=tuple(computes),
        echelonflows=tuple(echelonflows),
    )


def _dependencies(job: Job) -> dict[str, tuple[str, ...]]:
    steps: list[ComputeUnit | Flow] = [*job.computes, *job.flows]
    nodes = [(step.name, step.after) for step in steps]
    after = dict(nodes)
    if len(after) != len(nodes):
        names = [name for name, _ in nodes]
        twice = next(name for name, count in Counter(names).items() if count > 1)
        reason = f"the name '{twice}' is given to more than one compute unit or flow"
        raise GraphError(f"job {job.name}: {reason}", code="duplicate")
    for name, needs in nodes:
        for other in needs:
            if other not in after:
                reason = f"'{name}' waits for '{other}', which it does not have"
                raise GraphError(f"job {job.name}: {reason}", code="unknown-name")
    return after
