"""Properties of the iteration graph of every paradigm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import parse_document
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import connections, earliest_start_s, topological_order
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.model.jobs.spec import JobSpec
from tests.drawing import examples
from tests.echelon.jobs.documents import job_documents


def spec_of(document: dict[str, object]) -> JobSpec:
    return parse_document(JobSpec, document, "job")


def steps_of(job: Job) -> Mapping[str, ComputeUnit | Flow]:
    steps: tuple[ComputeUnit | Flow, ...] = (*job.computes, *job.flows)
    return {step.name: step for step in steps}


def ancestors(job: Job) -> Mapping[str, frozenset[str]]:
    """Return the steps that end before each step starts, however long any of them takes."""
    steps = steps_of(job)
    out: dict[str, frozenset[str]] = {}
    for name in topological_order(job):
        out[name] = frozenset(steps[name].after).union(
            *(out[before] for before in steps[name].after)
        )
    return out


@given(job_documents())
@settings(max_examples=examples(80), deadline=None)
def test_every_dependency_can_be_seen_where_it_matters(document: dict[str, object]) -> None:
    """A worker needs to know only what it computes itself, what it has sent and what it has
    received.
    """
    job = build_job(spec_of(document))
    steps = steps_of(job)
    for step in steps.values():
        here = step.worker if isinstance(step, ComputeUnit) else step.src
        for name in step.after:
            match steps[name]:
                case ComputeUnit(worker=worker):
                    assert worker == here, f"{step.name} waits for {name}"
                case Flow(src=src, dst=dst):
                    assert here in (src, dst), f"{step.name} waits for {name}"


@given(job_documents())
@settings(max_examples=examples(80), deadline=None)
def test_a_worker_does_one_unit_at_a_time(document: dict[str, object]) -> None:
    job = build_job(spec_of(document))
    before = ancestors(job)
    order = {name: place for place, name in enumerate(topological_order(job))}
    by_worker = defaultdict(list)
    for unit in sorted(job.computes, key=lambda unit: order[unit.name]):
        by_worker[unit.worker].append(unit.name)
    for units in by_worker.values():
        assert all(early in before[late] for early, late in pairwise(units))


@given(job_documents(), st.randoms(use_true_random=False))
@settings(max_examples=examples(80), deadline=None)
def test_flows_of_a_connection_start_in_one_order_whatever_takes_how_long(
    document: dict[str, object], random: Random
) -> None:
    """The next flow on a connection waits for everything that the flow before it waits for.

    So a sender that is told of flows as they start sends them in the order by which switches tell
    them apart.
    """
    job = build_job(spec_of(document))
    before, steps = ancestors(job), steps_of(job)
    for flows in connections(job).values():
        for early, late in pairwise(flows):
            assert before[late.name].issuperset(steps[early.name].after)
    lasts_s = {flow.name: Fraction(random.randint(0, 5000), 1000) for flow in job.flows}
    start_s = earliest_start_s(job, lambda flow: lasts_s[flow.name])
    for flows in connections(job).values():
        starts = [start_s[flow.name] for flow in flows]
        assert starts == sorted(starts)


@given(job_documents())
@settings(max_examples=examples(80), deadline=None)
def test_every_flow_is_in_one_echelonflow_that_counts_from_its_head(
    document: dict[str, object],
) -> None:
    job = build_job(spec_of(document))
    held = [name for h in job.echelonflows for name in h.flows]
    assert sorted(held) == sorted(flow.name for flow in job.flows)
    assert all(h.slack_s == 0 or h.name == "stale" for h in job.echelonflows)
    # Unless a producer is late, the head flow starts first, and so the reference time is its start.
    start_s = earliest_start_s(job, lambda _: Fraction(0))
    for h in job.echelonflows:
        assert start_s[h.flows[0]] == min(start_s[name] for name in h.flows)


@given(job_documents())
@settings(max_examples=examples(80), deadline=None)
def test_a_file_says_which_hosts_the_job_has_and_where(document: dict[str, object]) -> None:
    spec = spec_of(document)
    assert set(spec.hosts) == set(build_job(spec).workers)
    assert tuple(spec.hosts)[: len(spec.workers)] == spec.workers
    for host, path in spec.hosts.items():
        value: object = document
        for key in path:
            value = value[key]  # type: ignore[index]
        assert value == host
