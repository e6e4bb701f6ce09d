"""Searches by neighbourhoods, and plans in which jobs have different orders."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import inf
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.plan import Plan
from echelon.planning.policies.echelon import neighbourhoods as module
from echelon.planning.policies.echelon import policy as policy_module
from echelon.planning.policies.echelon.budgets import (
    BRIEF_WORK,
    GROWTH,
    JOB_WORK,
    budgets,
    preliminary_work,
)
from echelon.planning.policies.echelon.candidates import BLENDS, FAIR, UNSEARCHED, PlanCandidate
from echelon.planning.policies.echelon.mixed import MixedCandidate, MixedOrder, candidate_of
from echelon.planning.policies.echelon.neighbourhoods import (
    CONTENDED,
    NeighbourhoodSearch,
    neighbourhoods,
)
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import MOST_WORK
from echelon.planning.policies.orders import JobFacts
from tests.drawing import examples
from tests.echelon.policies.test_choice import mix, pairs

MOST = 3
LINKS = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
LOADS = st.dictionaries(
    st.sampled_from([f"job{number}" for number in range(8)]),
    st.dictionaries(st.sampled_from(LINKS), st.sampled_from([0.1, 0.3, 0.4, 0.9])),
    min_size=1,
)
USUAL = "critical_and_short_first"
OTHER = "smallest_left_first"

Loads = Mapping[str, Mapping[tuple[str, str], float]]


# -- neighbourhoods --------------------------------------------------------------------------------


def shared(loads: Loads, pair: tuple[str, str]) -> float:
    """Return how much two jobs are in each other's way, by the definition."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for on in loads.values():
        for link, load in on.items():
            total[link] += load
    a, b = (loads[job] for job in pair)
    return sum(min(a[link], b[link]) for link in a.keys() & b.keys() if total[link] > CONTENDED)


def by_hand(loads: Loads, most: int) -> list[list[str]]:
    """Return the neighbourhoods, with all pairs of jobs compared at each step."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    users: dict[tuple[str, str], int] = defaultdict(int)
    for on in loads.values():
        for link, load in on.items():
            total[link] += load
            users[link] += 1

    def pressure(job: str) -> float:
        on = loads[job]
        return sum(on[link] for link in on if total[link] > CONTENDED and users[link] > 1)

    left = sorted(loads, key=pressure, reverse=True)
    parts = []
    while left:
        part = [left.pop(0)]
        while len(part) < most:
            near = {}
            for job in left:
                near[job] = sum(shared(loads, (job, member)) for member in part)
            if not any(near.values()):
                break
            job = max(near, key=near.__getitem__)
            part.append(job)
            left.remove(job)
        parts.append(part)
    return parts


def cohesion(loads: Loads, parts: Sequence[Sequence[str]]) -> list[float]:
    sums = []
    for part in parts:
        sums.append(sum(shared(loads, pair) for pair in combinations(part, 2)))
    return sums


@given(loads=LOADS)
@settings(deadline=None, max_examples=examples(200))
def test_neighbourhoods_hold_every_job_once_and_are_those_of_all_pairs(loads: Loads) -> None:
    parts = [*neighbourhoods(loads, MOST)]
    assert sorted(job for part in parts for job in part) == sorted(loads)
    assert max(map(len, parts)) <= MOST
    expected = by_hand(loads, MOST)
    if [part[0] for part in parts] == [part[0] for part in expected]:
        # Jobs that are as near as each other may come in another order.
        assert cohesion(loads, parts)[0] == pytest.approx(cohesion(loads, expected)[0])


def test_jobs_apart_are_neighbours_only_if_they_share_a_contended_link() -> None:
    first, second, third, _ = LINKS
    loads = {
        "a": {first: 0.5, third: 0.1},
        "b": {first: 0.5},
        "c": {second: 0.5},
        "d": {second: 0.4, third: 0.1},
        "alone": {third: 0.1},
    }
    parts = {frozenset(part) for part in neighbourhoods(loads, 4)}
    assert parts == {frozenset("ab"), frozenset("cd"), frozenset(["alone"])}


# -- plans by neighbourhoods -----------------------------------------------------------------------


def parted(seed: int, count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Job], Fabric]:
    """Return jobs, of which a search by neighbourhoods takes three at a time."""
    for place in (module, policy_module):
        monkeypatch.setattr(place, "MOST_TOGETHER", MOST)
    return mix(seed, count), pairs(count, spines=2)


def searched(jobs: Sequence[Job], fabric: Fabric) -> tuple[Echelon, NeighbourhoodSearch]:
    policy = Echelon()
    policy.plan(jobs, fabric)
    starts_s = {job.name: float(job.start_s) for job in jobs}
    [search] = policy.searches(jobs, fabric, starts_s=starts_s)
    assert isinstance(search, NeighbourhoodSearch)
    return policy, search


def mean_slowdown(jobs: Sequence[Job], fabric: Fabric, plan: Plan) -> float:
    class Planned:
        def plan(self, *_: object) -> Plan:
            return plan

    result = simulate(jobs, fabric, Planned(), 12, until="all-done")
    slowdowns = []
    for job in jobs:
        finished = result.jobs[job.name].finished[3:]
        times_s = [float(iteration.finish - iteration.start) for iteration in finished]
        slowdowns.append(fmean(times_s) / float(alone_iteration_s(job, fabric)))
    return fmean(slowdowns)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_plan_by_neighbourhoods_is_complete_and_not_behind_fair(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, fabric = parted(seed, 8, monkeypatch)
    policy, search = searched(jobs, fabric)
    choice = search.run()
    tried = {prediction.candidate: prediction for prediction in choice.tried}
    mixed, *_ = [candidate for candidate in tried if isinstance(candidate, MixedCandidate)]
    assert (
        choice.best.score
        <= min(
            prediction.score
            for candidate, prediction in tried.items()
            if candidate.policy == "fair" and prediction.iterations == choice.best.iterations
        )
        * 1.01
    )

    fair = FAIR.new_policy().plan(jobs, fabric)
    for candidate in (choice.best.candidate, mixed):
        prediction = replace(tried[candidate], candidate=candidate)
        policy.adopt(search.group, replace(choice, best=prediction))
        plan = policy.plan(jobs, fabric)
        assert {flow.flow for flow in plan.flows} == {
            flow.name for job in jobs for flow in job.flows
        }
        assert set(plan.by_job) == {job.name for job in jobs}
        slowdown = mean_slowdown(jobs, fabric, plan)
        if candidate == choice.best.candidate:
            assert slowdown <= 1.02 * mean_slowdown(jobs, fabric, fair)


def test_without_work_for_a_comparison_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, fabric = parted(4, 6, monkeypatch)
    monkeypatch.setattr(policy_module, "budgets", lambda due: dict.fromkeys(due, 2))
    _, search = searched(jobs, fabric)
    best = search.run().best
    assert isinstance(best.candidate, MixedCandidate)
    assert best.slowdowns == {}
    assert best.score == inf
    assert "too many to compare" in (best.problem or "")


def test_a_search_by_neighbourhoods_is_the_same_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, fabric = parted(5, 5, monkeypatch)
    _, search = searched(jobs, fabric)
    sent = pickle.loads(pickle.dumps(search))
    assert sent.run() == search.run()


# -- orders of several jobs ------------------------------------------------------------------------


def facts(alone_s: int, occupied_s: Fraction) -> JobFacts:
    return JobFacts(Fraction(alone_s), Fraction(1), {}, occupied_s=occupied_s)


def test_units_of_different_orders_are_as_large() -> None:
    jobs = {f"job{n}": facts(4**n, Fraction(4**n, 2)) for n in range(5)}
    order = MixedOrder(USUAL, {"job1": OTHER, "job3": OTHER})
    levels = order.levels(jobs)
    units = {}
    for name, job_levels in levels.items():
        assert job_levels.relative is not None
        units[name] = float(job_levels.relative.unit_s)
    by_usual = [float(job.unit_s(BLENDS[USUAL])) for job in jobs.values()]
    assert units["job0"] == by_usual[0]
    # Those of the other order are all the same: within half a power of two of the median.
    assert units["job1"] == units["job3"]
    assert 2**-0.5 <= units["job1"] / median(by_usual) <= 2**0.5


def test_the_document_of_a_mixed_candidate_is_read_as_it_was() -> None:
    mixed = MixedCandidate(
        USUAL,
        paths="crux",
        units=(("job1", Fraction(2)),),
        orders=(("job1", OTHER),),
    )
    assert candidate_of(mixed.to_document()) == mixed
    assert candidate_of(UNSEARCHED.to_document()) == UNSEARCHED
    assert mixed != PlanCandidate(USUAL, paths="crux")
    with pytest.raises(ValueError, match="no order"):
        candidate_of({**mixed.to_document(), "orders": {"job1": "k9"}})


def test_a_mixed_plan_survives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, fabric = parted(6, 5, monkeypatch)
    policy, search = searched(jobs, fabric)
    mixed = MixedCandidate(USUAL, orders=((jobs[0].name, OTHER),))
    prediction = replace(search.run().best, candidate=mixed)
    policy.adopt(search.group, module.Choice(prediction, (prediction,)))
    plan = policy.plan(jobs, fabric)
    other = Echelon()
    other.take(policy.to_document())
    assert other.plan(jobs, fabric).flows == plan.flows


# -- budgets ---------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(2, 200), min_size=1, max_size=20))
def test_searches_of_all_groups_take_no_more_than_one(sizes: Sequence[int]) -> None:
    groups = [frozenset(f"{n}-{job}" for job in range(size)) for n, size in enumerate(sizes)]
    works = budgets(groups)
    assert sum(works.values()) <= MOST_WORK
    for group, work in works.items():
        assert work <= JOB_WORK * len(group)
    assert [works[group] for group in sorted(groups, key=len)] == sorted(works.values())


def test_searches_become_longer_until_the_last() -> None:
    works = []
    work = preliminary_work(0, MOST_WORK)
    while work is not None:
        works.append(work)
        work = preliminary_work(work, MOST_WORK)
    assert works == [BRIEF_WORK, GROWTH * BRIEF_WORK]
    assert preliminary_work(0, BRIEF_WORK) is None
