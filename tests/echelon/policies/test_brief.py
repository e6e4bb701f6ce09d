"""Brief searches, and what is handed over to the process that searches."""

from __future__ import annotations

import pickle

import pytest

from echelon.planning.policies.base import Choice
from echelon.planning.policies.echelon import budgets as budgets_module
from echelon.planning.policies.echelon import policy as policy_module
from echelon.planning.policies.echelon.brief import BriefSearch
from echelon.planning.policies.echelon.candidates import PlanCandidate
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import PlanSearch
from tests.echelon.policies.test_choice import mix, pairs

JOBS = mix(7, 3)
FABRIC = pairs(3)


def brief_search() -> tuple[Echelon, BriefSearch]:
    """Return a policy and the brief search for the only group of its plan."""
    policy = Echelon()
    policy.plan(JOBS, FABRIC)
    [search] = policy.searches(JOBS, FABRIC, brief=[*policy.choices])
    assert isinstance(search, BriefSearch)
    return policy, search


def brief_choice() -> tuple[Echelon, Choice[PlanCandidate]]:
    """Return a policy that has the result of a brief search, and that result."""
    policy, search = brief_search()
    choice = search.run()
    policy.adopt(search.group, choice)
    return policy, choice


def test_a_brief_search_that_goes_through_all_rounds_has_the_final_result() -> None:
    policy, search = brief_search()
    [in_force] = [chosen.candidate.label for chosen in policy.choices.values()]
    choice = search.run()
    policy.adopt(search.group, choice)
    assert not choice.preliminary
    [longer] = policy.searches(JOBS, FABRIC, renewed=[job.name for job in JOBS])
    final = longer.run()
    assert choice.best.score == final.best.score
    brief, whole = (
        {one.candidate.label: one.iterations for one in tried.tried} for tried in (choice, final)
    )
    # The plan in force goes through all rounds, and that is another one by now.
    assert brief.keys() == whole.keys()
    assert {label for label in brief if brief[label] != whole[label]} <= {in_force}


@pytest.mark.parametrize("work", [4_000, 40_000])
def test_a_brief_search_with_too_little_work_has_a_preliminary_result(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets_module, "BRIEF_WORK", work)
    policy, choice = brief_choice()
    assert choice.preliminary
    assert policy.searches(JOBS, FABRIC) == [], "unless it is asked for"


def test_a_large_group_has_no_brief_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "MOST_BRIEF_STEPS", 10)
    policy = Echelon()
    policy.plan(JOBS, FABRIC)
    [search] = policy.searches(JOBS, FABRIC, brief=[*policy.choices])
    assert type(search) is PlanSearch


def test_a_group_with_a_large_job_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_module, "MOST_JOB_STEPS", 5)
    policy = Echelon()
    policy.plan(JOBS, FABRIC)
    [search] = policy.searches(JOBS, FABRIC)
    assert "steps are too large" in (search.run().best.problem or "")


def test_a_search_has_the_same_result_in_another_process() -> None:
    _, search = brief_search()
    sent = pickle.loads(pickle.dumps(search))
    assert sent.run() == search.run()
