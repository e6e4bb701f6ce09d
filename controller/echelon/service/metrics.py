"""The service's metrics, for Prometheus. docs/observability.md lists every metric.

Times are in seconds. Methods may be called from any thread, cost microseconds and never wait. Prometheus' types stay in
here: callers count events, and `render` gives the text of GET /metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import get_args

from echelon.control.progress import JobState
from echelon.southbound.lifecycle import State

MAX_JOB_SERIES = 2000
"""The number of jobs with series of their own, which keeps a scrape below 1 MB. echelon_jobs_without_series counts the
others."""

_PLAN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SEARCH_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_WRITE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
"""Buckets of request durations, up to the longest wait of a long poll."""

_JOB = "training_job"
"""The label that names a job. `job` itself is Prometheus' word for a group of scraped processes."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_ROLES = frozenset({"read-only", "agent", "operator"})


class Metrics:
    """One registry of its own: several services in one process do not meet."""

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

        # A second series beside each counter, with the time at which it was made: nothing here asks for that.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._render: Callable[[], bytes] = lambda: generate_latest(registry)
        self._content_type: str = CONTENT_TYPE_PLAIN_0_0_4
        self._lock = threading.Lock()
        self._jobs: set[str] = set()
        self._jobs_without: set[str] = set()
        self._leads: bool | None = None

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"echelon_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"echelon_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"echelon_{name}", text, labels, registry=registry, buckets=buckets)

        gauge("build_info", "Always 1; the version as a label", "version").labels(version).set(1)

        self._plan_phase = histogram("plan_seconds", "Time to make a plan, by phase", _PLAN_BUCKETS, "phase")
        self._plans = counter("plans", "Plans made, and attempts that failed", "result")
        self._plan_failing = gauge(
            "plan_failing", "1 while the newest change has no plan and the last good plan is in force"
        )
        self._plan_number = gauge("plan_number", "Number of the plan in force")
        self._plan_flows = gauge("plan_flows", "Flows of the plan in force")
        self._change = histogram(
            "change_seconds", "Time from a change's acceptance to the last switch's acknowledgement", _PLAN_BUCKETS
        )
        self._searches = counter("searches", "Searches for a better plan of a group of jobs", "result")
        self._search = histogram("search_seconds", "Time of a search that has a result", _SEARCH_BUCKETS)
        self._gain = gauge("search_gain", "Part by which the last plan that was chosen is predicted to be better")
        for result in ("changed", "kept", "outdated", "failed"):
            self._searches.labels(result)
        for phase in ("policy", "lowering"):
            self._plan_phase.labels(phase)
        for result in ("made", "failed"):
            self._plans.labels(result)

        self._job_states = gauge("jobs", "Jobs by state", "state")
        for state in get_args(JobState):
            self._job_states.labels(state)
        self._iteration = gauge("job_iteration_seconds", "Latest iteration time of a job, as a switch saw it", _JOB)
        self._tardiness = gauge(
            "job_tardiness_seconds", "Largest tardiness of a job's EchelonFlows in the latest whole iteration", _JOB
        )
        self._iterations = counter("job_iterations", "Timed iterations of a job", _JOB)
        self._missed = gauge("job_prediction_error", "Measured over predicted time of a job's iterations, less 1", _JOB)
        self._job_seen = gauge("job_last_seen_timestamp_seconds", "When a switch last reported a flow of a job", _JOB)
        self._of_jobs = (self._iteration, self._tardiness, self._iterations, self._missed, self._job_seen)
        self._without_series = gauge("jobs_without_series", "Jobs beyond the number that has series of its own")
        self._corrections = counter("distance_corrections", "Arrangement functions replaced by observed distances")
        self._sizes = counter("size_corrections", "Changes of the sizes of a job's flows by what its hosts measured")
        self._reported = counter("connections_reported", "Connections that agents reported", "change")
        for change in ("opened", "closed"):
            self._reported.labels(change)

        self._switch_state = gauge("switch_state", "1 for the state that a switch is in", "switch", "state")
        self._sessions = counter("switch_sessions", "P4Runtime sessions opened", "switch")
        self._takeovers = counter("switch_takeovers", "Times that another controller took the switch", "switch")
        self._writes = histogram(
            "switch_write_seconds",
            "Time to encode and write a change, until its last acknowledgement",
            _WRITE_BUCKETS,
            "switch",
        )
        self._written = counter("entries_written", "Table entries written, by operation", "switch", "operation")
        self._held = gauge("entries", "The controller's entries on a switch", "switch")
        self._wanted = gauge("entries_wanted", "Entries in the intent of a switch", "switch")
        self._foreign = gauge("foreign_entries", "Entries of other controllers on a switch, left alone", "switch")
        self._refused = gauge("refused_entries", "Entries of the intent that a switch refuses", "switch")
        self._drift = counter("drift_entries", "Entries that an audit found changed, and repaired", "switch")
        self._digests = counter("digests", "Flow events received in digests", "switch")
        self._unknown = counter("digests_unknown", "Flow events of unknown flows", "switch")
        self._of_switches = (
            self._sessions,
            self._takeovers,
            self._writes,
            self._held,
            self._wanted,
            self._foreign,
            self._refused,
            self._drift,
            self._digests,
            self._unknown,
        )

        self._requests = counter("api_requests", "Requests answered", "method", "route", "status", "role")
        self._request_time = histogram(
            "api_request_seconds", "Time to answer a request", _REQUEST_BUCKETS, "method", "route"
        )
        self._commits = histogram("store_commit_seconds", "Time until a change is durable", _COMMIT_BUCKETS)
        self._commit_failures = counter("store_commit_failures", "Changes that the store failed to commit")

        self._leader = gauge("leader", "1 while this controller leads")
        self._term = gauge("leader_term", "Term (election id) of this controller's leadership; 0 for a standby")
        self._leader_changes = counter("leader_changes", "Times that this controller became or ceased to be leader")

        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)

    def render(self) -> tuple[bytes, str]:
        """Return the body and the content type of an answer to a scrape."""
        return self._render(), self._content_type

    # --- planning --------------------------------------------------------------------------------------------------

    def planned(self, number: int, flows: int, policy_s: float, lowering_s: float) -> None:
        """Note that a plan is in force."""
        self._plan_phase.labels("policy").observe(policy_s)
        self._plan_phase.labels("lowering").observe(lowering_s)
        self._plans.labels("made").inc()
        self._plan_failing.set(0)
        self._plan_number.set(number)
        self._plan_flows.set(flows)

    def plan_failed(self) -> None:
        """Note that there is no new plan, until `planned` or `plan_complete(True)`: the last good one holds."""
        self._plans.labels("failed").inc()
        self._plan_failing.set(1)

    def plan_complete(self, complete: bool) -> None:
        """Note whether the plan in force has everything that was accepted; jobs may have been left out."""
        self._plan_failing.set(not complete)

    def changed(self, total_s: float) -> None:
        """Note that a change is on every switch that it concerns, `total_s` after it was accepted."""
        self._change.observe(total_s)

    def searched(self, result: str, took_s: float | None = None, gain: float = 0.0) -> None:
        """Note a search for a better plan; `took_s`: it has a result, which is better by the part `gain`."""
        self._searches.labels(result).inc()
        if took_s is not None:
            self._search.observe(took_s)
            self._gain.set(gain)

    def prediction(self, job: str, error: float) -> None:
        """Note by what part the iterations of a job take longer than was predicted."""
        if self._has_series(job):
            self._missed.labels(job).set(error)

    # --- jobs ------------------------------------------------------------------------------------------------------

    def jobs(self, by_state: Mapping[JobState, int]) -> None:
        """Set how many jobs are in each state; a state that is not named has none."""
        for state in get_args(JobState):
            self._job_states.labels(state).set(by_state.get(state, 0))

    def job_seen(self, job: str, at: float) -> None:
        """Note that a switch reported a flow of the job, `at` seconds since the epoch."""
        if self._has_series(job):
            self._job_seen.labels(job).set(at)

    def job_iteration(self, job: str, duration_s: float) -> None:
        """Note that one more iteration of the job was timed."""
        if self._has_series(job):
            self._iteration.labels(job).set(duration_s)
            self._iterations.labels(job).inc()

    def job_tardiness(self, job: str, tardiness_s: float) -> None:
        """Note the largest tardiness of the job in its latest iteration; negative: all of it was early."""
        if self._has_series(job):
            self._tardiness.labels(job).set(tardiness_s)

    def job_removed(self, job: str) -> None:
        """Remove the job's series. A later call about the job makes new ones."""
        with self._lock:
            self._jobs_without.discard(job)
            self._without_series.set(len(self._jobs_without))
            if job not in self._jobs:
                return
            self._jobs.remove(job)
        for metric in self._of_jobs:
            metric.remove(job)

    def distances_corrected(self) -> None:
        """Note that an arrangement function was replaced by what switches observed."""
        self._corrections.inc()

    def sizes_corrected(self) -> None:
        """Note that sizes of a job's flows were replaced by what its hosts measured."""
        self._sizes.inc()

    def connections_reported(self, opened: int, closed: int) -> None:
        """Note that an agent reported connections of a job that have opened and closed."""
        self._reported.labels("opened").inc(opened)
        self._reported.labels("closed").inc(closed)

    def _has_series(self, job: str) -> bool:
        with self._lock:
            if job in self._jobs:
                return True
            if len(self._jobs) < MAX_JOB_SERIES:
                self._jobs.add(job)
                self._jobs_without.discard(job)
                self._without_series.set(len(self._jobs_without))
                return True
            if len(self._jobs_without) < MAX_JOB_SERIES:
                self._jobs_without.add(job)
            self._without_series.set(len(self._jobs_without))
            return False

    # --- switches --------------------------------------------------------------------------------------------------

    def switch_added(self, switch: str, state: State = "connecting") -> None:
        """Add the switch's series, all zero, so that a rate over them sees the first event."""
        self.switch_state(switch, state)
        for operation in ("insert", "modify", "delete"):
            self._written.labels(switch, operation)
        for metric in self._of_switches:
            metric.labels(switch)

    def switch_state(self, switch: str, state: State) -> None:
        for one in get_args(State):
            self._switch_state.labels(switch, one).set(one == state)

    def session_opened(self, switch: str) -> None:
        self._sessions.labels(switch).inc()

    def contested(self, switch: str) -> None:
        self._takeovers.labels(switch).inc()

    def written(self, switch: str, inserted: int, modified: int, deleted: int, duration_s: float) -> None:
        """Note a write: entries by operation, and the time from encoding to the last acknowledgement."""
        self._writes.labels(switch).observe(duration_s)
        for operation, count in (("insert", inserted), ("modify", modified), ("delete", deleted)):
            self._written.labels(switch, operation).inc(count)

    def entries(self, switch: str, held: int, wanted: int, foreign: int, refused: int) -> None:
        """Set how many entries the switch holds of ours and of others, should hold, and refuses."""
        self._held.labels(switch).set(held)
        self._wanted.labels(switch).set(wanted)
        self._foreign.labels(switch).set(foreign)
        self._refused.labels(switch).set(refused)

    def audited(self, switch: str, drift: int) -> None:
        """Note an audit, in which `drift` entries differed from what had been written."""
        self._drift.labels(switch).inc(drift)

    def digests(self, switch: str, events: int, unknown: int) -> None:
        """Note flow events of the switch; `unknown` counts further reports, which name no flow of ours."""
        self._digests.labels(switch).inc(events)
        self._unknown.labels(switch).inc(unknown)

    # --- API, store, leadership ------------------------------------------------------------------------------------

    def request(self, method: str, route: str | None, status: int, role: str | None, duration_s: float) -> None:
        """Note an answered request.

        `route` is the template (/jobs/{name}), never the address that was asked for; None: there is no such route.
        `role` is that of the token; None: there was no valid one.
        """
        method = method if method in _METHODS else "other"
        route = route or "none"
        self._requests.labels(method, route, str(status), role if role in _ROLES else "none").inc()
        self._request_time.labels(method, route).observe(duration_s)

    def committed(self, duration_s: float) -> None:
        """Note that a change is durable, `duration_s` after the store was asked."""
        self._commits.observe(duration_s)

    def commit_failed(self) -> None:
        self._commit_failures.inc()

    def leadership(self, term: int | None) -> None:
        """Set the term of this leader; None: this controller is a standby, which knows of no switches and jobs."""
        leads = term is not None
        with self._lock:
            if self._leads is not None and leads != self._leads:
                self._leader_changes.inc()
            self._leads = leads
            self._leader.set(leads)
            self._term.set(term or 0)
        if not leads:
            self._forget()

    def _forget(self) -> None:
        for job in list(self._jobs | self._jobs_without):
            self.job_removed(job)
        self.jobs({})
        for metric in (self._switch_state, self._held, self._wanted, self._foreign, self._refused):
            metric.clear()
        for single in (self._plan_failing, self._plan_number, self._plan_flows):
            single.set(0)
