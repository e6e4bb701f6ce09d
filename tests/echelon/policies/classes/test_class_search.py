"""The assignment that `classes` chooses, against all there are, in runs of the Python engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from statistics import fmean

import pytest

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Carried, Patient, Searching
from echelon.planning.policies.classes.assignment import RATIOS, Assignment, communicators_of
from echelon.planning.policies.classes.policy import Classes
from echelon.planning.policies.classes.portfolio import SENDERS
from echelon.planning.policies.echelon.candidates import FAIR
from echelon.planning.policies.levels import strict
from echelon.planning.rankings.fixed import InTurn
from tests.echelon.policies.test_choice import by_hand, mix, pairs, score


def policy(classes: int = 2) -> Classes:
    return Classes(Classes.Parameters(classes=classes, draws=0, weights=True))


def small(seed: int) -> tuple[list[Job], Fabric]:
    """Return two jobs that meet, each with one communicator."""
    while len(communicators_of(mix(seed, 2))) > 2:
        seed += 100
    return mix(seed, 2), pairs(2)


def all_plans(classes: int, jobs: Sequence[Job], fabric: Fabric) -> Iterator[Plan]:
    """Yield the plan of every assignment."""
    communicators = communicators_of(jobs)
    for numbers in product(range(classes), repeat=len(communicators)):
        chosen = dict(zip(communicators, numbers, strict=True))
        for ratio in RATIOS:
            assignment = replace(Assignment(classes=classes), ratio=ratio).with_classes(chosen)
            yield assignment.new_policy().plan(jobs, fabric)


@pytest.mark.parametrize("seed", [2, 9])
def test_of_few_assignments_the_best_is_found(seed: int) -> None:
    jobs, fabric = small(seed)
    searching = policy()
    searching.best_plan(jobs, fabric)
    [decision] = searching.choices.values()
    assert decision.choice is not None
    best = decision.choice.best

    fair = by_hand(jobs, fabric, make_policy("fair").plan(jobs, fabric), best.iterations, SENDERS)
    scores = []
    for plan in all_plans(2, jobs, fabric):
        slowdowns = by_hand(jobs, fabric, plan, best.iterations, SENDERS)
        # A plan under which the mean or the worst job is slower than under fair sharing is not
        # taken while there are others.
        is_better = fmean(slowdowns.values()) <= 1.01 * fmean(fair.values())
        if is_better and max(slowdowns.values()) <= 1.01 * max(fair.values()):
            scores.append(score(slowdowns))
    found = by_hand(
        jobs, fabric, best.candidate.new_policy().plan(jobs, fabric), best.iterations, SENDERS
    )
    assert found == pytest.approx(best.slowdowns)
    # Assignments leave early rounds, and one that is about as good may be taken.
    if scores:
        assert score(found) <= 1.01 * min(scores)


@pytest.mark.parametrize("classes", [1, 2, 8])
def test_the_choice_is_an_assignment_that_is_not_behind_one_class_for_all(classes: int) -> None:
    jobs, fabric = mix(5, 3), pairs(3)
    searching = policy(classes)
    plan = searching.best_plan(jobs, fabric)
    queues = set()
    for ranking in plan.ranking.values():
        assert isinstance(ranking, InTurn)
        queues.add(ranking.queue)
    assert len(queues) <= classes

    [decision] = searching.choices.values()
    choice = decision.choice
    assert choice is not None
    assert isinstance(choice.best.candidate, Assignment)
    assert FAIR in [prediction.candidate for prediction in choice.tried]
    last = choice.best.iterations
    together = Assignment(classes=classes).new_policy().plan(jobs, fabric)
    undivided = by_hand(jobs, fabric, together, last, SENDERS)
    assert score(choice.best.slowdowns) <= 1.01 * score(undivided)


def test_without_weights_queues_of_switches_never_change() -> None:
    jobs, fabric = mix(5, 3), pairs(3)
    searching = Classes(Classes.Parameters(classes=4, draws=0))
    before = searching.plan(jobs, fabric)
    after = searching.best_plan(jobs, fabric)
    assert after.ranking != before.ranking
    assert after.default_schedule == before.default_schedule == strict()


def test_two_jobs_that_collide_for_ever_under_fair_sharing_no_longer_do() -> None:
    """One class above the other lets them pass in turn, as every unfair share does."""
    job = mix(5, 1)[0]
    jobs = []
    for number in (0, 1):
        start_s = Fraction(number, 50)
        jobs.append(replace(job, name=f"job{number}", start_s=start_s))
    fabric = pairs(1)
    searching = policy()
    searching.best_plan(jobs, fabric)
    [decision] = searching.choices.values()
    assert decision.choice is not None
    by_candidate = {prediction.candidate: prediction.score for prediction in decision.choice.tried}
    assert decision.choice.best.score < 0.95 * by_candidate[FAIR]


def test_the_policy_is_one_that_a_service_can_search_for_and_carry() -> None:
    searching = policy()
    assert isinstance(searching, Searching)
    assert isinstance(searching, Patient)
    assert isinstance(searching.carried, Carried)
    assert searching.simulated_iterations > 0


def test_a_job_has_a_plan_before_any_search_and_keeps_it_through_a_restart() -> None:
    jobs, fabric = mix(5, 3), pairs(3)
    searching = policy(4)
    at_once = searching.plan(jobs, fabric)
    assert {ranking.queues for ranking in at_once.ranking.values()} == {range(6, 7)}
    chosen = searching.best_plan(jobs, fabric)
    assert chosen != at_once

    document = json.loads(json.dumps(searching.to_document()))
    other = policy(4)
    other.take(document)
    assert other.plan(jobs, fabric) == chosen
    # Who is told of fewer jobs goes on with the classes of those that are left.
    left = other.plan(jobs[1:], fabric)
    for key, ranking in left.ranking.items():
        assert ranking == chosen.ranking[key]


def test_what_switches_refuse_gives_way_to_the_next_assignment() -> None:
    jobs, fabric = mix(5, 3), pairs(3)
    searching = policy(4)
    searching.best_plan(jobs, fabric)
    [(group, decision)] = searching.choices.items()
    following = searching.reject(group)
    assert following is not None
    assert isinstance(following.best.candidate, Assignment)
    assert following.best.candidate != decision.candidate
