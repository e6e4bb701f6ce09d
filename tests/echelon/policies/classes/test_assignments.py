"""Assignments of communicators to queues: their plans, and what stores keep of them."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.plan import CONTROL_QUEUE
from echelon.planning.policies.classes.assignment import (
    RATIOS,
    Assignment,
    communicators_of,
    queues_of,
    schedule_of,
)
from echelon.planning.policies.classes.portfolio import Assignments
from echelon.planning.policies.echelon.candidates import FAIR
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES
from tests.drawing import examples
from tests.echelon.policies.test_choice import mix, pairs

CLASSES = st.integers(1, 8)


def test_up_to_six_classes_leave_best_effort_and_acknowledgements_their_queues() -> None:
    for classes in range(1, 9):
        queues = queues_of(classes)
        assert len(set(queues)) == classes
        assert list(queues) == sorted(queues)
        assert (set(queues) <= set(JOB_QUEUES)) == (classes <= 6)
    assert BEST_EFFORT_QUEUE in queues_of(7)
    assert CONTROL_QUEUE not in queues_of(7)


@given(CLASSES, st.sampled_from(RATIOS))
def test_acknowledgements_go_first_and_higher_classes_never_get_less(
    classes: int, ratio: int
) -> None:
    schedule = schedule_of(classes, ratio)
    served = [schedule[queue] for queue in queues_of(classes)]
    order = [(queue.level, queue.weight) for queue in served]
    assert order == sorted(order)
    others = schedule[:CONTROL_QUEUE]
    assert all(queue.level < schedule[CONTROL_QUEUE].level for queue in others)
    if ratio:
        shared = [queue.weight for queue in served if queue.level == 0]
        for lower, higher in pairwise(shared):
            assert higher == ratio * lower or higher == 100


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6), CLASSES, st.data())
def test_a_communicator_has_one_queue_for_good(
    seed: int, classes: int, data: st.DataObject
) -> None:
    jobs, fabric = mix(seed, 3), pairs(3)
    portfolio = Assignments(classes)
    candidates = portfolio.candidates(jobs, several_paths=False)
    assert candidates[0] == portfolio.unsearched
    candidate = data.draw(st.sampled_from([one for one in candidates if one != FAIR]))
    plan = candidate.new_policy().plan(jobs, fabric)

    used = set()
    for job in jobs:
        for echelonflow in job.echelonflows:
            queues = {plan.ranking[job.name, flow].queues for flow in echelonflow.flows}
            [queue] = queues.pop()
            assert not queues
            used.add(queue)
    assert used <= set(queues_of(classes))
    assert not plan.shifts_s
    assert not plan.rates_Bps
    assert not plan.reactive


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6), CLASSES)
def test_neighbours_differ_in_something_and_stay_within_the_classes(
    seed: int, classes: int
) -> None:
    jobs = mix(seed, 3)
    portfolio = Assignments(classes)
    drawn = portfolio.candidates(jobs, several_paths=False)[-1]
    neighbours = portfolio.neighbours(drawn, jobs)
    assert drawn not in neighbours
    assert neighbours == portfolio.neighbours(drawn, jobs)
    for neighbour in neighbours:
        assert isinstance(neighbour, Assignment)
        assert {number for _, number in neighbour.chosen} <= set(range(classes))
    # A single class leaves weights only, which change nothing there.
    assert len(neighbours) >= len(RATIOS) - 1


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6), CLASSES)
def test_a_store_gives_back_the_assignment(seed: int, classes: int) -> None:
    portfolio = Assignments(classes)
    for candidate in portfolio.candidates(mix(seed, 2), several_paths=False)[-3:]:
        document = json.loads(json.dumps(candidate.to_document()))
        assert portfolio.candidate_of(document) == candidate


def test_a_store_with_a_class_or_a_ratio_that_there_is_not_is_refused() -> None:
    job = mix(1, 1)[0]
    [communicator, *_] = communicators_of([job])
    assignment = Assignment(classes=4).with_classes({communicator: 3})
    document = assignment.to_document()
    with pytest.raises(ValueError, match="class 2 of 2"):
        Assignment.of_document({**document, "classes": 2})
    with pytest.raises(ValueError, match="ratio 3"):
        Assignment.of_document({**document, "ratio": 3})
    with pytest.raises(ValueError, match="paths 'shortest'"):
        Assignment.of_document({**document, "paths": "shortest"})


@given(st.lists(st.integers(0, 7), min_size=2, max_size=8), CLASSES)
def test_in_strict_order_only_the_order_counts(numbers: list[int], classes: int) -> None:
    """Assignments of one order are equal, and take the queues of jobs as far as there are."""
    chosen = {("job", f"f{place}"): number for place, number in enumerate(numbers)}
    assignment = Assignment(classes=8).with_classes(chosen)
    spread = dict(assignment.chosen)
    for lower, higher in pairwise(sorted(chosen, key=chosen.__getitem__)):
        assert (spread[lower] < spread[higher]) == (chosen[lower] < chosen[higher])
    twice = {communicator: 2 * number for communicator, number in spread.items()}
    assert assignment.with_classes(twice) == assignment.with_classes(spread) == assignment
    queues = [assignment.queue_by_class[number] for number in spread.values()]
    assert len({*queues}) == len({*numbers})
    assert ({*queues} <= {*JOB_QUEUES}) == (len({*numbers}) <= len(JOB_QUEUES))


def test_a_label_names_some_classes_and_says_that_there_are_more() -> None:
    chosen = {("job", f"f{number}"): number for number in range(6)}
    assignment = replace(Assignment(classes=8), ratio=2).with_classes(chosen)
    assert assignment.label == "8 classes weights ×2 job/f0=0 job/f1=1 job/f2=2 job/f3=3 …"
