"""What is told of facts: the metrics that they change, for Prometheus, and their lines in the log.

`METRICS` has a row for each metric: its name, what it is, and what it makes of which facts. The
table in docs/observability.md follows from it (`python -m docs.generate.metrics`). `LINES` has a
row for each kind of fact that the log tells. Times are in seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeVar, get_args

from echelon.controller.machine import facts
from echelon.controller.machine.lines import JobState
from echelon.controller.service import logs
from echelon.switches.southbound.lifecycle import State

F = TypeVar("F")

Labels = str | tuple[str, ...]
"""The value of the only label, or the values of all."""
Change = float | Mapping[Labels, float]
"""What a fact adds to a counter, sets a gauge to or is observed as: of the only series, or by its
labels.
"""

MAX_JOB_SERIES = 2000
"""The number of jobs with series of their own, which keeps a scrape below 1 MB.
echelon_jobs_without_series counts the others."""

_NAMED = 10
"""The most jobs that a line names."""
_JOB = "training_job"
"""The label that names a job. `job` itself is Prometheus' word for a group of scraped processes."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ROLES = frozenset({"read-only", "agent", "operator"})

log = logs.get(__name__)


# -- metrics ---------------------------------------------------------------------------------------


Changes = Mapping[type, Callable[[Any], Change]]
"""What a metric makes of facts, by their type."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Its name is that in Prometheus without `echelon_`, and without the `_total` of a counter.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: Mapping[str, tuple[str, ...]]
    """The labels, each with its values where these are known. Then all series are there from the
    beginning, or from that of a switch, so that a rate over them sees the first event."""
    changes: Changes
    buckets: tuple[float, ...] = ()
    short: str = ""
    """What the page says, where the help is too long for a line of it."""

    def series(self, switch: str | None = None) -> Iterable[tuple[str, ...]]:
        """Return the labels of the series that are there before any fact: those of `switch`, or,
        for None, those without a switch."""
        values = [
            (switch,) if label == "switch" and switch else known
            for label, known in self.labels.items()
        ]
        if self.labels and (switch is None or "switch" in self.labels):
            return product(*values)
        return ()


def _of(fact: type[F], change: Callable[[F], Change]) -> Changes:
    return {fact: change}


def _states(switch: str, state: State) -> Change:
    return {(switch, one): float(one == state) for one in get_args(State)}


def _request(fact: facts.RequestAnswered) -> tuple[str, str]:
    """Return the labels for method and route.

    Callers choose both, so that what is not known becomes one label.
    """
    return fact.method if fact.method in _METHODS else "other", fact.route or "none"


_ONE: Mapping[str, tuple[str, ...]] = {}
_JOBS: Mapping[str, tuple[str, ...]] = {_JOB: ()}
_SWITCHES: Mapping[str, tuple[str, ...]] = {"switch": ()}

_PLAN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SEARCH_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_WRITE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_REQUEST_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""The bounds of the buckets of request times, up to the longest wait of a long poll."""

METRICS = (
    Metric("gauge", "build_info", "Always 1; the version as a label", {"version": ()}, {}),
    Metric(
        "histogram",
        "plan_seconds",
        "Time to make a plan, by phase",
        {"phase": ("policy", "lowering")},
        _of(facts.PlanAdopted, lambda fact: {"policy": fact.policy_s, "lowering": fact.lowering_s}),
        _PLAN_S,
    ),
    Metric(
        "counter",
        "plans",
        "Plans made, and attempts that failed",
        {"result": ("made", "failed")},
        {
            **_of(facts.PlanAdopted, lambda _: {"made": 1}),
            **_of(facts.PlanRefused, lambda _: {"failed": 1}),
        },
    ),
    Metric(
        "gauge",
        "plan_failing",
        "1 while the newest change has no plan and the last good plan is in force",
        _ONE,
        {
            # Jobs may have been left out of a plan.
            **_of(facts.PlanAdopted, lambda fact: bool(fact.problems)),
            **_of(facts.PlanRefused, lambda _: 1),
        },
    ),
    Metric(
        "gauge",
        "plan_number",
        "Number of the plan in force",
        _ONE,
        _of(facts.PlanAdopted, lambda fact: fact.version),
    ),
    Metric(
        "gauge",
        "plan_flows",
        "Flows of the plan in force",
        _ONE,
        _of(facts.PlanAdopted, lambda fact: fact.flows),
    ),
    Metric(
        "histogram",
        "change_seconds",
        "Time from a change's acceptance to the last switch's acknowledgement",
        _ONE,
        _of(facts.JobInstalled, lambda fact: fact.total_s),
        _PLAN_S,
    ),
    Metric(
        "counter",
        "searches",
        "Searches for a better plan of a group of jobs",
        {"result": ("changed", "kept", "outdated", "failed")},
        {
            **_of(
                facts.PlanChosen,
                lambda fact: {"kept" if fact.plan == fact.before else "changed": 1},
            ),
            **_of(facts.SearchEnded, lambda _: {"outdated": 1}),
            **_of(facts.NoPlanChosen, lambda _: {"failed": 1}),
        },
    ),
    Metric(
        "histogram",
        "search_seconds",
        "Time of a search that has a result",
        _ONE,
        _of(facts.PlanChosen, lambda fact: fact.took_s),
        _SEARCH_S,
    ),
    Metric(
        "gauge",
        "search_gain",
        "Part by which the last plan that was chosen is predicted to be better",
        _ONE,
        _of(facts.PlanChosen, lambda fact: fact.gain),
    ),
    Metric(
        "gauge",
        "jobs",
        "Jobs by state",
        {"state": get_args(JobState)},
        _of(
            facts.JobsCounted,
            lambda fact: {one: fact.by_state.get(one, 0) for one in get_args(JobState)},
        ),
    ),
    Metric(
        "gauge",
        "job_iteration_seconds",
        "Latest iteration time of a job, as a switch saw it",
        _JOBS,
        _of(facts.IterationTimed, lambda fact: {fact.job: fact.duration_s}),
    ),
    Metric(
        "gauge",
        "job_tardiness_seconds",
        "Largest tardiness of a job's EchelonFlows in the latest whole iteration",
        _JOBS,
        _of(facts.TardinessSeen, lambda fact: {fact.job: fact.tardiness_s}),
        short="Largest tardiness in the latest whole iteration",
    ),
    Metric(
        "counter",
        "job_iterations",
        "Timed iterations of a job",
        _JOBS,
        _of(facts.IterationTimed, lambda fact: {fact.job: 1}),
    ),
    Metric(
        "gauge",
        "job_prediction_error",
        "Measured over predicted time of a job's iterations, less 1",
        _JOBS,
        _of(
            facts.PredictionJudged, lambda fact: {fact.job: fact.measured_s / fact.predicted_s - 1}
        ),
    ),
    Metric(
        "gauge",
        "job_sent_again_bytes",
        "Bytes that a job's hosts sent again in their latest iterations, by agents",
        _JOBS,
        _of(
            facts.IterationsMeasured,
            lambda fact: {fact.job: sum(one.retransmitted_bytes for one in fact.latest.values())},
        ),
        short="Bytes that hosts sent again in the latest iteration",
    ),
    Metric(
        "gauge",
        "job_stalled_seconds",
        "Longest time of a host's latest iteration with too small send buffers",
        _JOBS,
        _of(
            facts.IterationsMeasured,
            lambda fact: {
                fact.job: max((float(one.stalled_s) for one in fact.latest.values()), default=0.0)
            },
        ),
        short="Longest time of a host with too small send buffers",
    ),
    Metric(
        "gauge",
        "job_last_seen_timestamp_seconds",
        "When a switch last reported a flow of a job",
        _JOBS,
        _of(facts.JobSeen, lambda fact: {fact.job: time.time()}),
    ),
    Metric(
        "gauge",
        "jobs_without_series",
        "Jobs beyond the number that has series of its own",
        _ONE,
        {},
    ),
    Metric(
        "counter",
        "distance_corrections",
        "Arrangement functions replaced by observed distances",
        _ONE,
        _of(facts.DistancesCorrected, lambda _: 1),
    ),
    Metric(
        "counter",
        "size_corrections",
        "Changes of the sizes of a job's flows by what its hosts measured",
        _ONE,
        _of(facts.SizesCorrected, lambda _: 1),
    ),
    Metric(
        "counter",
        "connections_reported",
        "Connections that agents reported",
        {"change": ("opened", "closed")},
        _of(facts.ConnectionsReported, lambda fact: {"opened": fact.opened, "closed": fact.closed}),
    ),
    Metric(
        "gauge",
        "switch_state",
        "1 for the state that a switch is in",
        {**_SWITCHES, "state": get_args(State)},
        {
            **_of(facts.SwitchAdded, lambda fact: _states(fact.switch, "connecting")),
            **_of(facts.SwitchInState, lambda fact: _states(fact.switch, fact.state)),
        },
    ),
    Metric(
        "gauge",
        "switch_links_down",
        "Links that are down because of a switch or its ports",
        _SWITCHES,
        _of(facts.LinksDown, lambda fact: {fact.switch: fact.links}),
    ),
    Metric(
        "histogram",
        "link_move_seconds",
        "Time of a move of links, by phase",
        {"phase": ("routing", "draining", "moving", "installing")},
        _of(facts.LinksMoved, lambda fact: dict(fact.seconds.items())),
        _PLAN_S,
    ),
    Metric(
        "counter",
        "switch_sessions",
        "P4Runtime sessions opened",
        _SWITCHES,
        _of(facts.SwitchSessionOpened, lambda fact: {fact.switch: 1}),
    ),
    Metric(
        "counter",
        "switch_takeovers",
        "Times that another controller took the switch",
        _SWITCHES,
        _of(facts.TermContested, lambda fact: {fact.switch: 1}),
    ),
    Metric(
        "histogram",
        "switch_write_seconds",
        "Time to encode and write a change, until its last acknowledgement",
        _SWITCHES,
        _of(facts.IntentWritten, lambda fact: {fact.switch: fact.duration_s}),
        _WRITE_S,
        short="Time to encode and write a change until acknowledged",
    ),
    Metric(
        "counter",
        "entries_written",
        "Table entries written, by operation",
        {**_SWITCHES, "operation": ("insert", "modify", "delete")},
        _of(
            facts.IntentWritten,
            lambda fact: {
                (fact.switch, "insert"): fact.inserted,
                (fact.switch, "modify"): fact.modified,
                (fact.switch, "delete"): fact.deleted,
            },
        ),
    ),
    Metric(
        "gauge",
        "entries",
        "The controller's entries on a switch",
        _SWITCHES,
        _of(facts.EntriesCounted, lambda fact: {fact.switch: fact.held}),
    ),
    Metric(
        "gauge",
        "entries_wanted",
        "Entries in the intent of a switch",
        _SWITCHES,
        _of(facts.EntriesCounted, lambda fact: {fact.switch: fact.wanted}),
    ),
    Metric(
        "gauge",
        "foreign_entries",
        "Entries of other controllers on a switch, left alone",
        _SWITCHES,
        _of(facts.EntriesCounted, lambda fact: {fact.switch: fact.foreign}),
    ),
    Metric(
        "gauge",
        "refused_entries",
        "Entries of the intent that a switch refuses",
        _SWITCHES,
        _of(facts.EntriesCounted, lambda fact: {fact.switch: fact.refused}),
    ),
    Metric(
        "counter",
        "drift_entries",
        "Entries that an audit found changed, and repaired",
        _SWITCHES,
        _of(facts.SwitchAudited, lambda fact: {fact.switch: fact.drift}),
    ),
    Metric(
        "counter",
        "digests",
        "Flow events received in digests",
        _SWITCHES,
        _of(facts.DigestsReceived, lambda fact: {fact.switch: fact.events}),
    ),
    Metric(
        "counter",
        "digests_unknown",
        "Flow events of unknown flows",
        _SWITCHES,
        _of(facts.DigestsReceived, lambda fact: {fact.switch: fact.unknown}),
    ),
    Metric(
        "counter",
        "api_requests",
        "Requests answered",
        {"method": (), "route": (), "status": (), "role": ()},
        _of(
            facts.RequestAnswered,
            lambda fact: {
                (*_request(fact), str(fact.status), fact.role if fact.role in _ROLES else "none"): 1
            },
        ),
    ),
    Metric(
        "histogram",
        "api_request_seconds",
        "Time to answer a request",
        {"method": (), "route": ()},
        _of(facts.RequestAnswered, lambda fact: {_request(fact): fact.duration_s}),
        _REQUEST_S,
    ),
    Metric(
        "histogram",
        "loop_lag_seconds",
        "How late the event loop comes back to what is due",
        _ONE,
        _of(facts.LoopLagged, lambda fact: fact.lag_s),
        _WRITE_S,
    ),
    Metric(
        "histogram",
        "store_commit_seconds",
        "Time until a change is durable",
        _ONE,
        _of(facts.ChangeCommitted, lambda fact: fact.duration_s),
        _COMMIT_S,
    ),
    Metric(
        "counter",
        "store_commit_failures",
        "Changes that the store failed to commit",
        _ONE,
        _of(facts.CommitFailed, lambda _: 1),
    ),
    Metric("gauge", "leader", "1 while this controller leads", _ONE, {}),
    Metric(
        "gauge",
        "leader_term",
        "Term (election id) of this controller's leadership; 0 for a standby",
        _ONE,
        {},
    ),
    Metric(
        "counter",
        "leader_changes",
        "Times that this controller became or ceased to be leader",
        _ONE,
        {},
    ),
)

_HOW = {"counter": "inc", "gauge": "set", "histogram": "observe"}
_OF_PLAN = ("plan_failing", "plan_number", "plan_flows")
"""The gauges of the plan, which a standby does not know."""


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
        self._jobs: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
        self._jobs_without: set[str] = set()
        self._leads: bool | None = None
        self._made: dict[str, Any] = {}
        self._by_fact: dict[type, list[tuple[Metric, Callable[[Any], Change]]]] = {}
        kinds: Mapping[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
        for metric in METRICS:
            more = {"registry": registry, **({"buckets": metric.buckets} if metric.buckets else {})}
            made = self._made[metric.name] = kinds[metric.kind](
                f"echelon_{metric.name}", metric.help, metric.labels, **more
            )
            for labels in metric.series():
                made.labels(*labels)
            for kind, change in metric.changes.items():
                self._by_fact.setdefault(kind, []).append((metric, change))
        self._made["build_info"].labels(version).set(1)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def render(self) -> tuple[bytes, str]:
        """Return the body and the content type of an answer to a scrape."""
        return self._render(), self._content_type

    def count(self, fact: facts.Fact | facts.ShellFact) -> None:
        """Count a fact."""
        match fact:
            case facts.JobLeft(job):
                self._drop_job(job)
            case facts.SwitchAdded(switch):
                for metric in METRICS:
                    for values in metric.series(switch):
                        self._made[metric.name].labels(*values)
        for metric, change_by in self._by_fact.get(type(fact), ()):
            made = self._made[metric.name]
            change = change_by(fact)
            for labels, value in change.items() if isinstance(change, Mapping) else [((), change)]:
                values = (labels,) if isinstance(labels, str) else labels
                if _JOB in metric.labels:
                    if (of_job := self._series_of(values[0])) is None:
                        continue
                    of_job.add((metric.name, values))
                series = made.labels(*values) if values else made
                getattr(series, _HOW[metric.kind])(value)

    def leadership(self, term: int | None) -> None:
        """Set the term of this leader; None: this controller is a standby, which knows of no
        switches and jobs.
        """
        leads = term is not None
        with self._lock:
            if self._leads is not None and leads != self._leads:
                self._made["leader_changes"].inc()
            self._leads = leads
            self._made["leader"].set(leads)
            self._made["leader_term"].set(term or 0)
        if not leads:
            self._forget()

    def _forget(self) -> None:
        for job in [*self._jobs, *self._jobs_without]:
            self._drop_job(job)
        self.count(facts.JobsCounted({}))
        for metric in METRICS:
            if metric.kind == "gauge" and "switch" in metric.labels:
                self._made[metric.name].clear()
        for name in _OF_PLAN:
            self._made[name].set(0)

    def _drop_job(self, job: str) -> None:
        """Remove the job's series. A later fact about the job makes new ones."""
        with self._lock:
            self._jobs_without.discard(job)
            self._count_without()
            series = self._jobs.pop(job, set())
        for name, labels in series:
            self._made[name].remove(*labels)

    def _series_of(self, job: str) -> set[tuple[str, tuple[str, ...]]] | None:
        """Return the series of a job, by metric and labels, to be added to; None: it may have
        none.
        """
        with self._lock:
            if job in self._jobs:
                return self._jobs[job]
            has = len(self._jobs) < MAX_JOB_SERIES
            if has:
                self._jobs[job] = set()
                self._jobs_without.discard(job)
            elif len(self._jobs_without) < MAX_JOB_SERIES:
                self._jobs_without.add(job)
            self._count_without()
            return self._jobs.get(job)

    def _count_without(self) -> None:
        self._made["jobs_without_series"].set(len(self._jobs_without))


# -- the log ---------------------------------------------------------------------------------------


Lines = Iterable[tuple[str, str, Mapping[str, object]]]
"""Lines in the log: the level, the event and the fields."""


def _say(fact: type[F], lines: Callable[[F], Lines]) -> Mapping[type, Callable[[Any], Lines]]:
    return {fact: lines}


def _info(event: str, **fields: object) -> Lines:
    return [("info", event, fields)]


def _warning(event: str, **fields: object) -> Lines:
    return [("warning", event, fields)]


def _error(event: str, **fields: object) -> Lines:
    return [("error", event, fields)]


def named(jobs: Sequence[str]) -> str:
    """Return the names of jobs on one line."""
    if len(jobs) > _NAMED:
        more = f" and {len(jobs) - _NAMED} more"
    else:
        more = ""
    return ", ".join(jobs[:_NAMED]) + more


def _factors(fact: facts.SizesCorrected) -> str:
    shown = ", ".join(
        f"{src} to {dst} x {float(one):.3f}" for (src, dst), one in sorted(fact.factors.items())
    )
    return shown or "none: the file is right"


def _adopted(fact: facts.PlanAdopted) -> Lines:
    yield from _info("planned", plan=fact.version, policy=fact.policy, jobs=fact.jobs,
                     policy_s=round(fact.policy_s, 6), lowering_s=round(fact.lowering_s, 6))  # fmt: skip
    for name, problem in (fact.problems or {}).items():
        yield from _warning(
            "job left out of the plan", job=name, plan=fact.version, problem=problem
        )


LINES: Mapping[type, Callable[[Any], Lines]] = {
    **_say(
        facts.JobAccepted,
        lambda fact: _info(
            "job registered" if fact.created else "job changed", job=fact.job, flows=fact.flows
        ),
    ),
    **_say(facts.JobRemoved, lambda fact: _info("job removed", job=fact.job)),
    **_say(
        facts.DistancesReported,
        lambda fact: _info("distances reported", job=fact.job, echelonflow=fact.echelonflow),
    ),
    **_say(
        facts.ConnectionsReported,
        lambda fact: _info(
            "connections reported",
            job=fact.job,
            host=fact.host,
            opened=fact.opened,
            closed=fact.closed,
        ),
    ),
    **_say(
        facts.DistancesCorrected,
        lambda fact: _info("distances corrected by observations", job=fact.job),
    ),
    **_say(
        facts.SizesCorrected,
        lambda fact: _info("sizes corrected by measurements", job=fact.job, factors=_factors(fact)),
    ),
    **_say(facts.PolicyChosen, lambda fact: _info("policy changed", policy=fact.policy)),
    **_say(
        facts.LinkChanged,
        lambda fact: _info(
            "link changed", link=fact.link, state="drained" if fact.drained else "up"
        ),
    ),
    **_say(facts.MoveFailed, lambda fact: _error("links are not moved yet", problem=fact.problem)),
    **_say(
        facts.LinksMoved,
        lambda fact: _info(
            "links moved",
            go=fact.going,
            come=fact.coming,
            **{f"{phase}_s": round(seconds, 6) for phase, seconds in fact.seconds.items()},
        ),
    ),
    **_say(
        facts.LinksDown,
        lambda fact: (_warning if fact.down else _info)(
            "links down" if fact.down else "links up",
            switch=fact.switch,
            port=fact.port,
            links=fact.links,
        ),
    ),
    **_say(facts.PlanAdopted, _adopted),
    **_say(
        facts.PlanRefused,
        lambda fact: _error(
            "no new plan, the last good one stays in force",
            policy=fact.policy,
            problem=fact.problem,
        ),
    ),
    **_say(
        facts.PlanChosen,
        lambda fact: _info(
            "plan kept" if fact.plan == fact.before else "plan chosen",
            jobs=named(fact.jobs),
            by=fact.plan,
            before=fact.before,
            tried=fact.tried,
            mean=round(fact.mean, 4),
            worst=round(fact.worst, 4),
            gain=round(fact.gain, 4),
            search_s=round(fact.took_s, 3),
        ),
    ),
    **_say(
        facts.SearchEnded,
        lambda fact: _info("search ended: jobs or links have changed", jobs=named(fact.jobs)),
    ),
    **_say(
        facts.NoPlanChosen,
        lambda fact: _warning(
            "no better plan was chosen", jobs=named(fact.jobs), problem=fact.problem
        ),
    ),
    **_say(
        facts.PredictionJudged,
        lambda fact: (
            _info(
                "prediction missed",
                job=fact.job,
                predicted_s=fact.predicted_s,
                measured_s=fact.measured_s,
            )
            if fact.again
            else ()
        ),
    ),
    **_say(
        facts.DecisionRefused,
        lambda fact: _error("no new plan, the last good one stays in force", problem=fact.problem),
    ),
    **_say(
        facts.OrderGivenUp,
        lambda fact: _warning(
            "switches are slow: flows take other paths in no order, and may lose packets",
            plan=fact.version,
            switches=named(fact.switches),
        ),
    ),
    **_say(
        facts.NumbersUnsaved,
        lambda fact: _error(
            "the store fails to commit a plan's numbers; nothing is written meanwhile",
            problem=fact.problem,
        ),
    ),
    **_say(
        facts.JobInstalled,
        lambda fact: _info(
            "job installed", job=fact.job, plan=fact.version, total_s=round(fact.total_s, 6)
        ),
    ),
    **_say(
        facts.CountersUnread,
        lambda fact: _warning(
            "decisions use the last count of bytes", switch=fact.switch, problem=fact.problem
        ),
    ),
    **_say(
        facts.TermContested,
        lambda fact: _warning(
            "a switch obeys a controller of a higher election id",
            switch=fact.switch,
            election_id=fact.election_id,
            takeovers=fact.takeovers,
            taken_back_in_s=fact.pause_s,
        ),
    ),
    **_say(
        facts.TermNotRaised,
        lambda fact: _error("cannot raise the term", switch=fact.switch, problem=fact.problem),
    ),
}


def tell_fact(fact: facts.Fact, metrics: Metrics) -> None:
    """Count and log a fact."""
    metrics.count(fact)
    if lines := LINES.get(type(fact)):
        for level, event, fields in lines(fact):
            getattr(log, level)(event, **fields)
