"""The metrics of the service, for Prometheus, and what facts do to them.

Each metric is a function below. Its decorator says what kind of metric it is, its name is that of
the metric, its parameter is the fact that changes it, and it returns the change. `METRICS` has all
of them in the order of a scrape; the table in docs/observability.md follows from it
(`python -m docs.generate.metrics`). Times are in seconds.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, get_args, get_type_hints

from echelon.controller.changes.report_connections import ConnectionsReported
from echelon.controller.machine import facts
from echelon.controller.states import JobState
from echelon.switches.southbound.lifecycle import State

LabelValues = str | tuple[str, ...]
"""The value of the only label, or the values of all."""
Change = float | Mapping[LabelValues, float]
"""The number that a fact adds, sets or observes: of the only series, or by its labels."""
Labels = Mapping[str, tuple[str, ...]]
"""The labels of a metric, each with its values where these are known.

Then all series are there from the beginning, or from that of a switch, so that a rate over them
sees the first event.
"""
Kind = Literal["counter", "gauge", "histogram"]
FactChange = Callable[[Any], Change]
"""A function from a fact to the change of a metric."""

MAX_JOB_SERIES = 2000
"""The number of jobs with series of their own, which keeps a scrape below 1 MB.

echelon_jobs_without_series counts the others.
"""

JOB = "training_job"
"""The label that names a job. `job` itself is Prometheus' word for a group of scraped processes."""
NO_LABELS: Labels = {}
BY_JOB: Labels = {JOB: ()}
BY_SWITCH: Labels = {"switch": ()}

WRITE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""The bounds of the buckets of times from a millisecond on."""
PLAN_S = (*WRITE_S, 30)
REQUEST_S = (*WRITE_S, 60)
"""The bounds of the buckets of request times, up to the longest wait of a long poll."""
COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
SEARCH_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ROLES = frozenset({"read-only", "agent", "operator"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Its name is that in Prometheus without `echelon_`, and without the `_total` of a counter.
    """

    kind: Kind
    name: str
    help: str
    labels: Labels = field(default_factory=dict)
    facts: tuple[type, ...] = ()
    """The types of the facts that change it; none: `Metrics` itself sets it."""
    change: FactChange | None = None
    """The function from such a fact to the change."""
    buckets: tuple[float, ...] = ()
    short: str = ""
    """The text of the page, where the help is too long for a line of it."""

    def series(self, switch: str | None = None) -> Iterable[tuple[str, ...]]:
        """Return the labels of the series that are there before any fact.

        They are those of `switch`, or, for None, those without a switch.
        """
        if not self.labels:
            return ()
        if switch is None:
            return product(*self.labels.values())
        if "switch" not in self.labels:
            return ()
        labels = {**self.labels, "switch": (switch,)}
        return product(*labels.values())


METRICS: list[Metric] = []
"""All metrics."""


Declare = Callable[[FactChange], FactChange]
"""A decorator of the function of a metric."""


def counter(help_text: str, labels: Labels = NO_LABELS) -> Declare:
    """Declare a counter; the function below returns what a fact adds to it."""
    return _declare("counter", help_text, labels)


def gauge(
    help_text: str,
    labels: Labels = NO_LABELS,
    short: str = "",
) -> Declare:
    """Declare a gauge; the function below returns what a fact sets it to."""
    return _declare("gauge", help_text, labels, short=short)


def histogram(
    help_text: str,
    buckets: tuple[float, ...],
    labels: Labels = NO_LABELS,
    short: str = "",
) -> Declare:
    """Declare a histogram; the function below returns what a fact is observed as."""
    return _declare("histogram", help_text, labels, buckets, short)


def _declare(
    kind: Kind,
    help_text: str,
    labels: Labels,
    buckets: tuple[float, ...] = (),
    short: str = "",
) -> Declare:
    def declare(change: FactChange) -> FactChange:
        # The facts are read from the annotation, as functools.singledispatch does.
        fact = get_type_hints(change)["fact"]
        fact_types = get_args(fact) or (fact,)
        metric = Metric(
            kind, change.__name__, help_text, labels, fact_types, change, buckets, short
        )
        METRICS.append(metric)
        return change

    return declare


# -- plans -----------------------------------------------------------------------------------------

METRICS.append(
    Metric("gauge", "build_info", "Always 1; the version as a label", {"version": ()}),
)


@histogram("Time to make a plan, by phase", PLAN_S, {"phase": ("policy", "lowering")})
def plan_seconds(fact: facts.PlanAdopted) -> Change:
    return {"policy": fact.policy_s, "lowering": fact.lowering_s}


@counter("Plans made, and attempts that failed", {"result": ("made", "failed")})
def plans(fact: facts.PlanAdopted | facts.PlanRefused) -> Change:
    if isinstance(fact, facts.PlanAdopted):
        return {"made": 1}
    return {"failed": 1}


@gauge("1 while the newest change has no plan and the last good plan is in force")
def plan_failing(fact: facts.PlanAdopted | facts.PlanRefused) -> Change:
    if isinstance(fact, facts.PlanAdopted):
        # Jobs may have been left out of a plan.
        return bool(fact.problems)
    return 1


@gauge("Number of the plan in force")
def plan_number(fact: facts.PlanAdopted) -> Change:
    return fact.version


@gauge("Flows of the plan in force")
def plan_flows(fact: facts.PlanAdopted) -> Change:
    return fact.flows


@histogram("Time from a change's acceptance to the last switch's acknowledgement", PLAN_S)
def change_seconds(fact: facts.JobInstalled) -> Change:
    return fact.total_s


@counter(
    "Searches for a better plan of a group of jobs",
    {"result": ("changed", "kept", "outdated", "failed")},
)
def searches(fact: facts.PlanChosen | facts.SearchEnded | facts.NoPlanChosen) -> Change:
    if isinstance(fact, facts.SearchEnded):
        return {"outdated": 1}
    if isinstance(fact, facts.NoPlanChosen):
        return {"failed": 1}
    if fact.plan == fact.before:
        return {"kept": 1}
    return {"changed": 1}


@histogram("Time of a search that has a result", SEARCH_S)
def search_seconds(fact: facts.PlanChosen) -> Change:
    return fact.took_s


@gauge("Part by which the last plan that was chosen is predicted to be better")
def search_gain(fact: facts.PlanChosen) -> Change:
    return fact.gain


# -- jobs ------------------------------------------------------------------------------------------


@gauge("Jobs by state", {"state": get_args(JobState)})
def jobs(fact: facts.JobsCounted) -> Change:
    return {state: fact.by_state.get(state, 0) for state in get_args(JobState)}


@gauge("Latest iteration time of a job, as a switch saw it", BY_JOB)
def job_iteration_seconds(fact: facts.IterationTimed) -> Change:
    return {fact.job: fact.duration_s}


@gauge(
    "Largest tardiness of a job's EchelonFlows in the latest whole iteration",
    BY_JOB,
    short="Largest tardiness in the latest whole iteration",
)
def job_tardiness_seconds(fact: facts.TardinessSeen) -> Change:
    return {fact.job: fact.tardiness_s}


@counter("Timed iterations of a job", BY_JOB)
def job_iterations(fact: facts.IterationTimed) -> Change:
    return {fact.job: 1}


@gauge("Measured over predicted time of a job's iterations, less 1", BY_JOB)
def job_prediction_error(fact: facts.PredictionJudged) -> Change:
    return {fact.job: fact.measured_s / fact.predicted_s - 1}


@gauge(
    "Bytes that a job's hosts sent again in their latest iterations, by agents",
    BY_JOB,
    short="Bytes that hosts sent again in the latest iteration",
)
def job_sent_again_bytes(fact: facts.IterationsMeasured) -> Change:
    iterations = fact.latest.values()
    return {fact.job: sum(iteration.retransmitted_bytes for iteration in iterations)}


@gauge(
    "Longest time of a host's latest iteration with too small send buffers",
    BY_JOB,
    short="Longest time of a host with too small send buffers",
)
def job_stalled_seconds(fact: facts.IterationsMeasured) -> Change:
    stalls_s = [float(iteration.stalled_s) for iteration in fact.latest.values()]
    return {fact.job: max(stalls_s, default=0.0)}


@gauge("When a switch last reported a flow of a job", BY_JOB)
def job_last_seen_timestamp_seconds(fact: facts.JobSeen) -> Change:
    return {fact.job: time.time()}


METRICS.append(
    Metric("gauge", "jobs_without_series", "Jobs beyond the number that has series of its own"),
)


@counter("Changes of the sizes of a job's flows by what its hosts measured")
def size_corrections(fact: facts.SizesCorrected) -> Change:
    return 1


@counter("Connections that agents reported", {"change": ("opened", "closed")})
def connections_reported(fact: ConnectionsReported) -> Change:
    return {"opened": fact.opened, "closed": fact.closed}


# -- switches --------------------------------------------------------------------------------------


@gauge("1 for the state that a switch is in", {**BY_SWITCH, "state": get_args(State)})
def switch_state(fact: facts.SwitchAdded | facts.SwitchInState) -> Change:
    if isinstance(fact, facts.SwitchAdded):
        current: State = "connecting"
    else:
        current = fact.state
    states = dict.fromkeys(get_args(State), 0)
    states[current] = 1
    return {(fact.switch, state): value for state, value in states.items()}


@gauge("Links that are down because of a switch or its ports", BY_SWITCH)
def switch_links_down(fact: facts.LinksDown) -> Change:
    return {fact.switch: fact.links}


@histogram(
    "Time of a move of links, by phase",
    PLAN_S,
    {"phase": ("routing", "draining", "moving", "installing")},
)
def link_move_seconds(fact: facts.LinksMoved) -> Change:
    return dict(fact.seconds.items())


@counter("P4Runtime sessions opened", BY_SWITCH)
def switch_sessions(fact: facts.SwitchSessionOpened) -> Change:
    return {fact.switch: 1}


@counter("Times that another controller took the switch", BY_SWITCH)
def switch_takeovers(fact: facts.TermContested) -> Change:
    return {fact.switch: 1}


@histogram(
    "Time to encode and write a change, until its last acknowledgement",
    WRITE_S,
    BY_SWITCH,
    short="Time to encode and write a change until acknowledged",
)
def switch_write_seconds(fact: facts.IntentWritten) -> Change:
    return {fact.switch: fact.duration_s}


@counter(
    "Table entries written, by operation",
    {**BY_SWITCH, "operation": ("insert", "modify", "delete")},
)
def entries_written(fact: facts.IntentWritten) -> Change:
    return {
        (fact.switch, "insert"): fact.inserted,
        (fact.switch, "modify"): fact.modified,
        (fact.switch, "delete"): fact.deleted,
    }


@gauge("The controller's entries on a switch", BY_SWITCH)
def entries(fact: facts.EntriesCounted) -> Change:
    return {fact.switch: fact.held}


@gauge("Entries in the intent of a switch", BY_SWITCH)
def entries_wanted(fact: facts.EntriesCounted) -> Change:
    return {fact.switch: fact.wanted}


@gauge("Entries of other controllers on a switch, left alone", BY_SWITCH)
def foreign_entries(fact: facts.EntriesCounted) -> Change:
    return {fact.switch: fact.foreign}


@gauge("Entries and settings of the intent that a switch refuses", BY_SWITCH)
def refused_entries(fact: facts.EntriesCounted) -> Change:
    return {fact.switch: fact.refused}


@counter("Entries that an audit found changed, and repaired", BY_SWITCH)
def drift_entries(fact: facts.SwitchRepaired) -> Change:
    return {fact.switch: fact.differences}


@counter("Audits that found changes by others, and repaired them", BY_SWITCH)
def switch_repairs(fact: facts.SwitchRepaired) -> Change:
    return {fact.switch: 1}


@counter("Flow events received in digests", BY_SWITCH)
def digests(fact: facts.DigestsReceived) -> Change:
    return {fact.switch: fact.events}


@counter("Flow events of unknown flows", BY_SWITCH)
def digests_unknown(fact: facts.DigestsReceived) -> Change:
    return {fact.switch: fact.unknown}


# -- the service -----------------------------------------------------------------------------------


@counter("Requests answered", {"method": (), "route": (), "status": (), "role": ()})
def api_requests(fact: facts.RequestAnswered) -> Change:
    method, route = _method_and_route(fact)
    role = fact.role if fact.role in _ROLES else "none"
    return {(method, route, str(fact.status), role): 1}


@histogram("Time to answer a request", REQUEST_S, {"method": (), "route": ()})
def api_request_seconds(fact: facts.RequestAnswered) -> Change:
    return {_method_and_route(fact): fact.duration_s}


def _method_and_route(fact: facts.RequestAnswered) -> tuple[str, str]:
    """Return the labels for method and route.

    Callers choose both, so that what is not known becomes one label.
    """
    method = fact.method if fact.method in _METHODS else "other"
    return method, fact.route or "none"


@histogram("How late the event loop comes back to what is due", WRITE_S)
def loop_lag_seconds(fact: facts.LoopLagged) -> Change:
    return fact.lag_s


@histogram("Time until a change is durable", COMMIT_S)
def store_commit_seconds(fact: facts.ChangeCommitted) -> Change:
    return fact.duration_s


@counter("Changes that the store failed to commit")
def store_commit_failures(fact: facts.CommitFailed) -> Change:
    return 1


METRICS += (
    Metric("gauge", "leader", "1 while this controller leads"),
    Metric(
        "gauge",
        "leader_term",
        "Term (election id) of this controller's leadership; 0 for a standby",
    ),
    Metric("counter", "leader_changes", "Times that this controller became or ceased to be leader"),
)


# -- the registry ----------------------------------------------------------------------------------

_UPDATES = {"counter": "inc", "gauge": "set", "histogram": "observe"}
"""The method of `prometheus_client` that a change calls."""
_PLAN_GAUGES = ("plan_failing", "plan_number", "plan_flows")
"""The gauges of the plan, which a standby does not know."""

JobSeries = set[tuple[str, tuple[str, ...]]]
"""The series of a job, by metric and labels."""


class Metrics:
    """The metrics of one service; several in one process do not meet.

    Methods may be called from any thread, cost microseconds and never wait.
    """

    def __init__(self, version: str) -> None:
        # Loaded here: commands that serve nothing do without.
        from prometheus_client import (
            CONTENT_TYPE_PLAIN_0_0_4,
            CollectorRegistry,
            Counter,
            Gauge,
            GCCollector,
            Histogram,
            PlatformCollector,
            ProcessCollector,
            disable_created_metrics,
            generate_latest,
        )

        # A second series beside each counter, with the time at which it was made: nothing here asks
        # for that.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._render: Callable[[], bytes] = lambda: generate_latest(registry)
        self._content_type: str = CONTENT_TYPE_PLAIN_0_0_4

        self._lock = threading.Lock()
        self._jobs: dict[str, JobSeries] = {}
        self._jobs_without: set[str] = set()
        self._leads: bool | None = None
        self._collectors: dict[str, Any] = {}
        self._by_fact: dict[type, list[Metric]] = defaultdict(list)

        kinds: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        for metric in METRICS:
            options: dict[str, Any] = {"registry": registry}
            if metric.buckets:
                options["buckets"] = metric.buckets
            make = kinds[metric.kind]
            collector = make(f"echelon_{metric.name}", metric.help, metric.labels, **options)
            for labels in metric.series():
                collector.labels(*labels)
            self._collectors[metric.name] = collector
            for fact_type in metric.facts:
                self._by_fact[fact_type].append(metric)

        self._collectors["build_info"].labels(version).set(1)
        for process_collector in (ProcessCollector, PlatformCollector, GCCollector):
            process_collector(registry=registry)

    def render(self) -> tuple[bytes, str]:
        """Return the body and the content type of an answer to a scrape."""
        return self._render(), self._content_type

    def count(self, fact: facts.Fact | facts.ShellFact) -> None:
        """Count a fact."""
        if isinstance(fact, facts.JobLeft):
            self._drop_job(fact.job)
        elif isinstance(fact, facts.SwitchAdded):
            self._begin_series(fact.switch)

        for metric in self._by_fact.get(type(fact), ()):
            assert metric.change is not None
            change = metric.change(fact)
            if not isinstance(change, Mapping):
                self._update(metric, (), change)
                continue
            for labels, value in change.items():
                values = (labels,) if isinstance(labels, str) else labels
                self._update(metric, values, value)

    def _begin_series(self, switch: str) -> None:
        for metric in METRICS:
            for labels in metric.series(switch):
                self._collectors[metric.name].labels(*labels)

    def _update(
        self,
        metric: Metric,
        labels: tuple[str, ...],
        value: float,
    ) -> None:
        if JOB in metric.labels:
            series = self._job_series(labels[0])
            if series is None:
                return
            series.add((metric.name, labels))

        collector = self._collectors[metric.name]
        if labels:
            collector = collector.labels(*labels)
        update = getattr(collector, _UPDATES[metric.kind])
        update(value)

    def leadership(self, term: int | None) -> None:
        """Set the term of this leader.

        None: this controller is a standby, which knows of no switches and jobs.
        """
        leads = term is not None
        with self._lock:
            if self._leads is not None and leads != self._leads:
                self._collectors["leader_changes"].inc()
            self._leads = leads
            self._collectors["leader"].set(leads)
            self._collectors["leader_term"].set(term or 0)
        if not leads:
            self._forget()

    def _forget(self) -> None:
        for job in [*self._jobs, *self._jobs_without]:
            self._drop_job(job)
        self.count(facts.JobsCounted({}))
        for metric in METRICS:
            if metric.kind == "gauge" and "switch" in metric.labels:
                self._collectors[metric.name].clear()
        for name in _PLAN_GAUGES:
            self._collectors[name].set(0)

    def _drop_job(self, job: str) -> None:
        """Remove the job's series. A later fact about the job makes new ones."""
        with self._lock:
            self._jobs_without.discard(job)
            self._count_without()
            series = self._jobs.pop(job, set())
        # Outside the lock: a collector has one of its own.
        for name, labels in series:
            self._collectors[name].remove(*labels)

    def _job_series(self, job: str) -> JobSeries | None:
        """Return the series of a job, to be added to; None: it may have none."""
        with self._lock:
            if job in self._jobs:
                return self._jobs[job]
            if len(self._jobs) < MAX_JOB_SERIES:
                self._jobs[job] = set()
                self._jobs_without.discard(job)
            elif len(self._jobs_without) < MAX_JOB_SERIES:
                # The names of those without are limited, too: they would fill the memory.
                self._jobs_without.add(job)
            self._count_without()
            return self._jobs.get(job)

    def _count_without(self) -> None:
        self._collectors["jobs_without_series"].set(len(self._jobs_without))
