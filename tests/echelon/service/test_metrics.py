"""The metrics of a scrape, read by Prometheus' own parser, against what happened."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from random import Random
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from echelon.controller.machine import facts
from echelon.controller.service import daemon
from echelon.controller.service import metrics as module
from echelon.controller.service.metrics import Metrics
from echelon.controller.states import JobState
from echelon.switches.southbound.lifecycle import State
from tests.drawing import examples
from tests.echelon.service.measured import TEXT, adopted, exercised, families, text


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of the series of that name with exactly these labels, or None."""
    for family in families(metrics).values():
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def test_the_text_of_a_scrape_is_the_committed_one() -> None:
    """Every fact that counts is told once. Dashboards and alerts go by names, labels and buckets.

    `python -m tests.echelon.service.measured` writes the file.
    """
    assert text() == TEXT.read_text()


def test_names_follow_the_conventions() -> None:
    """The names follow prometheus.io/docs/practices/naming: base units, counters in _total, text
    for people, no label in a name.
    """
    for name, family in families(exercised()).items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert family.documentation, name
        if not name.startswith("echelon_"):
            assert name.startswith(("process_", "python_")), name
            continue
        assert not re.search(r"_(ms|us|milliseconds|microseconds|kb|count|sum)$", name)
        assert family.type in ("counter", "gauge", "histogram")
        if family.type == "counter":
            assert {sample.name for sample in family.samples} == {f"{name}_total"}
        if family.type == "histogram":
            assert name.endswith("_seconds")
        assert not any(sample.name.endswith("_created") for sample in family.samples)
        assert not {"job", "instance"} & {
            label for sample in family.samples for label in sample.labels
        }


def test_the_process_is_measured() -> None:
    assert (value(Metrics("1"), "process_resident_memory_bytes") or 0) > 10 << 20
    assert (value(Metrics("1"), "process_open_fds") or 0) > 0


def test_services_in_one_process_do_not_meet() -> None:
    one, other = Metrics("1"), Metrics("2")
    one.count(adopted())
    assert value(one, "echelon_plans_total", result="made") == 1
    assert value(other, "echelon_plans_total", result="made") == 0


def test_histograms_hold_what_was_observed() -> None:
    rng = Random(7)
    times = [rng.lognormvariate(-5, 2) for _ in range(500)]
    metrics = Metrics("1")
    for one in times:
        metrics.count(facts.ChangeCommitted(one))
    samples = families(metrics)["echelon_store_commit_seconds"].samples
    for sample in samples:
        if sample.name.endswith("_bucket"):
            assert sample.value == sum(one <= float(sample.labels["le"]) for one in times)
    assert value(metrics, "echelon_store_commit_seconds_count") == len(times)


def test_a_switch_has_series_before_anything_happens_to_it() -> None:
    metrics = Metrics("1")
    metrics.count(facts.SwitchAdded("s9"))
    for name in ("switch_sessions", "drift_entries", "digests", "digests_unknown"):
        assert value(metrics, f"echelon_{name}_total", switch="s9") == 0
    assert value(metrics, "echelon_entries_written_total", switch="s9", operation="insert") == 0


@pytest.mark.parametrize("state", get_args(State))
def test_a_switch_is_in_one_state(state: State) -> None:
    metrics = Metrics("1")
    metrics.count(facts.SwitchAdded("s1"))
    metrics.count(facts.SwitchInState("s1", state))
    states = {
        one.labels["state"]: one.value for one in families(metrics)["echelon_switch_state"].samples
    }
    assert states == {one: float(one == state) for one in get_args(State)}


def test_plans_that_fail_and_come_back() -> None:
    metrics = Metrics("1")
    seen = []
    for fact in (
        facts.PlanRefused("fair", "no"),
        adopted(),
        adopted(problems={"a": "no"}),
        adopted(problems={}),
    ):
        metrics.count(fact)
        seen.append(value(metrics, "echelon_plan_failing"))
    assert seen == [1, 0, 1, 0]


def test_leadership_changes_are_counted() -> None:
    metrics = Metrics("1")
    for term in (None, None, 5, 5, 6, None, 9):
        metrics.leadership(term)
    assert value(metrics, "echelon_leader_changes_total") == 3
    assert value(metrics, "echelon_leader_term") == 9
    metrics.leadership(None)
    assert value(metrics, "echelon_leader") == 0
    assert value(metrics, "echelon_leader_term") == 0


def test_a_standby_knows_nothing_of_switches_and_jobs() -> None:
    """A standby shows none of the values that it had as a leader, which may be wrong by now."""
    metrics = exercised()
    metrics.leadership(None)
    found = families(metrics)
    for name in ("switch_state", "entries", "entries_wanted", "foreign_entries", "refused_entries"):
        assert found[f"echelon_{name}"].samples == []
    for name in (
        "job_iteration_seconds",
        "job_tardiness_seconds",
        "job_iterations",
        "job_last_seen_timestamp_seconds",
    ):
        assert found[f"echelon_{name}"].samples == []
    assert {one.value for one in found["echelon_jobs"].samples} == {0}
    assert value(metrics, "echelon_plan_failing") == 0
    assert value(metrics, "echelon_drift_entries_total", switch="s1") == 2, "counters go on"
    metrics.leadership(99)
    metrics.count(facts.SwitchAdded("s1"))
    assert value(metrics, "echelon_switch_state", switch="s1", state="connecting") == 1


def test_what_callers_send_makes_no_series() -> None:
    """The series stay few whatever the methods, routes and roles are, which come from outside."""
    metrics = Metrics("1")
    for index in range(1000):
        metrics.count(facts.RequestAnswered(f"BREW{index}", None, 405, f"nobody{index}", 0.1))
    (counted,) = families(metrics)["echelon_api_requests"].samples
    assert counted.labels == {"method": "other", "route": "none", "status": "405", "role": "none"}
    assert counted.value == 1000


def test_names_of_any_kind_are_escaped() -> None:
    metrics = Metrics("1")
    name = 'a"b\\c\nd é'
    metrics.count(facts.IterationTimed(name, 2.5))
    assert value(metrics, "echelon_job_iteration_seconds", training_job=name) == 2.5


class Jobs(RuleBasedStateMachine):
    """Jobs that come and go; their series come and go with them, never more than allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics("1")
        self.limit = module.MAX_JOB_SERIES
        module.MAX_JOB_SERIES = 3
        self.seen: dict[str, float] = {}
        self.without: set[str] = set()
        self.iterations: Counter[str] = Counter()

    def teardown(self) -> None:
        module.MAX_JOB_SERIES = self.limit

    @rule(job=st.sampled_from("abcdef"), time_s=st.integers(1, 9))
    def iterate(self, job: str, time_s: int) -> None:
        self.metrics.count(facts.IterationTimed(job, time_s))
        if job in self.seen or len(self.seen) < 3:
            self.without.discard(job)
            self.seen[job] = time_s
            self.iterations[job] += 1
        elif len(self.without) < 3:
            self.without.add(job)

    @rule(job=st.sampled_from("abcdef"))
    def remove(self, job: str) -> None:
        self.metrics.count(facts.JobLeft(job))
        self.seen.pop(job, None)
        self.without.discard(job)
        del self.iterations[job]

    @invariant()
    def exactly_these(self) -> None:
        found = families(self.metrics)
        times = {
            one.labels["training_job"]: one.value
            for one in found["echelon_job_iteration_seconds"].samples
        }
        assert times == self.seen
        counts = {
            one.labels["training_job"]: one.value for one in found["echelon_job_iterations"].samples
        }
        assert counts == {job: self.iterations[job] for job in self.seen}
        assert value(self.metrics, "echelon_jobs_without_series") == len(self.without)


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=examples(32), stateful_step_count=20, deadline=None)


def test_threads_lose_no_count() -> None:
    metrics = Metrics("1")
    metrics.count(facts.SwitchAdded("s1"))

    def work() -> None:
        for _ in range(500):
            metrics.count(facts.IntentWritten("s1", 1, 0, 2, 0.001))
            metrics.count(facts.IterationTimed("a", 1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(metrics, "echelon_entries_written_total", switch="s1", operation="delete") == 4000
    assert value(metrics, "echelon_job_iterations_total", training_job="a") == 2000


def test_states_are_those_of_the_resources() -> None:
    metrics = Metrics("1")
    metrics.count(
        facts.JobsCounted({state: index for index, state in enumerate(get_args(JobState), start=1)})
    )
    metrics.count(facts.JobsCounted({"accepted": 9}))
    counts = {one.labels["state"]: one.value for one in families(metrics)["echelon_jobs"].samples}
    assert counts == {state: 9.0 if state == "accepted" else 0.0 for state in get_args(JobState)}


def test_the_library_is_loaded_by_the_service_alone() -> None:
    code = "import sys, echelon.controller.service.metrics; sys.exit('prometheus_client' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_all_series_of_a_job_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric may have a second label beside the job's."""
    by_host = module.Metric(
        "gauge",
        "by_host",
        "x",
        {"training_job": (), "host": ()},
        (facts.JobSeen,),
        lambda fact: {(fact.job, host): 1 for host in ("h1", "h2")},
    )
    monkeypatch.setattr(module, "METRICS", (*module.METRICS, by_host))
    metrics = Metrics("1")
    metrics.count(facts.JobSeen("a"))
    metrics.count(facts.JobSeen("b"))
    assert value(metrics, "echelon_by_host", training_job="a", host="h2") == 1
    metrics.count(facts.JobLeft("a"))
    left = {
        sample.labels["training_job"] for sample in families(metrics)["echelon_by_host"].samples
    }
    assert left == {"b"}


async def test_a_loop_that_is_held_up_is_told() -> None:
    told: list[float] = []
    watching = asyncio.create_task(daemon.watch_loop(lambda fact: told.append(fact.lag_s)))
    while len(told) < 2:
        await asyncio.sleep(0)
    time.sleep(0.5)
    before = len(told)
    while len(told) == before:
        await asyncio.sleep(0)
    watching.cancel()
    assert told[-1] > 0.4
