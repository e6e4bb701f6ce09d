"""What follows from a job's iteration graph alone: orders, ideal finish times, tardiness."""

from __future__ import annotations

import graphlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise

from echelon.errors import Code, CodedError
from echelon.jobs.graph import EchelonFlow, Flow, Job


class GraphError(CodedError, ValueError):
    """The iteration graph of a job is not one: a cycle, a name that is missing or given twice."""

    code: Code = "invalid-value"


def topological_order(job: Job) -> tuple[str, ...]:
    """Names of all compute units and flows, each after everything it waits for: by layers, and
    within a layer as the job lists them.

    Raises `GraphError` if there is no such order, or if names are unknown or not unique.
    """
    return _topological_order(job, _dependencies(job))


def _topological_order(job: Job, after: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    followers: dict[str, list[str]] = {name: [] for name in after}
    missing: dict[str, int] = {}
    for name, needs in after.items():
        missing[name] = len(needs)
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
        raise GraphError(f"job {job.name}: waits for itself: {_a_cycle(after)}")
    return tuple(order)


def _a_cycle(after: Mapping[str, Sequence[str]]) -> str:
    try:
        graphlib.TopologicalSorter(after).prepare()
    except graphlib.CycleError as error:
        return " -> ".join(reversed(error.args[1]))
    raise AssertionError("there is no cycle")


def earliest_start_s(job: Job, transfer_s: Callable[[Flow], Fraction]) -> dict[str, Fraction]:
    """When each compute unit and flow of an iteration starts, seconds after its beginning, if every flow takes
    `transfer_s` of it and nothing else is in the way. Raises `GraphError`."""
    after = _dependencies(job)
    lasts = {c.name: c.duration_s for c in job.computes} | {f.name: transfer_s(f) for f in job.flows}
    start: dict[str, Fraction] = {}
    for name in _topological_order(job, after):
        start[name] = max((start[other] + lasts[other] for other in after[name]), default=Fraction(0))
    return start


def connections(job: Job) -> dict[tuple[str, str], tuple[Flow, ...]]:
    """The flows of an iteration by connection (source, destination), in the order in which the sender sends them.

    That is the order in which they start on an infinitely fast network; the byte sequence of the connection is their
    sizes in this order, the same in every iteration. Raises `GraphError`.
    """
    after = _dependencies(job)
    order = _topological_order(job, after)
    # In whole numbers of a unit that divides all durations: exact as fractions are, and much faster.
    units = math.lcm(*(c.duration_s.denominator for c in job.computes))
    lasts = {c.name: c.duration_s.numerator * (units // c.duration_s.denominator) for c in job.computes}
    start: dict[str, int] = {}
    for name in order:
        start[name] = max((start[other] + lasts.get(other, 0) for other in after[name]), default=0)
    rank = {name: index for index, name in enumerate(order)}
    by_connection: dict[tuple[str, str], list[Flow]] = {}
    for flow in sorted(job.flows, key=lambda flow: (start[flow.name], rank[flow.name])):
        by_connection.setdefault((flow.src, flow.dst), []).append(flow)
    return {connection: tuple(flows) for connection, flows in by_connection.items()}


def ideal_finish_s(echelonflow: EchelonFlow, reference_s: Fraction) -> dict[str, Fraction]:
    """The arrangement function: ideal finish time of each flow, given when the head flow really started."""
    return {flow: reference_s + offset for flow, offset in zip(echelonflow.flows, echelonflow.offsets_s, strict=True)}


def tardiness_s(echelonflow: EchelonFlow, reference_s: Fraction, finish_s: Mapping[str, Fraction]) -> Fraction:
    """Largest tardiness of the flows, seconds: how late the whole formation is (HotNets '22, eq. 2)."""
    ideal = ideal_finish_s(echelonflow, reference_s)
    return max(finish_s[flow] - ideal[flow] for flow in echelonflow.flows)


def consumer_finish_s(finish_s: Sequence[Fraction], compute_s: Sequence[Fraction]) -> Fraction:
    """When a worker that is idle before, and works first in first out, is done with what arrives at `finish_s`.

    `compute_s[j]` is its work on arrival j. It equals ``max_j (e_j + sum of p_k for k >= j)``, and with ideal finish
    times ``d_j = r + sum of p_k for k < j`` it is the tardiness + r + the sum of all p_k (technical report of
    HotNets '22, S11, with unequal p): minimal tardiness is the earliest finish of the consumer.
    """
    left_s = list(accumulate(reversed(compute_s)))[::-1]
    return max(arrival + left for arrival, left in zip(finish_s, left_s, strict=True))


def with_offsets(job: Job, offsets_s: Mapping[str, Sequence[Fraction]]) -> Job:
    """`job` with other arrangement functions: by EchelonFlow, the ideal finish time of each of its flows after the
    first's, seconds. EchelonFlows that are not named stay as they are.

    Raises `echelon.documents.DocumentError` for an EchelonFlow that the job does not have, and for offsets that are not
    one for each flow, 0 for the first and none less than the one before.
    """
    if not offsets_s:
        return job
    known = {h.name: h for h in job.echelonflows}
    changed = {
        name: replace(_checked(job, known, name, of_it), offsets_s=tuple(of_it)) for name, of_it in offsets_s.items()
    }
    return replace(job, echelonflows=tuple(changed.get(h.name, h) for h in job.echelonflows))


def _checked(job: Job, known: Mapping[str, EchelonFlow], name: str, offsets_s: Sequence[Fraction]) -> EchelonFlow:
    # Imported here because it brings pydantic and YAML, which take longer to import than all else here.
    from echelon.documents import DocumentError, suggestion

    place = f"job {job.name}"
    if name not in known:
        raise DocumentError(place, "echelonflow", f"'{name}' is not one of the job's ({suggestion(name, known)})")
    flows = known[name].flows
    if len(offsets_s) != len(flows):
        reason = f"has {len(offsets_s)} values, EchelonFlow '{name}' has {len(flows)} flows (give one for each)"
        raise DocumentError(place, "offsets", reason)
    if offsets_s[0] != 0:
        raise DocumentError(
            place, "offsets[0]", "is not 0 (offsets count from the ideal finish time of the first flow)"
        )
    for index, (before, after) in enumerate(pairwise(offsets_s), start=1):
        if after < before:
            raise DocumentError(
                place, f"offsets[{index}]", "is less than the one before (give them in ascending order)"
            )
    return known[name]


def with_profile_error(job: Job, error: Fraction) -> Job:
    """`job` as somebody sees it whose profile of its compute times is wrong by `error`: 1/5 is 20 % too long.

    The durations of compute units are scaled, and so are the arrangement offsets, which are distances of computing.
    Bytes are counted, not profiled: flows stay as they are.
    """
    return replace(
        job,
        computes=tuple(replace(c, duration_s=c.duration_s * (1 + error)) for c in job.computes),
        echelonflows=tuple(
            replace(h, offsets_s=tuple(offset * (1 + error) for offset in h.offsets_s)) for h in job.echelonflows
        ),
    )


def _dependencies(job: Job) -> dict[str, tuple[str, ...]]:
    nodes = [(c.name, c.after) for c in job.computes] + [(f.name, f.after) for f in job.flows]
    after = dict(nodes)
    if len(after) != len(nodes):
        names = [name for name, _ in nodes]
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise GraphError(f"job {job.name}: the name '{twice}' is given to more than one compute unit or flow")
    for name, needs in nodes:
        for other in needs:
            if other not in after:
                raise GraphError(f"job {job.name}: '{name}' waits for '{other}', which it does not have")
    return after
