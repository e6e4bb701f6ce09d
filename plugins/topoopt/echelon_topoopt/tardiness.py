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
    lasts = {unit.name: float(unit.duration_s) for unit in job.computes}
    lasts |= {flow.name: 0.0 for flow in job.flows}
    after = {unit.name: unit.after for unit in job.computes}
    after |= {flow.name: flow.after for flow in job.flows}
    order = topological_order(job)
    end: dict[str, float] = {}
    for name in order:
        begin = max((end[other] for other in after[name]), default=0.0)
        end[name] = begin + lasts[name]
    due = dict.fromkeys(order, max(end.values(), default=0.0))
    for name in reversed(order):
        for other in after[name]:
            due[other] = min(due[other], due[name] - lasts[name])
    return {flow.name: due[flow.name] for flow in job.flows}


def tardiness_of(job: Job, record: IterationRecord[float]) -> dict[str, float]:
    """Return the seconds by which each flow was late, at most its own duration."""
    late: dict[str, float] = {}
    for name, due in due_s(job).items():
        span = record.flows[name]
        finish = span.start if span.finish is None else span.finish
        late_s = finish - record.start - due
        late[name] = max(0.0, min(late_s, finish - span.start))
    return late


def weights_of(steps: Sequence[Step], late: Mapping[str, float]) -> dict[str, float]:
    """Return the tardiness of each step that sends, of its latest flow, as a part of the largest;
    none: all are 0.
    """
    most = max(late.values(), default=0.0)
    if not most:
        return {}
    is_collective = {step.name: isinstance(step, CollectiveStep) for step in steps}
    weights: dict[str, float] = {}
    for flow, late_s in late.items():
        step = flow
        # The flows of a collective are NAME-wI-wJ, or NAME-rR-wI-wJ on ring R.
        while step not in is_collective or (is_collective[step] and step == flow):
            step = step.rpartition("-")[0]
        weights[step] = max(weights.get(step, 0.0), late_s / most)
    return weights


def by_tardiness(judge: Judge, begin: Candidate) -> Candidate:
    """Return the best topology for the parallelisation by tardiness, or else `begin`."""
    best = begin
    for _ in range(ROUNDS):
        record, job = judge.record(best.parallelisation, best.topology)
        weights = weights_of(best.parallelisation.steps, tardiness_of(job, record))
        if not weights:
            break
        changed = topologies(best.parallelisation, best.topology.degree, weights)
        tried = fastest(judge.candidate(best.parallelisation, topology) for topology in changed)
        if tried.iteration_s >= best.iteration_s:
            break
        best = tried
    return best
