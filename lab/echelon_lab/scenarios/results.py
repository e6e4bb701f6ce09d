"""results.json: what every target reports of a scenario, in one form.

```
{"scenario": NAME, "target": NAME, "results": {POLICY: {
   "jobs": {JOB: {
      "iteration_times_s": [SECONDS, ...],          of the finished iterations, in order
      "alone_iteration_s": SECONDS,                 at least, without other jobs (`alone_iterations_s`)
      "mean_slowdown": RATIO,                       mean iteration time / alone
      "compute_finish_s": SECONDS,                  end of the first iteration's last compute unit, from the job's start
      "reordered_packets": COUNT,
      "echelonflows": {NAME: {"tardiness_s": [SECONDS, ...]}},      one for each finished iteration
      "flows": [{"name", "iteration", "micro_batch", "src", "dst", "bytes",
                 "start_s", "finish_s", "ideal_finish_s", "tardiness_s"}],
      "computes": [{"name", "iteration", "worker", "kind", "micro_batch", "start_s", "finish_s"}]}},
   "switches": {SWITCH: {"packets_in", "packets_out", "packets_dropped", "entries", "digests"}},
   "plans": [{"jobs": [JOB], "plan": NAME,          what a policy that simulates plans has chosen for some jobs
              "slowdowns": {JOB: RATIO}}],          mean iteration time / alone, as simulated; empty: it was not
   "traffic": {SOURCE: {...}}}}}     of cross traffic: the fields of `TrafficSummary`
                                     (`echelon_lab.traffic.outcome`), and the time that they are
                                     about: "from_s", "to_s"
```

Of a job whose workers are programs, flows are the operations that its ranks have observed, as each
saw them; they have no ideal finish times, and the job has no EchelonFlows here. Its compute units
are the times in which a rank did not wait.

Times of flows count from the beginning of the run. The ideal finish time is the reference time of
the EchelonFlow (the actual start of its head flow in that iteration) plus the job's true offset,
whatever the controller believes; a flow in no EchelonFlow has neither ideal finish time nor
tardiness (null), and a step of no single micro-batch has null there. A target without packets has
no switches. Cross traffic is compared over the same time under all policies: from time 0 to the end
of the shortest run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from echelon.model.errors import RunError
from echelon.model.fabric.routing import narrowest_bps
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.allocation import Number
from echelon.planning.execution import IterationRecord, JobRecord, Span, tardiness_s
from echelon.planning.policies.base import Choice, Labelled
from echelon_lab.traffic.outcome import FlowOutcome, TrafficSummary, until
from echelon_lab.traffic.outcome import summary as summary_of

if TYPE_CHECKING:
    from echelon_lab.scenarios.scenario import Scenario

Results = dict[str, Any]
"""The document above, as `json` reads and writes it."""

DIGITS = 9
"""Seconds are rounded to nanoseconds, so that no platform's last bit shows."""


@dataclass(frozen=True, slots=True)
class SwitchStats:
    """Counts of a switch during a run."""

    packets_in: int
    packets_out: int
    packets_dropped: int
    entries: int
    """Table entries that the controller wrote last."""
    digests: int
    """Flow events that the switch reported."""


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """The plan that a policy which simulates plans has chosen for jobs that share links."""

    jobs: tuple[str, ...]
    plan: str
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    """The simulated mean iteration time over that alone, by job; empty: it was not simulated."""

    @classmethod
    def from_choice(
        cls,
        jobs: Iterable[str],
        plan: str,
        choice: Choice[Labelled] | None,
    ) -> Self:
        """Return the plan of these jobs, with what the search for it foresaw."""
        slowdowns = choice.best.slowdowns if choice else {}
        return cls(tuple(sorted(jobs)), plan, slowdowns)


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """The measurements of a target under one policy.

    Times are seconds from the beginning of the run.
    """

    records: Mapping[str, JobRecord[Number]]
    """Job records by job."""
    switches: Mapping[str, SwitchStats] = field(default_factory=dict)
    """Switches by name; none where there are no packets."""
    reordered: Mapping[str, int] = field(default_factory=dict)
    """Packets by job that arrived after a packet of the same flow sent later.

    An absent job had none.
    """
    retransmitted: Mapping[str, int] = field(default_factory=dict)
    """Packets sent again, by job. An absent job had none."""
    paths: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Nodes of each flow's path by job and flow. Empty: they are not known."""
    traffic_flows: Mapping[str, Sequence[FlowOutcome]] = field(default_factory=dict)
    """Cross traffic flow by flow, by source, in order of their starts.

    Flows that had not started when the run ended are missing.
    """
    observed: Mapping[str, Observed] = field(default_factory=dict)
    """The reports of ranks, by job, where workers are programs.

    Their records have no flows and compute units.
    """
    plans: Sequence[ChosenPlan] = ()
    """The plans that a policy which simulates them has chosen; on real hosts, before jobs began."""


def assemble(
    scenario: Scenario,
    target: str,
    runs: Mapping[str, PolicyRun],
    alone_s: Mapping[str, Fraction] | None = None,
) -> Results:
    """Return the document for runs by policy label.

    `alone_s` is what an iteration of each job takes at least; it is computed if not given.

    Raises `RunError` for a job that has finished no iteration, `PlanError` if a job cannot run even
    alone.
    """
    if alone_s is None:
        alone_s = alone_iterations_s(scenario)
    flows = {label: run.traffic_flows for label, run in runs.items()}
    end_s = common_end_s(scenario, runs.values())
    traffic = compared(scenario, flows, end_s)

    results: dict[str, Any] = {}
    for label, run in runs.items():
        jobs = {}
        for job in scenario.jobs:
            jobs[job.name] = _job_document(job, label, run, alone_s[job.name])
        sources = {}
        for name, summary in traffic[label].items():
            sources[name] = _rounded_fields({**asdict(summary), "from_s": 0.0, "to_s": end_s})
        results[label] = {
            "jobs": jobs,
            "switches": {name: asdict(stats) for name, stats in run.switches.items()},
            "plans": [_plan_document(plan) for plan in run.plans],
            "traffic": sources,
        }
    return {"scenario": scenario.name, "target": target, "results": results}


def _plan_document(plan: ChosenPlan) -> dict[str, object]:
    slowdowns = _rounded_fields(plan.slowdowns)
    return {"jobs": list(plan.jobs), "plan": plan.plan, "slowdowns": slowdowns}


def common_end_s(scenario: Scenario, runs: Iterable[PolicyRun]) -> float:
    """Return the time until which all runs lasted, in seconds from the beginning of each.

    A run lasts until each of its jobs has finished the iterations that were asked for.
    """
    return min(_end_s(run, scenario.iterations) for run in runs)


def _end_s(run: PolicyRun, iterations: int) -> float:
    """Return when the last job has finished `iterations`, or all that it did finish."""
    end_s = 0.0
    for record in run.records.values():
        asked_for = record.finished[:iterations]
        if asked_for:
            end_s = max(end_s, float(asked_for[-1].finish or 0))
    return end_s


def alone_iterations_s(scenario: Scenario) -> dict[str, Fraction]:
    """Return how many seconds an iteration of each job takes at least, by job.

    This holds under any policy and on any paths (`echelon.planning.fluid.least`). Raises
    `PlanError`.
    """
    from echelon.planning.fluid.least import least_iterations_s

    return least_iterations_s(scenario.jobs, scenario.fabric)


def to_text(results: Results) -> str:
    """Return the document as it is written to results.json.

    Policies and jobs are in order, so that the text is the same each time.
    """
    return json.dumps(results, indent=2, allow_nan=False) + "\n"


def summary(results: Results) -> Results:
    """Return the document without single flows and compute units."""
    policies = {}
    for label, policy in results["results"].items():
        jobs = {}
        for job, measured in policy["jobs"].items():
            jobs[job] = _without_spans(measured)
        policies[label] = {**policy, "jobs": jobs}
    return {**results, "results": policies}


def _without_spans(job: Mapping[str, Any]) -> dict[str, Any]:
    summary = {}
    for key, value in job.items():
        if key not in ("flows", "computes"):
            summary[key] = value
    return summary


def rounded(value: Number) -> float:
    """Return a number as it stands in the document."""
    return round(float(value), DIGITS) + 0.0  # never -0.0


def _rounded_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    written = {}
    for name, value in fields.items():
        if isinstance(value, float):
            value = rounded(value)
        written[name] = value
    return written


def _job_document(
    job: Job,
    label: str,
    run: PolicyRun,
    alone_s: Fraction,
) -> dict[str, object]:
    finished = run.records[job.name].finished
    if not finished:
        raise RunError(f"policy {label}: job {job.name} has finished no iteration")
    times_s = []
    for iteration in finished:
        if iteration.finish is not None:
            times_s.append(iteration.finish - iteration.start)
    mean_s = sum(times_s) / len(times_s)

    observed = run.observed.get(job.name)
    if observed is None:
        steps = _emulated_steps(job, finished)
    else:
        steps = _observed_steps(observed, {iteration.iteration for iteration in finished})
    return {
        "iteration_times_s": [rounded(time_s) for time_s in times_s],
        "alone_iteration_s": rounded(alone_s),
        "mean_slowdown": rounded(mean_s / alone_s),
        "compute_finish_s": _compute_finish_s(finished[0]),
        "reordered_packets": run.reordered.get(job.name, 0),
        **steps,
    }


def _emulated_steps(job: Job, finished: Sequence[IterationRecord[Number]]) -> dict[str, object]:
    echelonflows: dict[str, object] = {}
    for h in job.echelonflows:
        values_s = [rounded(tardiness_s(h, iteration)) for iteration in finished]
        echelonflows[h.name] = {"tardiness_s": values_s}
    flows = []
    computes = []
    for iteration in finished:
        flows += _flows(job, iteration)
        computes += _computes(job, iteration)
    return {"echelonflows": echelonflows, "flows": flows, "computes": computes}


def _observed_steps(observed: Observed, iterations: Collection[int]) -> dict[str, object]:
    flows = []
    for operation in observed.operations:
        if operation.iteration in iterations:
            flows.append(_flow_row(operation, operation.iteration, None, operation, None))
    computes = []
    for computing in observed.computing:
        if computing.iteration in iterations:
            computes.append(
                _compute_row(computing, computing.iteration, "compute", None, computing)
            )
    return {"echelonflows": {}, "flows": flows, "computes": computes}


def _flow_row(
    flow: Flow | ObservedOperation,
    iteration: int,
    micro_batch: int | None,
    span: Span[Number] | ObservedOperation,
    ideal: Number | None,
) -> dict[str, object]:
    assert span.finish is not None  # of a finished iteration
    ideal_finish_s = None
    late_s = None
    if ideal is not None:
        ideal_finish_s = rounded(ideal)
        late_s = rounded(span.finish - ideal)
    return {
        "name": flow.name,
        "iteration": iteration,
        "micro_batch": micro_batch,
        "src": flow.src,
        "dst": flow.dst,
        "bytes": flow.size_bytes,
        "start_s": rounded(span.start),
        "finish_s": rounded(span.finish),
        "ideal_finish_s": ideal_finish_s,
        "tardiness_s": late_s,
    }


def _compute_row(
    unit: ComputeUnit | ObservedComputing,
    iteration: int,
    kind: str,
    micro_batch: int | None,
    span: Span[Number] | ObservedComputing,
) -> dict[str, object]:
    assert span.finish is not None
    return {
        "name": unit.name,
        "iteration": iteration,
        "worker": unit.worker,
        "kind": kind,
        "micro_batch": micro_batch,
        "start_s": rounded(span.start),
        "finish_s": rounded(span.finish),
    }


def _compute_finish_s(iteration: IterationRecord[Number]) -> float | None:
    ends = []
    for span in iteration.computes.values():
        if span.finish is not None:
            ends.append(span.finish)
    if ends:
        return rounded(max(ends) - iteration.start)
    return None


def _computes(job: Job, iteration: IterationRecord[Number]) -> list[dict[str, object]]:
    rows = []
    for unit in job.computes:
        span = iteration.computes.get(unit.name)
        if span is not None and span.finish is not None:
            row = _compute_row(unit, iteration.iteration, unit.kind, unit.micro_batch, span)
            rows.append(row)
    return rows


def _flows(job: Job, iteration: IterationRecord[Number]) -> list[dict[str, object]]:
    ideal: dict[str, Number] = {}
    for h in job.echelonflows:
        reference = iteration.references[h.name]
        for name, offset_s in zip(h.flows, h.offsets_s, strict=True):
            ideal[name] = reference + offset_s

    rows = []
    for flow in job.flows:
        span = iteration.flows[flow.name]
        finish = ideal.get(flow.name)
        rows.append(_flow_row(flow, iteration.iteration, flow.micro_batch, span, finish))
    return rows


FlowsOfSources: TypeAlias = Mapping[str, Sequence[FlowOutcome]]
"""Flows of a run by the name of their source."""


def compared(
    scenario: Scenario,
    flows: Mapping[str, FlowsOfSources],
    end_s: float,
) -> Mapping[str, Mapping[str, TrafficSummary]]:
    """Return summaries by policy and source of what policies' runs have sent until `end_s`.

    None of the runs was over by then. A flow that ended later is unfinished. Slowdowns are relative
    to the slowest path between the source's hosts.

    A run lasts until its slowest job is done, so runs under different policies take different
    times. Over its own time each would be offered other flows, and where flows pile up, those of a
    longer run would take longer.
    """
    capacity_bps = {}
    for source in scenario.traffic:
        capacity_bps[source.name] = narrowest_bps(scenario.fabric, source.pairs)
    summaries: dict[str, dict[str, TrafficSummary]] = {}
    for label, by_source in flows.items():
        summaries[label] = {}
        for name, sent in by_source.items():
            in_time = until(sent, end_s)
            summaries[label][name] = summary_of(in_time, 0.0, end_s, capacity_bps[name])
    return summaries


@dataclass(frozen=True, slots=True)
class ObservedOperation:
    """An operation of `torch.distributed` as the rank of one worker saw it.

    Times are seconds of the run.
    """

    name: str
    """The name of the operation, such as `all-reduce-2-h1`.

    It has the kind, the number in the iteration, and the worker.
    """
    iteration: int
    """Counted from 1."""
    src: str
    """The worker."""
    dst: str
    """The worker of the rank that it sends to, or of the next rank of the group."""
    size_bytes: int
    """The bytes that the rank gave."""
    start: Number
    finish: Number


@dataclass(frozen=True, slots=True)
class ObservedComputing:
    """A time in which the rank of a worker did not wait."""

    name: str
    iteration: int
    worker: str
    start: Number
    finish: Number


@dataclass(frozen=True, slots=True)
class Observed:
    """The reports of the ranks of one job."""

    operations: tuple[ObservedOperation, ...] = ()
    computing: tuple[ObservedComputing, ...] = ()


def network_document(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> dict[str, Any]:
    """Return the document.

    ```
    {"hosts": [HOST], "switches": [SWITCH], "links": [{"a", "b", "rate_bps"}],
     "paths": {POLICY: {JOB: {FLOW: [NODE, ...]}}}}       of runs whose paths are known
    ```
    """
    fabric = scenario.fabric
    links = []
    for cable in fabric.cables:
        links.append({"a": cable.a.node, "b": cable.b.node, "rate_bps": cable.rate_bps})
    return {
        "hosts": list(fabric.hosts),
        "switches": list(fabric.switches),
        "links": links,
        "paths": {policy: run.paths for policy, run in runs.items() if run.paths},
    }


def network_text(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> str:
    """Return the document as it is written: the same text for the same runs."""
    return json.dumps(network_document(scenario, runs), separators=(",", ":")) + "\n"
