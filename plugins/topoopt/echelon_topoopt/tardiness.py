"""Ports for what is late: the topology by tardiness instead of by bytes.

TopoOpt shares ports by bytes (NSDI '23, section 4.3). But bytes that nobody waits for need no port: DELTA (arXiv
2603.28096) saves ports by the slack of transfers in the job's graph. That slack is what an arrangement function says:
an ideal finish time for each flow of an EchelonFlow. So here a run on the topology by bytes shows which steps finish
late, and TopologyFinder is asked again, each step's bytes multiplied by its tardiness as a part of the largest. That
is repeated with the best topology so far until it stays.
"""

from __future__ import annotations

from echelon.execution import IterationRecord
from echelon.jobs.analysis import ideal_finish_s
from echelon.jobs.combinators import Step
from echelon.jobs.graph import CollectiveStep, Job
from echelon_topoopt.search import Candidate, Judge, topologies

ROUNDS = 8
"""The most rounds."""


def tardiness_of(job: Job, record: IterationRecord[float]) -> dict[str, float]:
    """Return by how many seconds each flow of an EchelonFlow finished after its ideal finish time, at least 0."""
    late: dict[str, float] = {}
    for echelonflow in job.echelonflows:
        ideal_s = ideal_finish_s(echelonflow, 0)  # type: ignore[arg-type]
        begin_s = record.references[echelonflow.name]
        for name, offset_s in ideal_s.items():
            late[name] = max(0.0, (record.flows[name].finish or 0.0) - begin_s - float(offset_s))
    return late


def weights_of(steps: tuple[Step, ...], late: dict[str, float]) -> dict[str, float]:
    """Return the tardiness of each step that sends, of its latest flow, as a part of the largest; none: all are 0."""
    most = max(late.values(), default=0.0)
    names = {step.name: isinstance(step, CollectiveStep) for step in steps}
    out: dict[str, float] = {}
    for flow, late_s in late.items() if most else ():
        step = flow
        # The flows of a collective are NAME-wI-wJ, or NAME-rR-wI-wJ on ring R.
        while step not in names or (names[step] and step == flow):
            step = step.rpartition("-")[0]
        out[step] = max(out.get(step, 0.0), late_s / most)
    return out


def by_tardiness(judge: Judge, begin: Candidate) -> Candidate:
    """Return the best topology for the same parallelisation found by tardiness; `begin` if none is better."""
    best = begin
    for _ in range(ROUNDS):
        record, job = judge.record(best.parallelisation, best.topology)
        weights = weights_of(best.parallelisation.steps, tardiness_of(job, record))
        if not weights:
            break
        tried = [
            judge.candidate(best.parallelisation, topology)
            for topology in topologies(best.parallelisation, best.topology.degree, weights)
        ]
        found = min(tried, key=lambda of: of.iteration_s)
        if found.iteration_s >= best.iteration_s:
            break
        best = found
    return best
