"""Jobs in which one step stands for all that are equal to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.jobs.analysis import connections, topological_order
from echelon.model.jobs.folding import FoldedJob, folded, is_foldable
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from tests.echelon.fluid.test_folds import random_job

RANKS = 4


def build_ranks(sizes_bytes: Sequence[int] = (1000,) * RANKS) -> Job:
    """Return a job whose ranks compute on h1, send to h2 at once, and compute there."""
    computes = []
    flows = []
    echelonflows = []
    for rank, size_bytes in enumerate(sizes_bytes):
        computes.append(ComputeUnit(f"a{rank}", "h1", Fraction(1)))
        flows.append(Flow(f"f{rank}", "h1", "h2", size_bytes, (f"a{rank}",)))
        computes.append(ComputeUnit(f"b{rank}", "h2", Fraction(2), (f"f{rank}",)))
        echelonflows.append(EchelonFlow.coflow(f"e{rank}", [f"f{rank}"]))
    return Job("ranks", tuple(computes), tuple(flows), tuple(echelonflows), weight=Fraction(3))


def test_equal_chains_become_one() -> None:
    job = build_ranks()
    short = folded(job, {})

    assert isinstance(short, FoldedJob)
    assert short.flows == (replace(job.flows[0], count=RANKS),)
    assert [unit.name for unit in short.computes] == ["a0", "b0"]
    assert [echelonflow.name for echelonflow in short.echelonflows] == ["e0"]
    assert short.original is job
    assert short.representatives["f3"] == "f0"
    assert (short.name, short.weight) == (job.name, job.weight)


def test_what_differs_parts_all_that_follows() -> None:
    short = folded(build_ranks((1000, 1000, 2000, 2000)), {})

    assert [(flow.name, flow.count) for flow in short.flows] == [("f0", 2), ("f2", 2)]
    assert [unit.name for unit in short.computes] == ["a0", "b0", "b2"]
    assert [unit.after for unit in short.computes] == [(), ("f0",), ("f2",)]


def test_marks_part_flows() -> None:
    marks = {"f0": "high", "f1": "high", "f2": "low", "f3": "low"}
    short = folded(build_ranks(), marks)
    assert [(flow.name, flow.count) for flow in short.flows] == [("f0", 2), ("f2", 2)]
    assert [unit.name for unit in short.computes] == ["a0", "b0", "b2"]


def test_a_job_with_hardly_an_equal_step_stays_the_same_object() -> None:
    units = [replace(unit, worker=unit.name) for unit in build_ranks().computes]
    job = replace(build_ranks(), computes=tuple(units))
    assert not is_foldable(job)
    assert folded(job, {}) is job


def test_a_job_of_which_nothing_is_left_to_fold_stays_the_same_object() -> None:
    job = replace(build_ranks(), computes=())
    flows = [replace(flow, after=()) for flow in job.flows]
    job = replace(job, flows=tuple(flows))
    assert is_foldable(job)
    assert folded(job, {flow.name: flow.name for flow in flows}) is job


def test_jobs_that_send_in_turn_and_folded_ones_stay_as_they_are() -> None:
    in_turn = replace(build_ranks(), in_turn=True)
    assert folded(in_turn, {}) is in_turn
    short = folded(build_ranks(), {})
    assert folded(short, {}) is short


@pytest.mark.parametrize("seed", range(20))
def test_steps_of_a_class_wait_for_the_same_classes(seed: int) -> None:
    job = random_job(seed, 4)
    short = folded(job, {})
    assert isinstance(short, FoldedJob)

    steps = {step.name: step for step in (*job.computes, *job.flows)}
    kept = {step.name: step for step in (*short.computes, *short.flows)}
    for name, step in steps.items():
        representative = kept[short.representatives[name]]
        assert {short.representatives[earlier] for earlier in step.after} == {*representative.after}
        if isinstance(step, Flow):
            assert isinstance(representative, Flow)
            assert (step.ends, step.size_bytes) == (representative.ends, representative.size_bytes)
    members = Counter(short.representatives.values())
    assert all(flow.count == members[flow.name] for flow in short.flows)
    assert [*short.representatives] == [*topological_order(job)]
    # Connections are in the same order, so that choosers of paths treat them alike.
    assert [*connections(short)] == [*connections(job)]
