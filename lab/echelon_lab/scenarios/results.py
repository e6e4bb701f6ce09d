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
   "traffic": {SOURCE: {...}}}}}     of cross traffic: the fields of `lab.traffic.outcome.TrafficSummary`, and the
                                     time that they are about: "from_s", "to_s"
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
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Number
from echelon.planning.execution import IterationRecord, JobRecord, tardiness_s
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
    """What a policy that simulates plans has chosen for jobs that share links."""

    jobs: tuple[str, ...]
    plan: str
    slowdowns: Mapping[str, float] = field(default_factory=dict)
    """The simulated mean iteration time over that alone, by job; empty: it was not simulated."""

    @classmethod
    def of(cls, jobs: Iterable[str], plan: str, choice: Choice[Labelled] | None) -> Self:
        """Return the plan of these jobs, with what the search for it foresaw."""
        return cls(tuple(sorted(jobs)), plan, choice.best.slowdowns if choice else {})


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """The measurements of a target under one policy; times in seconds from the beginning of the
    run.
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
    """Cross traffic flow by flow, by source, in order of their starts. Flows that had not started
    when the run ended are missing."""
    observed: Mapping[str, Observed] = field(default_factory=dict)
    """What ranks have told, of jobs whose workers are programs.

    Their records have no flows and compute units.
    """
    plans: Sequence[ChosenPlan] = ()
    """What a policy that simulates plans has chosen; on real hosts, before jobs began."""


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
    jobs = {
        label: {job.name: _job(job, label, run, alone_s[job.name]) for job in scenario.jobs}
        for label, run in runs.items()
    }
    end_s = common_end_s(scenario, runs.values())
    traffic = compared(scenario, {label: run.traffic_flows for label, run in runs.items()}, end_s)
    results = {
        label: {
            "jobs": jobs[label],
            "switches": {name: asdict(stats) for name, stats in run.switches.items()},
            "plans": [
                {"jobs": list(of.jobs), "plan": of.plan, "slowdowns": _rounded_fields(of.slowdowns)}
                for of in run.plans
            ],
            "traffic": {
                name: _rounded_fields({**asdict(summary), "from_s": 0.0, "to_s": end_s})
                for name, summary in traffic[label].items()
            },
        }
        for label, run in runs.items()
    }
    return {"scenario": scenario.name, "target": target, "results": results}


def common_end_s(scenario: Scenario, runs: Iterable[PolicyRun]) -> float:
    """Return the time until which all runs lasted, in seconds from the beginning of each. A run
    lasts until each of its jobs has finished the iterations that were asked for."""
    return min(
        max(
            (
                float(of.finished[: scenario.iterations][-1].finish or 0)
                for of in run.records.values()
                if of.finished
            ),
            default=0.0,
        )
        for run in runs
    )


def alone_iterations_s(scenario: Scenario) -> dict[str, Fraction]:
    """Return how many seconds an iteration of each job takes at least, under any policy and on any
    paths, by job (`echelon.planning.fluid.least`). Raises `PlanError`."""
    from echelon.planning.fluid.least import least_iterations_s

    return least_iterations_s(scenario.jobs, scenario.fabric)


def to_text(results: Results) -> str:
    """Return the document as it is written to results.json: policies and jobs in order, the same
    text each time.
    """
    return json.dumps(results, indent=2, allow_nan=False) + "\n"


def summary(results: Results) -> Results:
    """Return the document without single flows and compute units."""
    policies = {
        label: {
            **of,
            "jobs": {job: _without_spans(measured) for job, measured in of["jobs"].items()},
        }
        for label, of in results["results"].items()
    }
    return {**results, "results": policies}


def _without_spans(job: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key not in ("flows", "computes")}


def rounded(value: Number) -> float:
    """Return a number as it stands in the document."""
    return round(float(value), DIGITS) + 0.0  # never -0.0


def _rounded_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, DIGITS) + 0.0 if isinstance(value, float) else value
        for name, value in fields.items()
    }


def _job(job: Job, label: str, run: PolicyRun, alone_s: Fraction) -> dict[str, object]:
    finished = run.records[job.name].finished
    if not finished:
        raise RunError(f"policy {label}: job {job.name} has finished no iteration")
    times_s = [
        iteration.finish - iteration.start for iteration in finished if iteration.finish is not None
    ]
    observed = run.observed.get(job.name)
    if observed is None:
        steps: dict[str, object] = {
            "echelonflows": {
                h.name: {
                    "tardiness_s": [rounded(tardiness_s(h, iteration)) for iteration in finished]
                }
                for h in job.echelonflows
            },
            "flows": [flow for iteration in finished for flow in _flows(job, iteration)],
            "computes": [unit for iteration in finished for unit in _computes(job, iteration)],
        }
    else:
        steps = _observed(observed, {iteration.iteration for iteration in finished})
    return {
        "iteration_times_s": [rounded(time_s) for time_s in times_s],
        "alone_iteration_s": rounded(alone_s),
        "mean_slowdown": rounded(sum(times_s) / len(times_s) / alone_s),
        "compute_finish_s": _compute_finish_s(finished[0]),
        "reordered_packets": run.reordered.get(job.name, 0),
        **steps,
    }


def _observed(of: Observed, iterations: Collection[int]) -> dict[str, object]:
    return {
        "echelonflows": {},
        "flows": [
            _flow_row(
                one.name,
                one.iteration,
                None,
                one.src,
                one.dst,
                one.size_bytes,
                one.start,
                one.finish,
                None,
            )
            for one in of.operations
            if one.iteration in iterations
        ],
        "computes": [
            _compute_row(
                one.name, one.iteration, one.worker, "compute", None, one.start, one.finish
            )
            for one in of.computing
            if one.iteration in iterations
        ],
    }


def _flow_row(
    name: str,
    iteration: int,
    micro_batch: int | None,
    src: str,
    dst: str,
    size_bytes: int,
    start: Number,
    finish: Number,
    ideal: Number | None,
) -> dict[str, object]:
    return {
        "name": name,
        "iteration": iteration,
        "micro_batch": micro_batch,
        "src": src,
        "dst": dst,
        "bytes": size_bytes,
        "start_s": rounded(start),
        "finish_s": rounded(finish),
        "ideal_finish_s": None if ideal is None else rounded(ideal),
        "tardiness_s": None if ideal is None else rounded(finish - ideal),
    }


def _compute_row(
    name: str,
    iteration: int,
    worker: str,
    kind: str,
    micro_batch: int | None,
    start: Number,
    finish: Number,
) -> dict[str, object]:
    return {
        "name": name,
        "iteration": iteration,
        "worker": worker,
        "kind": kind,
        "micro_batch": micro_batch,
        "start_s": rounded(start),
        "finish_s": rounded(finish),
    }


def _compute_finish_s(iteration: IterationRecord[Number]) -> float | None:
    ends = [span.finish for span in iteration.computes.values() if span.finish is not None]
    return rounded(max(ends) - iteration.start) if ends else None


def _computes(job: Job, iteration: IterationRecord[Number]) -> list[dict[str, object]]:
    return [
        _compute_row(
            unit.name,
            iteration.iteration,
            unit.worker,
            unit.kind,
            unit.micro_batch,
            span.start,
            span.finish,
        )
        for unit in job.computes
        if (span := iteration.computes.get(unit.name)) is not None and span.finish is not None
    ]


def _flows(job: Job, iteration: IterationRecord[Number]) -> list[dict[str, object]]:
    ideal_s = {
        name: iteration.references[h.name] + offset_s
        for h in job.echelonflows
        for name, offset_s in zip(h.flows, h.offsets_s, strict=True)
    }
    out: list[dict[str, object]] = []
    for flow in job.flows:
        span = iteration.flows[flow.name]
        assert span.finish is not None  # of a finished iteration
        number = iteration.iteration
        ideal = ideal_s.get(flow.name)
        ends = flow.src, flow.dst, flow.size_bytes
        out.append(
            _flow_row(flow.name, number, flow.micro_batch, *ends, span.start, span.finish, ideal)
        )
    return out


FlowsOfSources: TypeAlias = Mapping[str, Sequence[FlowOutcome]]
"""Flows of a run by the name of their source."""


def compared(
    scenario: Scenario, flows: Mapping[str, FlowsOfSources], end_s: float
) -> Mapping[str, Mapping[str, TrafficSummary]]:
    """Return summaries by policy and source of what policies' runs have sent, from time 0 to
    `end_s`, by which none of the runs was over: a flow that ended later is unfinished.

    Slowdowns are relative to the slowest path between the source's hosts.

    A run lasts until its slowest job is done, so runs under different policies take different
    times. Over its own time each would be offered other flows, and where flows pile up, those of a
    longer run would take longer.
    """
    capacity_bps = {
        source.name: narrowest_bps(scenario.fabric, source.pairs) for source in scenario.traffic
    }
    return {
        label: {
            name: summary_of(until(sent, end_s), 0.0, end_s, capacity_bps[name])
            for name, sent in by_source.items()
        }
        for label, by_source in flows.items()
    }


@dataclass(frozen=True, slots=True)
class ObservedOperation:
    """An operation of `torch.distributed` as the rank of one worker saw it.

    Times are seconds of the run.
    """

    name: str
    """The kind of the operation, its number in the iteration and the worker, such as
    `all-reduce-2-h1`.
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
    """What the ranks of one job told."""

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
    return {
        "hosts": list(fabric.hosts),
        "switches": list(fabric.switches),
        "links": [
            {"a": one.a.node, "b": one.b.node, "rate_bps": one.rate_bps} for one in fabric.cables
        ],
        "paths": {policy: run.paths for policy, run in runs.items() if run.paths},
    }


def network_text(scenario: Scenario, runs: Mapping[str, PolicyRun]) -> str:
    """Return the document as it is written: the same text for the same runs."""
    return json.dumps(network_document(scenario, runs), separators=(",", ":")) + "\n"
