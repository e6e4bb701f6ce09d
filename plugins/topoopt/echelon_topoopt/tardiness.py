"""Ports for what is late: the topology by tardiness instead of by bytes.

TopoOpt shares ports by bytes (NSDI '23, section 4.3). But bytes that nobody waits for need no port:
DELTA (arXiv 2603.28096) saves ports by the slack of transfers in the job's graph. An arrangement
function has that slack: a flow is due when it is consumed on an infinitely fast network, and what
nobody computes on when the iteration ends (`echelon.model.jobs.arrangement`). Here all flows count
from one reference, the beginning of the iteration, since what is compared belongs to different
EchelonFlows; and a flow is due as late as it may be without anything later.

A run on the topology by bytes shows which steps finish late. TopologyFinder is asked again, each
step's bytes multiplied by its tardiness as a part of the largest, until the best topology stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.model.jobs.analysis import topological_order
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.graph import CollectiveStep, Job
from echelon.planning.execution import IterationRecord
from echelon_topoopt.search import Candidate, Judge, fastest, topologies

ROUNDS = 8
"""The most rounds."""


def due_s(job: Job) -> dict[str, float]:
    """Return the latest finish of each flow, in seconds, for the shortest possible iteration."""
    lasts_s: dict[str, float] = {}
    after: dict[str, Sequence[str]] = {}
    for unit in job.computes:
        lasts_s[unit.name] = float(unit.duration_s)
        after[unit.name] = unit.after
    for flow in job.flows:
        # On an infinitely fast network.
        lasts_s[flow.name] = 0.0
        after[flow.name] = flow.after

    order = topological_order(job)
    end_s: dict[str, float] = {}
    for name in order:
        ends = [end_s[earlier] for earlier in after[name]]
        end_s[name] = max(ends, default=0.0) + lasts_s[name]

    iteration_s = max(end_s.values(), default=0.0)
    latest_s = dict.fromkeys(order, iteration_s)
    for name in reversed(order):
        latest_begin_s = latest_s[name] - lasts_s[name]
        for earlier in after[name]:
            latest_s[earlier] = min(latest_s[earlier], latest_begin_s)
    return {flow.name: latest_s[flow.name] for flow in job.flows}


def tardiness_of(job: Job, record: IterationRecord[float]) -> dict[str, float]:
    """Return the seconds by which each flow was late, at most its own duration."""
    late: dict[str, float] = {}
    for name, due in due_s(job).items():
        span = record.flows[name]
        finish = span.start if span.finish is None else span.finish
        late_s = finish - record.start - due
        duration_s = finish - span.start
        late[name] = max(0.0, min(late_s, duration_s))
    return late


def weights_of(steps: Sequence[Step], late: Mapping[str, float]) -> dict[str, float]:
    """Return the tardiness of each step that sends, of its latest flow, as a part of the largest;
    none: all are 0.
    """
    most = max(late.values(), default=0.0)
    if not most:
        return {}
    collectives = {step.name for step in steps if isinstance(step, CollectiveStep)}
    names = {step.name for step in steps}
    single = names - collectives
    weights: dict[str, float] = {}
    for flow, late_s in late.items():
        step = flow
        if flow not in single:
            # The flows of a collective are NAME-wI-wJ, or NAME-rR-wI-wJ on ring R.
            step, _, _ = flow.rpartition("-")
            while step not in names:
                step, _, _ = step.rpartition("-")
        weight = late_s / most
        weights[step] = max(weights.get(step, 0.0), weight)
    return weights


def by_tardiness(judge: Judge, begin: Candidate) -> Candidate:
    """Return the best topology for the parallelisation by tardiness, or else `begin`."""
    parallelisation = begin.parallelisation
    degree = begin.topology.degree
    best = begin
    for _ in range(ROUNDS):
        record, job = judge.record(parallelisation, best.topology)
        late = tardiness_of(job, record)
        weights = weights_of(parallelisation.steps, late)
        if not weights:
            break
        changed = topologies(parallelisation, degree, weights)
        candidates = [judge.candidate(parallelisation, topology) for topology in changed]
        tried = fastest(candidates)
        if tried.iteration_s >= best.iteration_s:
            break
        best = tried
    return best
