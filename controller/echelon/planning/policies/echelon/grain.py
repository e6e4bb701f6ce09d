"""Jobs that are simplified, so that a simulation takes less work.

In the time of one iteration of a job of minutes, a job of a second does hundreds. Almost all work
of a simulation is then for the fast job, whose iterations meet about the same load again and again:
several become one (`coarse`). An all-reduce over a ring is 2 (n - 1) rounds of small flows, which
follow each other closely: they become one flow for each pair of neighbours (`whole_rings`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from echelon.model.jobs.analysis import topological_order
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Ends, Flow, GraphError, Job

_LEAST_ROUNDS = 4
"""The rounds of a ring of three, the smallest whose rounds are many."""


def grains(alone_s: Sequence[float], lives: int) -> list[int]:
    """Return how many iterations become one, by job.

    `alone_s` are the seconds of their iterations alone. In an iteration of the slowest job the
    others still do `lives` of theirs.
    """
    slowest_s = max(alone_s, default=0.0)
    sizes = []
    for period_s in alone_s:
        size = int(slowest_s / (lives * period_s))
        sizes.append(max(1, size))
    return sizes


def coarse(job: Job, grain: int) -> Job:
    """Return the job with so many of its iterations in one, with the same steps."""
    if grain == 1:
        return job
    computes = []
    for unit in job.computes:
        duration_s = unit.duration_s * grain
        computes.append(replace(unit, duration_s=duration_s))
    flows = []
    for flow in job.flows:
        size_bytes = flow.size_bytes * grain
        flows.append(replace(flow, size_bytes=size_bytes))
    echelonflows = []
    for echelonflow in job.echelonflows:
        offsets_s = tuple(Fraction(offset_s) * grain for offset_s in echelonflow.offsets_s)
        echelonflows.append(replace(echelonflow, offsets_s=offsets_s))
    return replace(
        job,
        computes=tuple(computes),
        flows=tuple(flows),
        echelonflows=tuple(echelonflows),
    )


def whole_rings(job: Job) -> Job:
    """Return the job with one flow for each pair of neighbours on a ring, instead of rounds.

    A ring is found by its dependencies: flows that follow flows only, such that each pair of
    neighbours waits for each other pair. All of a ring begins when its last neighbour is ready. A
    job in which that would be a cycle stays as it is.
    """
    echelonflows = {}
    for echelonflow in job.echelonflows:
        for name in echelonflow.flows:
            echelonflows[name] = echelonflow.name
    rings = []
    for stream in _streams(job):
        # What stands for several flows can be in one EchelonFlow only.
        groups = {echelonflows.get(flow.name) for flow in stream}
        if len(groups) == 1 and _is_ring(stream):
            rings.append(stream)
    if not rings:
        return job
    flow_by_member = {}
    for ring in rings:
        flow_by_member.update(_flow_by_member(ring))
    simple = _replaced(job, flow_by_member)
    try:
        topological_order(simple)
    except GraphError:
        # Something waits for one round and delays a later one.
        return job
    return simple


def _streams(job: Job) -> Iterable[Sequence[Flow]]:
    """Return the flows that follow each other without any computing between them, by stream.

    A flow that waits for computing, or for nothing, begins a stream.
    """
    flows = {flow.name: flow for flow in job.flows}
    first: dict[str, str] = {}
    """An earlier flow of the same stream, by flow; its own name: there is none."""

    def root(name: str) -> str:
        while first[name] != name:
            first[name] = name = first[first[name]]
        return name

    for name in topological_order(job):
        flow = flows.get(name)
        if flow is None:
            continue
        first[name] = name
        if all(earlier in flows for earlier in flow.after):
            for earlier in flow.after:
                first[root(earlier)] = name
    streams = defaultdict(list)
    for flow in job.flows:
        streams[root(flow.name)].append(flow)
    return streams.values()


def _is_ring(stream: Sequence[Flow]) -> bool:
    """Return whether each pair of hosts has several flows, which wait for all other pairs."""
    pairs = defaultdict(list)
    for flow in stream:
        pairs[flow.ends].append(flow)
    rounds = set(map(len, pairs.values()))
    if len(rounds) > 1 or min(rounds) < _LEAST_ROUNDS:
        return False

    pair_by_name = {flow.name: flow.ends for flow in stream}
    before = defaultdict(set)
    after = defaultdict(set)
    for flow in stream:
        for earlier in flow.after:
            pair = pair_by_name.get(earlier)
            if pair is not None:
                before[flow.ends].add(pair)
                after[pair].add(flow.ends)
    # Each pair waits for each other if one of them waits for all, and all wait for that one.
    start = stream[0].ends
    reaching = _reached(start, before)
    reached = _reached(start, after)
    return len(reaching) == len(reached) == len(pairs)


def _reached(start: Ends, neighbours: Mapping[Ends, Iterable[Ends]]) -> set[Ends]:
    reached = {start}
    waiting = [start]
    while waiting:
        last = waiting.pop()
        for pair in neighbours.get(last, ()):
            if pair not in reached:
                reached.add(pair)
                waiting.append(pair)
    return reached


def _flow_by_member(ring: Sequence[Flow]) -> dict[str, Flow]:
    """Return the flow that stands for each flow of a ring, by name."""
    inside = {flow.name for flow in ring}
    waited: dict[str, None] = {}
    for flow in ring:
        for name in flow.after:
            if name not in inside:
                waited[name] = None
    by_pair = defaultdict(list)
    for flow in ring:
        by_pair[flow.ends].append(flow)
    flow_by_member: dict[str, Flow] = {}
    for flows in by_pair.values():
        size_bytes = sum(flow.size_bytes for flow in flows)
        flow = replace(flows[0], size_bytes=size_bytes, after=tuple(waited), rounds=len(flows))
        for member in flows:
            flow_by_member[member.name] = flow
    return flow_by_member


def _replaced(job: Job, flow_by_member: Mapping[str, Flow]) -> Job:
    """Return the job with other flows instead of those that are given by name."""

    def renamed(name: str) -> str:
        flow = flow_by_member.get(name)
        if flow is None:
            return name
        return flow.name

    def followers(step: Flow | ComputeUnit) -> tuple[str, ...]:
        names = map(renamed, step.after)
        distinct = dict.fromkeys(names)
        return tuple(distinct)

    computes = []
    for unit in job.computes:
        after = followers(unit)
        computes.append(replace(unit, after=after))
    flows = {}
    for flow in job.flows:
        flow = flow_by_member.get(flow.name, flow)
        after = followers(flow)
        flows[flow.name] = replace(flow, after=after)
    echelonflows = []
    for echelonflow in job.echelonflows:
        # Offsets ascend: what stands for several flows is due with the last of them.
        offsets_s: dict[str, Fraction] = {}
        for name, offset_s in zip(echelonflow.flows, echelonflow.offsets_s, strict=True):
            kept = renamed(name)
            offsets_s.pop(kept, None)
            offsets_s[kept] = offset_s
        names = tuple(offsets_s)
        times_s = tuple(offsets_s.values())
        echelonflows.append(EchelonFlow(echelonflow.name, names, times_s))
    return replace(
        job,
        computes=tuple(computes),
        flows=tuple(flows.values()),
        echelonflows=tuple(echelonflows),
    )
