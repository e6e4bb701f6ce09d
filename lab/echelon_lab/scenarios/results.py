"""results.json: what every target reports of a scenario, in one form.

```
{"scenario": NAME, "target": NAME, "results": {POLICY: {
   "jobs": {JOB: {
      "iteration_times_s": [SECONDS, ...],          of the finished iterations, in order; of several
                                                    that are simulated together: their mean
      "iterations_together": COUNT,                 iterations simulated as one, if several are
      "alone_iteration_s": SECONDS,                 at least, without other jobs (`alone_iterations_s`)
      "mean_slowdown": RATIO,                       mean iteration time / alone
      "steady": {"mean_slowdown": RATIO,            the same without the first third of the run,
                 "half_width": RATIO or null},      of its 95 % interval; null: too few iterations
      "compute_finish_s": SECONDS,                  end of the first iteration's last compute unit, from the job's start
      "reordered_packets": COUNT,
      "echelonflows": {NAME: {"tardiness_s": [SECONDS, ...]}},      one for each finished iteration
      "flows": [{"name", "iteration", "micro_batch", "src", "dst", "bytes",
                 "start_s", "finish_s", "ideal_finish_s", "tardiness_s"}],
      "computes": [{"name", "iteration", "worker", "kind", "micro_batch", "start_s", "finish_s"}],
      "listed_iterations": {"flows": COUNT, "computes": COUNT}}},     only where rows are left out
   "steady": {"mean_slowdown": RATIO, "half_width": RATIO or null,  the mean over the jobs
              "ended": "iterations", "precise" or "budget"},     what ended the run: it had done what was asked for,
                                                    the half width is below 1 %, or it was not after as many
   "switches": {SWITCH: {"packets_in", "packets_out", "packets_dropped", "entries", "digests"}},
   "plans": [{"jobs": [JOB], "plan": NAME,          what a policy that simulates plans has chosen for some jobs
              "slowdowns": {JOB: RATIO},            mean iteration time / alone, if foreseen
              "judge": NAME,                        who compared the best plans: model, packets, ...
              "by_model": {JOB: RATIO},             what the fluid model says, where another judged
              "unjudged": REASON or null}],         why the judge that was asked for did not
   "traffic": {SOURCE: {...}}}}}     of cross traffic: the fields of `TrafficSummary`
                                     (`echelon_lab.traffic.outcome`), and the time that they are
                                     about: "from_s", "to_s"
```

Of a job whose workers are programs, flows are the operations that its ranks have observed, as each
saw them; they have no ideal finish times, and the job has no EchelonFlows here. Its compute units
are the times in which a rank did not wait.

A run may have millions of flows. Unless all are asked for, `flows` are those of the first
iterations, of each job as many, in which a policy has at most `MOST_ROWS`; and so are `computes`.
All other figures are of all iterations.

Times of flows count from the beginning of the run. The ideal finish time is the reference time of
the EchelonFlow (the actual start of its head flow in that iteration) plus the job's true offset,
whatever the controller believes; a flow in no EchelonFlow has neither ideal finish time nor
tardiness (null), and a step of no single micro-batch has null there. A target without packets has
no switches. Cross traffic is compared over the same time under all policies: from time 0 to the end
of the shortest run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import narrowest_bps
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.allocation import Number
from echelon.planning.execution import IterationRecord, JobRecord, Span, tardiness_s
from echelon.planning.fluid.interval import MeanInterval, Spans, mean_slowdown_interval
from echelon.planning.fluid.slowdown import spans_s
from echelon.planning.policies.base import Choice, Labelled
from echelon.planning.policies.judges import MODEL
from echelon_lab.traffic.outcome import FlowOutcome, TrafficSummary, until
from echelon_lab.traffic.outcome import summary as summary_of

if TYPE_CHECKING:
    from echelon_lab.scenarios.scenario import Scenario

Results = dict[str, Any]
"""The document above, as `json` reads and writes it."""

MOST_ROWS = 50_000
"""The most flows, and compute units, that are listed of one policy. They are some 15 MB, and take a
second to list and write; a picture of more shows no single one."""
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
    """The simulated mean iteration time over the least, by job; empty: it was not simulated."""
    judge: str = MODEL
    """Who compared the best plans (`echelon.planning.policies.judges`)."""
    by_model: Mapping[str, float] = field(default_factory=dict)
    """The slowdowns on the fluid model, where another judged."""
    unjudged: str | None = None
    """The reason why the judge that was asked for did not."""

    @classmethod
    def from_choice(
        cls,
        jobs: Iterable[str],
        plan: str,
        choice: Choice[Labelled] | None,
    ) -> Self:
        """Return the plan of these jobs, with what the search for it foresaw."""
        names = tuple(sorted(jobs))
        if choice is None:
            return cls(names, plan)
        best = choice.best
        slowdowns = best.to_least(best.slowdowns)
        by_model = best.to_least(best.by_model)
        return cls(names, plan, slowdowns, choice.judge, by_model, choice.unjudged)


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
    every_flow: bool = False,
) -> Results:
    """Return the document for runs by policy label.

    `alone_s` is what an iteration of each job takes at least; it is computed if not given.
    `every_flow` lists all flows and compute units, however many there are.

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
        steady = _Steady(run, alone_s)
        listed = listed_iterations(scenario, run, every_flow)
        jobs = {}
        for job in scenario.jobs:
            together = scenario.together.get(job.name, 1)
            document = _job_document(job, label, run, alone_s[job.name], listed, together)
            document["steady"] = _interval_document(steady.interval(job.name))
            jobs[job.name] = document
        interval = steady.interval(*jobs)
        sources = {}
        for name, summary in traffic[label].items():
            fields = {**asdict(summary), "from_s": 0.0, "to_s": end_s}
            sources[name] = _rounded_fields(fields)
        whole_run = _interval_document(interval)
        whole_run["ended"] = _end(scenario, run, interval)
        results[label] = {
            "jobs": jobs,
            "steady": whole_run,
            "switches": {name: asdict(stats) for name, stats in run.switches.items()},
            "plans": [_plan_document(plan) for plan in run.plans],
            "traffic": sources,
        }
    return {"scenario": scenario.name, "target": target, "results": results}


class _Steady:
    """The part of a run in which every job iterates."""

    def __init__(self, run: PolicyRun, alone_s: Mapping[str, Fraction]) -> None:
        self._spans = {job: spans_s(record) for job, record in run.records.items()}
        self._alone_s = {job: float(job_alone_s) for job, job_alone_s in alone_s.items()}
        self._end_s = _iterating_until_s(self._spans.values())

    def interval(self, *jobs: str) -> MeanInterval | None:
        """Return the mean slowdown over jobs; None without jobs, or if one has not begun by then."""
        spans_by_job = {}
        for job in jobs:
            spans: list[tuple[float, float | None]] = []
            for start_s, finish_s in self._spans[job]:
                if start_s >= self._end_s:
                    break
                if finish_s is not None and finish_s > self._end_s:
                    finish_s = None
                spans.append((start_s, finish_s))
            if not spans:
                return None
            spans_by_job[job] = spans
        if not spans_by_job:
            return None
        return mean_slowdown_interval(spans_by_job, self._end_s, self._alone_s)


def _iterating_until_s(loops: Iterable[Spans]) -> float:
    """Return until when every job iterates."""
    ends_s = []
    stops_s = []
    for spans in loops:
        finishes_s = [finish_s for _, finish_s in spans if finish_s is not None]
        if not finishes_s:
            continue
        end_s = finishes_s[-1]
        ends_s.append(end_s)
        _, last_s = spans[-1]
        if last_s is not None:
            stops_s.append(end_s)
    # A job whose last iteration has finished may have left the network to the others.
    if stops_s:
        return min(stops_s)
    return max(ends_s, default=0.0)


def _interval_document(interval: MeanInterval | None) -> dict[str, object]:
    if interval is None:
        return {"mean_slowdown": None, "half_width": None}
    half_width = None
    if interval.half_width is not None:
        half_width = rounded(interval.half_width)
    return {"mean_slowdown": rounded(interval.mean), "half_width": half_width}


def _end(
    scenario: Scenario,
    run: PolicyRun,
    interval: MeanInterval | None,
) -> str:
    """Return what ended a run."""
    if scenario.precise_from is None:
        return "iterations"
    finished = min(len(record.finished) for record in run.records.values())
    if finished < scenario.iterations:
        return "precise"
    if interval is not None and interval.is_precise:
        return "precise"
    return "budget"


@dataclass(frozen=True, slots=True)
class Listed:
    """The numbers of iterations, the first ones, whose flows and compute units are listed."""

    flows: int
    computes: int


def listed_iterations(
    scenario: Scenario,
    run: PolicyRun,
    every_flow: bool,
) -> Listed:
    """Return of how many iterations of each job `run` is listed."""
    iterations = {name: len(record.finished) for name, record in run.records.items()}
    longest = max(iterations.values(), default=0)
    if every_flow:
        return Listed(longest, longest)
    jobs = scenario.jobs
    counts = [iterations.get(job.name, 0) for job in jobs]
    flows = _within([len(job.flows) for job in jobs], counts, longest)
    computes = _within([len(job.computes) for job in jobs], counts, longest)
    return Listed(flows, computes)


def _within(
    rows: Sequence[int],
    counts: Sequence[int],
    longest: int,
) -> int:
    """Return the most iterations of each job that have together at most `MOST_ROWS`.

    An iteration of each job has so many `rows`, and the job did so many iterations (`counts`).
    """
    listed = 0
    for number in range(longest):
        for job_rows, count in zip(rows, counts, strict=True):
            if number < count:
                listed += job_rows
        if listed > MOST_ROWS:
            return number
    return longest


def _plan_document(plan: ChosenPlan) -> dict[str, object]:
    return {
        "jobs": list(plan.jobs),
        "plan": plan.plan,
        "slowdowns": _rounded_fields(plan.slowdowns),
        "judge": plan.judge,
        "by_model": _rounded_fields(plan.by_model),
        "unjudged": plan.unjudged,
    }


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

    This holds under any policy and on any paths (`echelon.planning.fluid.least`). Where several
    iterations of a job are simulated as one, it is the time of all of them. Raises `PlanError`.
    """
    from echelon.planning.fluid.least import least_iterations_s

    packet_bytes = scenario.transport.packet_bytes
    # Several parts of a command ask for the same jobs, and two jobs of 45,000 flows take 2 s.
    # Objects are compared as such: their graphs would take as long.
    jobs = scenario.jobs
    for last in _last_alone:
        has_jobs = len(last.jobs) == len(jobs) and all(map(is_, last.jobs, jobs))
        if has_jobs and last.fabric is scenario.fabric and last.packet_bytes == packet_bytes:
            return dict(last.alone_s)
    alone_s = least_iterations_s(jobs, scenario.fabric, packet_bytes)
    _last_alone[:] = [_Alone(jobs, scenario.fabric, packet_bytes, alone_s)]
    return dict(alone_s)


class _Alone(NamedTuple):
    """The least times of iterations, and what they are of."""

    jobs: Sequence[Job]
    fabric: Fabric
    packet_bytes: int
    alone_s: Mapping[str, Fraction]


_last_alone: list[_Alone] = []
"""The result that was asked for last, if there was one."""


def to_text(results: Results) -> str:
    """Return the document as it is written to results.json.

    Policies and jobs are in order, so that the text is the same each time.
    """
    rows: list[Sequence[object]] = []

    def with_places(job: Mapping[str, Any]) -> dict[str, Any]:
        document = dict(job)
        for key in _ROWS:
            if document.get(key):
                rows.append(document[key])
                document[key] = f"{_PLACE}{len(rows) - 1}"
        return document

    def listed(place: re.Match[str]) -> str:
        number = int(place[1])
        lines = _row_lines(rows[number])
        return "[\n          " + lines + "\n        ]"

    places = _of_each_job(results, with_places)
    text = json.dumps(places, indent=2, allow_nan=False)
    return _PLACES.sub(listed, text) + "\n"


_ROWS = ("flows", "computes")
_LISTED = "listed_iterations"
# json writes indented text some ten times as slowly as a row in one line, so that rows are written
# by themselves. No name holds the character 0, which marks their places.
_PLACE = "\0"
_PLACES = re.compile(r'"\\u0000([0-9]+)"')
_ROW = json.JSONEncoder(allow_nan=False)


def _row_lines(rows: Sequence[object]) -> str:
    """Return the rows as they are written, each in a line."""
    # All at once, which takes a third of the time; rows hold no other objects.
    text = _ROW.encode(rows)[1:-1]
    if text.count(_BETWEEN) == len(rows) - 1:
        return text.replace(_BETWEEN, "},\n          {")
    # The text of a name looks like the end of a row.
    return ",\n          ".join(map(_ROW.encode, rows))


_BETWEEN = "}, {"


def summary(results: Results) -> Results:
    """Return the document without single flows and compute units."""
    return _of_each_job(results, _without_spans)


def _of_each_job(
    results: Results,
    document: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Results:
    """Return the results with another document of each job."""
    policies = {}
    for label, policy in results["results"].items():
        jobs = {job: document(measured) for job, measured in policy["jobs"].items()}
        policies[label] = {**policy, "jobs": jobs}
    return {**results, "results": policies}


def _without_spans(job: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in job.items() if key not in (*_ROWS, _LISTED)}


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
    listed: Listed,
    together: int,
) -> dict[str, object]:
    """Return the document of a job of which so many iterations together are simulated as one."""
    finished = run.records[job.name].finished
    if not finished:
        raise RunError(f"policy {label}: job {job.name} has finished no iteration")
    times_s = []
    for iteration in finished:
        if iteration.finish is not None:
            times_s.append((iteration.finish - iteration.start) / together)
    mean_s = sum(times_s) / len(times_s)
    least_s = alone_s / together

    observed = run.observed.get(job.name)
    if observed is None:
        steps = _emulated_steps(job, finished, listed)
    else:
        steps = _observed_steps(observed, {iteration.iteration for iteration in finished})
    coarseness = {}
    if together > 1:
        coarseness["iterations_together"] = together
    return {
        "iteration_times_s": [rounded(time_s) for time_s in times_s],
        **coarseness,
        "alone_iteration_s": rounded(least_s),
        "mean_slowdown": rounded(mean_s / least_s),
        "compute_finish_s": _compute_finish_s(finished[0]),
        "reordered_packets": run.reordered.get(job.name, 0),
        **steps,
    }


def _emulated_steps(
    job: Job,
    finished: Sequence[IterationRecord[Number]],
    listed: Listed,
) -> dict[str, object]:
    echelonflows: dict[str, object] = {}
    for h in job.echelonflows:
        values_s = [rounded(tardiness_s(h, iteration)) for iteration in finished]
        echelonflows[h.name] = {"tardiness_s": values_s}
    flows = []
    for iteration in finished[: listed.flows]:
        flows += _flows(job, iteration)
    computes = []
    for iteration in finished[: listed.computes]:
        computes += _computes(job, iteration)
    document: dict[str, object] = {"echelonflows": echelonflows}
    document |= {"flows": flows, "computes": computes}
    if min(listed.flows, listed.computes) < len(finished):
        document[_LISTED] = asdict(listed)
    return document


def _observed_steps(observed: Observed, iterations: Collection[int]) -> dict[str, object]:
    flows = []
    for operation in observed.operations:
        if operation.iteration in iterations:
            row = _flow_row(operation, operation.iteration, None, operation, None)
            flows.append(row)
    computes = []
    for computing in observed.computing:
        if computing.iteration in iterations:
            row = _compute_row(computing, computing.iteration, "compute", None, computing)
            computes.append(row)
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
        offsets_s: Iterable[Number] = h.offsets_s
        if isinstance(reference, float):
            # A fraction would become a float each time, some three times as slowly.
            offsets_s = map(float, h.offsets_s)
        for name, offset_s in zip(h.flows, offsets_s, strict=True):
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


def network_document(
    scenario: Scenario,
    runs: Mapping[str, PolicyRun],
    every_flow: bool = False,
) -> dict[str, Any]:
    """Return the document, with the paths of flows where `assemble` lists flows.

    ```
    {"hosts": [HOST], "switches": [SWITCH], "links": [{"a", "b", "rate_bps"}],
     "paths": {POLICY: {JOB: {FLOW: [NODE, ...]}}}}       of runs whose paths are known
    ```
    """
    fabric = scenario.fabric
    links = []
    for cable in fabric.cables:
        links.append({"a": cable.a.node, "b": cable.b.node, "rate_bps": cable.rate_bps})
    paths = {}
    for policy, run in runs.items():
        if run.paths and listed_iterations(scenario, run, every_flow).flows:
            paths[policy] = run.paths
    return {
        "hosts": list(fabric.hosts),
        "switches": list(fabric.switches),
        "links": links,
        "paths": paths,
    }


def network_text(document: Mapping[str, Any]) -> str:
    """Return the document as it is written: the same text for the same runs."""
    return json.dumps(document, separators=(",", ":")) + "\n"
