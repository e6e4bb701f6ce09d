"""The local search for units of jobs: its steps, and what a larger unit does."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.planning.policies.echelon.candidates import BLENDS, PlanCandidate
from echelon.planning.policies.echelon.units import MOST, extremes, neighbours
from tests.echelon.policies.test_choice import mix, pairs, search

FIRST = PlanCandidate("delayed_first")


def test_each_job_gets_a_unit_twice_as_large_and_half_as_large() -> None:
    plans = neighbours(FIRST, ["a", "b"])
    expected = [
        (("a", Fraction(1, 2)),),
        (("a", Fraction(2)),),
        (("b", Fraction(1, 2)),),
        (("b", Fraction(2)),),
    ]
    assert [plan.units for plan in plans] == expected
    assert {plan.order for plan in plans} == {FIRST.order}


def test_a_step_back_leads_to_the_same_plan() -> None:
    [_, larger] = neighbours(FIRST, ["a"])
    [back, _] = neighbours(larger, ["a"])
    assert back == FIRST


def test_units_have_bounds() -> None:
    candidate = FIRST
    while len(plans := neighbours(candidate, ["a"])) == 2:
        candidate = plans[1]
    assert dict(candidate.units) == {"a": MOST}


def test_jobs_that_lose_most_and_least_are_tried_first() -> None:
    slowdowns = {f"job{number}": 1 + number / 10 for number in range(30)}
    jobs = extremes(slowdowns)
    assert jobs[:4] == ["job29", "job0", "job28", "job1"]
    assert len(jobs) == len(set(jobs)) == 12
    assert extremes({"a": 1.0, "b": 2.0, "c": 1.5}) == ["b", "a", "c"]


@pytest.mark.parametrize("order", [*BLENDS, "normalised"])
def test_a_job_with_a_larger_unit_counts_as_a_job_of_less_weight(order: str) -> None:
    jobs, fabric = mix(5, 3), pairs(3)
    units = (("job1", Fraction(4)),)
    plan = PlanCandidate(order, units=units).new_policy().plan(jobs, fabric)
    lighter = [jobs[0], replace(jobs[1], weight=Fraction(1, 4)), jobs[2]]
    expected = PlanCandidate(order).new_policy().plan(lighter, fabric)
    assert plan.ranking == expected.ranking


def test_a_search_finds_better_units() -> None:
    better = 0
    for seed in range(6):
        jobs, fabric = mix(seed, 3), pairs(3)
        choice = search(jobs, fabric).run()
        without = []
        for prediction in choice.tried:
            same_length = prediction.iterations == choice.best.iterations
            if same_length and not prediction.candidate.units:
                without.append(prediction.score)
        better += choice.best.score < 0.997 * min(without)
    assert better
