"""The plan that `echelon` chooses, against simulations of every candidate by the Python engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import inf
from random import Random
from statistics import fmean
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import CableLink, Fabric, Host, LinkEnd, Switch
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.model.jobs.paradigms.data import all_reduce
from echelon.model.jobs.pipelines import gpipe
from echelon.planning.fluid import alone_iteration_s, simulate
from echelon.planning.fluid.least import least_iterations_s
from echelon.planning.fluid.native import NativeNetwork, NativeRun
from echelon.planning.fluid.slowdown import mean_time_s, phase_s
from echelon.planning.plan import Plan
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import Choice, Prediction
from echelon.planning.policies.echelon.candidates import (
    BLENDS,
    FAIR,
    FIFO,
    FORMER_NAMES,
    MFS,
    UNSEARCHED,
    PlanCandidate,
    candidates,
)
from echelon.planning.policies.echelon.grain import coarse, grains, whole_rings
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.echelon.search import ROUNDS, WORST, PlanSearch
from echelon.planning.policies.echelon.unknowns import Doubt, draws_of
from echelon.planning.windows import Windows
from tests.drawing import examples

RATE_BPS = 8_000_000
EXACT = Doubt(draws=0)
SEARCHED = Windows(passes=True, streams=True)


def pairs(count: int, spines: int = 1) -> Fabric:
    """Return two leaves with `count` hosts each, and links between them that are as fast as one
    host's.
    """
    hosts = [f"{side}{n}" for side in "ab" for n in range(count)]
    cables = [
        CableLink(LinkEnd(h, 0), LinkEnd(f"leaf_{h[0]}", n), RATE_BPS, Fraction(0))
        for n, h in enumerate(hosts)
    ]
    cables += [
        CableLink(
            LinkEnd(f"leaf_{side}", 100 + n),
            LinkEnd(f"spine{n}", side == "b"),
            RATE_BPS,
            Fraction(0),
        )
        for n in range(spines)
        for side in "ab"
    ]
    switches = ["leaf_a", "leaf_b", *(f"spine{n}" for n in range(spines))]
    return Fabric(
        "pairs",
        {h: Host(h, f"10.0.0.{n}", f"02:00:00:00:00:{n:02x}") for n, h in enumerate(hosts)},
        {name: Switch(name, number) for number, name in enumerate(switches, start=1)},
        tuple(cables),
    )


def mix(seed: int, count: int) -> list[Job]:
    """Return jobs across the two leaves, each with hosts of its own, that ask for about as much as
    a link carries. All start within the first iteration of the slowest.
    """
    random = Random(seed)
    jobs = []
    for number in range(count):
        workers, compute_s = [f"a{number}", f"b{number}"], Fraction(random.randint(20, 60), 100)
        size = random.randint(100_000, 400_000)
        if random.random() < 0.5:
            graph = all_reduce(workers, compute_s, size)
        else:
            graph = gpipe(workers, 4, [compute_s / 8] * 2, [size // 4], [compute_s / 4] * 2)
        jobs.append(
            replace(Job(f"job{number}", *graph), start_s=Fraction(random.randint(0, 19), 100))
        )
    return jobs


def search(
    jobs: Sequence[Job],
    fabric: Fabric,
    limit: float = inf,
    tried: Sequence[PlanCandidate] | None = None,
) -> PlanSearch:
    starts_s = {job.name: float(job.start_s) for job in jobs}
    return PlanSearch(
        jobs,
        fabric,
        tried or candidates(False),
        EXACT,
        UNSEARCHED,
        limit=limit,
        starts_s=starts_s,
    )


def by_hand(
    jobs: Sequence[Job],
    fabric: Fabric,
    plan: Plan,
    iterations: int,
    windows: Windows = SEARCHED,
) -> dict[str, float]:
    """Return the slowdown of each job under a plan, in iterations of the slowest job alone.

    To be observed keeps the run in Python.
    """

    class Fixed:
        def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
            return plan

    alone_s = {job.name: float(alone_iteration_s(job, fabric)) for job in jobs}
    slowest_s = max(alone_s.values())
    end_s = Fraction(iterations * slowest_s)
    phased = []
    for job in jobs:
        start_s = phase_s(float(job.start_s), alone_s[job.name], slowest_s)
        phased.append(replace(job, start_s=Fraction(start_s)))
    run = simulate(
        phased,
        fabric,
        Fixed(),
        None,
        until=end_s,
        observe=lambda *_: None,
        windows=windows,
    )
    out = {}
    for name, record in run.jobs.items():
        spans = [
            (float(i.start), None if i.finish is None else float(i.finish))
            for i in record.iterations
        ]
        out[name] = mean_time_s(spans, float(end_s)) / alone_s[name]
    return out


def score(slowdowns: Mapping[str, float]) -> float:
    return fmean(slowdowns.values()) + WORST * max(slowdowns.values())


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6))
def test_the_best_of_all_candidates_is_chosen(seed: int) -> None:
    """Each example tries some of them: to simulate all in Python takes five seconds."""
    jobs, fabric = mix(seed, 3), pairs(3)
    others = [one for one in candidates(False) if one not in (UNSEARCHED, FAIR)]
    tried = [UNSEARCHED, FAIR, *Random(seed).sample(others, 10)]
    plans = {one: one.new_policy().plan(jobs, fabric, one.chooser()) for one in tried}

    choice = search(jobs, fabric, tried=tried).run()
    assert {one.candidate for one in choice.tried if not one.candidate.units} == set(tried)
    last = max(one.iterations for one in choice.tried)
    lasting = {}
    scores = {}
    for one in choice.tried:
        plan = plans.get(one.candidate)
        if plan is None:
            plan = one.candidate.new_policy().plan(jobs, fabric)
        slowdowns = by_hand(jobs, fabric, plan, one.iterations)
        assert one.slowdowns == pytest.approx(slowdowns)
        assert one.score == pytest.approx(score(slowdowns))
        if one.iterations == last:
            lasting[one.candidate] = one.slowdowns
    fair = lasting[FAIR].values()
    for candidate, by_job in lasting.items():
        values = by_job.values()
        # None is taken under which the mean or the worst job is slower than under fair sharing.
        if fmean(values) <= 1.01 * fmean(fair) and max(values) <= 1.01 * max(fair):
            scores[candidate] = score(by_job)
    # Of plans that are about as good, one is taken that slows no job down.
    assert choice.best.iterations == last == ROUNDS[-1].iterations
    assert scores[choice.best.candidate] <= 1.0031 * min(scores.values())


@settings(max_examples=examples(3), deadline=None)
@given(st.integers(0, 10**6))
def test_no_candidate_leaves_a_round_before_worse_ones(seed: int) -> None:
    """Those that were left out after so many iterations looked worse by then, in Python."""
    jobs, fabric = mix(seed, 3), pairs(3)
    tried = [one for one in candidates(False) if not one.shifted]
    plans = {one: one.new_policy().plan(jobs, fabric, one.chooser()) for one in tried}
    lengths = {
        one.candidate: one.iterations for one in search(jobs, fabric, tried=tried).run().tried
    }
    for round_, following in pairwise(ROUNDS):
        scores = {}
        for one in tried:
            if lengths[one] >= round_.iterations:
                scores[one] = score(by_hand(jobs, fabric, plans[one], round_.iterations))
        left = [one for one in scores if lengths[one] == round_.iterations]
        kept = [one for one in scores if one not in left]
        assert {UNSEARCHED, FAIR, FIFO, MFS} <= set(kept)
        # Beside the four of which it is certain, so many are kept that look best.
        most = max(4, round(len(tried) * following.kept))
        best = sorted(scores.values())[:most]
        assert most <= len(kept) <= most + 4
        for one in left:
            assert scores[one] >= best[-1] - 1e-9


@settings(max_examples=examples(8), deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02]))
def test_a_limit_keeps_every_job_from_being_slower_than_under_fair_sharing(
    seed: int, limit: float
) -> None:
    jobs, fabric = mix(seed, 4), pairs(4)
    best = search(jobs, fabric, limit=limit).run().best
    fair = by_hand(jobs, fabric, make_policy("fair").plan(jobs, fabric), best.iterations)
    assert all(best.slowdowns[name] <= fair[name] * (1 + limit) + 1e-9 for name in fair)


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10**6))
def test_what_is_predicted_is_what_the_installed_plan_does(seed: int) -> None:
    """Connections keep their paths when a job is gone; copies differ by their numbers."""
    jobs, fabric = mix(seed, 4), pairs(4, spines=2)
    policy = Echelon(Echelon.Parameters(draws=0))
    policy.plan(jobs, fabric)
    jobs = [jobs[0], *jobs[2:]]
    plan = policy.best_plan(jobs, fabric)
    (found,) = policy.choices.values()
    assert found.choice is not None
    best = found.choice.best
    assert best.slowdowns == pytest.approx(by_hand(jobs, fabric, plan, best.iterations))


def test_scores_are_of_the_least_times_and_not_of_those_over_the_kept_paths() -> None:
    """A job whose own flows share a link would seem to lose less than others by waiting.

    Here three flows have two ways, so that two of them share one.
    """
    fabric = pairs(5, spines=2)
    flows = [Flow(f"f{n}", f"a{n}", f"b{n}", 200_000, ("c",)) for n in range(3)]
    detour = Job("detour", (ComputeUnit("c", "a0", Fraction(1, 10)),), tuple(flows), ())
    jobs = [detour, *mix(3, 5)[3:]]
    least_s = least_iterations_s(jobs, fabric)
    detours = {}
    for job in jobs:
        detours[job.name] = float(alone_iteration_s(job, fabric) / least_s[job.name])
    assert detours["detour"] == pytest.approx(5 / 4)

    for prediction in search(jobs, fabric).run().tried:
        to_least = {}
        for name, slowdown in prediction.slowdowns.items():
            to_least[name] = slowdown * detours[name]
        assert prediction.score == pytest.approx(score(to_least))
        assert prediction.to_least(prediction.slowdowns) == pytest.approx(to_least)


def test_jobs_that_start_late_are_simulated_in_their_phases() -> None:
    """The first simulations would end before these jobs begin."""
    jobs, fabric = mix(7, 3), pairs(3)
    starts_s = {jobs[0].name: 0.5, jobs[1].name: 1.5, jobs[2].name: 81.25}
    [draw] = draws_of(jobs, [1.0, 2.0, 0.5], EXACT, starts_s)
    assert draw.starts_s == (0.5, 1.5, 0.25)

    late = [replace(job, start_s=job.start_s + 100) for job in jobs]
    for prediction in search(late, fabric).run().tried:
        assert set(prediction.slowdowns) == {job.name for job in jobs}


@pytest.mark.parametrize("processors", [1, 2, 4])
def test_a_search_depends_on_nothing_else(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the number of threads nor on the order in which these come to an end."""
    jobs, fabric = mix(7, 3), pairs(3)
    choice = PlanSearch(jobs, fabric, candidates(False), Doubt(), UNSEARCHED).run()
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    again = PlanSearch(jobs, fabric, candidates(False), Doubt(), UNSEARCHED).run()
    assert again == choice


@pytest.mark.parametrize("rounds", range(1, len(ROUNDS) + 1))
def test_the_plan_in_force_and_fair_sharing_are_in_each_round(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echelon.planning.policies.echelon.search.ROUNDS", ROUNDS[:rounds])
    jobs, fabric = mix(7, 3), pairs(3)
    for in_force in candidates(False):
        choice = PlanSearch(jobs, fabric, candidates(False), Doubt(draws=2), in_force).run()
        lengths = {one.candidate: (one.iterations, one.draws) for one in choice.tried}
        longest = max(lengths.values())
        assert longest[0] == ROUNDS[rounds - 1].iterations
        assert lengths[in_force] == lengths[FAIR] == lengths[FIFO] == lengths[MFS] == longest
        assert lengths[choice.best.candidate] == longest


def fast_beside_slow() -> list[Job]:
    """Return a job that does a hundred iterations in one of another, and a ring of four hosts."""
    fast = all_reduce(["a0", "b0"], Fraction(1, 100), 4_000)
    slow = all_reduce(["a1", "b1"], Fraction(6, 5), 200_000)
    ring = all_reduce(["a2", "b2", "a3", "b3"], Fraction(3, 10), 100_000)
    return [Job("fast", *fast), Job("slow", *slow), Job("ring", *ring)]


def test_predictions_are_of_simplified_jobs() -> None:
    """The fast job is made coarser, and a ring has rounds only in the last round."""
    jobs, fabric = fast_beside_slow(), pairs(4)
    alone_s = [float(alone_iteration_s(job, fabric)) for job in jobs]
    tried = candidates(False)
    checked = set()
    for prediction in search(jobs, fabric, tried=tried).run().tried:
        [round_] = [one for one in ROUNDS if one.iterations == prediction.iterations]
        if round_ in checked:
            continue
        checked.add(round_)
        sizes = grains(alone_s, round_.lives)
        assert (sizes[0] > 1, sizes[1:]) == (True, [1, 1])
        simple = list(jobs)
        if not round_.has_rounds:
            simple = list(map(whole_rings, simple))
            assert len(simple[2].flows) < len(jobs[2].flows)
        simple = [coarse(job, size) for job, size in zip(simple, sizes, strict=True)]
        candidate = prediction.candidate
        plan = candidate.new_policy().plan(simple, fabric, candidate.chooser())
        slowdowns = by_hand(simple, fabric, plan, round_.iterations)
        assert prediction.slowdowns == pytest.approx(slowdowns)
    # Where all go on to the next round, nobody is left at this one.
    last = {one for one, following in pairwise(ROUNDS) if following.kept < 1}
    assert checked == {*last, ROUNDS[-1]}


def test_without_the_engine_in_c_the_choice_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are whole bytes there."""
    jobs, fabric = mix(7, 2), pairs(2)
    tried = [UNSEARCHED, PlanCandidate("delayed_first"), PlanCandidate(policy="fair")]
    choice = PlanSearch(jobs, fabric, tried, Doubt(draws=1), tried[0]).run()
    monkeypatch.setattr("echelon.planning.policies.echelon.trials.available", lambda: False)
    again = PlanSearch(jobs, fabric, tried, Doubt(draws=1), tried[0]).run()
    assert again.best.candidate == choice.best.candidate
    assert [one.candidate for one in again.tried] == [one.candidate for one in choice.tried]
    for one, other in zip(again.tried, choice.tried, strict=True):
        assert (one.iterations, one.draws) == (other.iterations, other.draws)
        assert one.score == pytest.approx(other.score, rel=1e-5)


@pytest.mark.parametrize("share", [1, 4, 20, 400, 10_000])
def test_a_search_takes_no_more_work_than_allowed(
    share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of all simulations together, with a fraction of what they would take.

    The first two candidates are simulated in any case, to tell what the others take.
    """
    jobs, fabric = mix(7, 3), pairs(3)
    in_force = PlanCandidate("delayed_first")
    runs: list[NativeRun] = []

    class Counted(NativeRun):
        def __init__(self, network: NativeNetwork, *args: Any, **kwargs: Any) -> None:
            super().__init__(network, *args, **kwargs)
            # Runs of jobs alone come on top.
            if kwargs["iterations"] is None:
                runs.append(self)

    def chosen(most_work: int | None) -> Choice[PlanCandidate]:
        runs.clear()
        tried = candidates(False)
        return PlanSearch(jobs, fabric, tried, Doubt(), in_force, most_work=most_work).run()

    monkeypatch.setattr("echelon.planning.policies.echelon.trials.NativeRun", Counted)
    unlimited = chosen(None)
    most = sum(run.work for run in runs) // share
    with monkeypatch.context() as first:
        first.setattr("echelon.planning.policies.echelon.search.ROUNDS", ROUNDS[:1])
        chosen(None)
        work_of_two = sum(run.work for run in runs[:2])
    choice = chosen(most)
    assert sum(run.work for run in runs) <= most + work_of_two
    assert len(choice.tried) <= len(unlimited.tried)
    assert choice.best.iterations <= unlimited.best.iterations
    # What is in force is compared with the best in as many draws.
    draws = {one.candidate: one.draws for one in choice.tried}
    assert draws[in_force] == choice.best.draws
    if share == 10_000:
        # Not even one simulation: the plan stays, with the reason.
        assert choice.best.candidate == in_force
        assert "too large to be simulated" in (choice.best.problem or "")


def test_a_dear_plan_goes_on_while_there_is_work_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However dear it is beside the others: with few events, the average says little."""
    jobs, fabric = mix(7, 3), pairs(3)
    choice = search(jobs, fabric).run()
    monkeypatch.setattr("echelon.planning.policies.echelon.search._DEAREST", 0)
    assert search(jobs, fabric).run() == choice


def test_a_restart_goes_on_with_the_chosen_plan() -> None:
    jobs, fabric = mix(3, 4), pairs(4, spines=2)
    policy = Echelon(Echelon.Parameters(draws=0))
    chosen = policy.best_plan(jobs, fabric)
    other = Echelon(Echelon.Parameters(draws=0))
    other.take(policy.to_document())
    assert other.plan(jobs, fabric) == chosen


def test_a_restart_is_as_loyal_to_a_plan_that_a_search_has_kept() -> None:
    """The plan without a search may be what a search chose: another must be 1 % better then."""
    jobs, fabric = mix(3, 3), pairs(3)
    policy = Echelon(Echelon.Parameters(draws=0))
    policy.plan(jobs, fabric)
    [first] = policy.searches(jobs, fabric)
    free = first.run()
    kept = next(tried for tried in free.tried if tried.candidate == UNSEARCHED)
    assert free.best.score < kept.score < 1.01 * free.best.score
    policy.adopt(first.group, Choice(kept, free.tried))
    names = [job.name for job in jobs]
    [again] = policy.searches(jobs, fabric, names)
    assert again.run().best.candidate == UNSEARCHED

    other = Echelon(Echelon.Parameters(draws=0))
    other.take(json.loads(json.dumps(policy.to_document())))
    other.plan(jobs, fabric)
    [after] = other.searches(jobs, fabric)
    assert after.run().best.candidate == UNSEARCHED


def test_a_store_of_before_blends_had_names_is_read() -> None:
    assert sorted(FORMER_NAMES.values()) == sorted(BLENDS)
    for code, name in FORMER_NAMES.items():
        candidate = PlanCandidate(name, shifted=True)
        document = {**candidate.to_document(), "rule": code}
        assert PlanCandidate.of_document(document) == candidate
    with pytest.raises(ValueError, match="rule k9"):
        PlanCandidate.of_document({**FAIR.to_document(), "policy": "", "rule": "k9"})


@pytest.mark.parametrize("order", ["left", "memory", "normalised", "deadline", "setf"])
def test_a_restart_changes_no_plan_that_depends_on_those_before(order: str) -> None:
    jobs, fabric = mix(3, 4), pairs(4, spines=2)
    policy, other = make_policy("echelon", order=order), make_policy("echelon", order=order)
    assert isinstance(policy, Echelon)
    assert isinstance(other, Echelon)
    for count in (1, 2, 3, 4):
        plan = policy.plan(jobs[:count], fabric)
    other.take(json.loads(json.dumps(policy.to_document())))
    assert other.plan(jobs, fabric) == plan


@given(st.integers(0, 10**6))
def test_jobs_that_share_links_are_one_group(seed: int) -> None:
    """The groups are the components of a graph of jobs and links.

    Jobs on one leaf share links with hosts only.
    """
    random, fabric = Random(seed), pairs(8)
    hosts = sorted(fabric.hosts)
    jobs = [
        Job(f"job{n}", *all_reduce(random.sample(hosts, 2), Fraction(1, 10), 1000))
        for n in range(random.randint(1, 6))
    ]
    policy = Echelon()
    plan = policy.plan(jobs, fabric)
    graph = networkx.Graph((flow.job, link) for flow in plan.flows for link in pairwise(flow.path))
    names = {job.name for job in jobs}
    assert set(policy.choices) == {
        frozenset(part & names) for part in networkx.connected_components(graph)
    }


@pytest.mark.parametrize("seed", range(4))
def test_what_is_chosen_for_jobs_that_come_one_after_the_other_is_as_if_they_came_at_once(
    seed: int,
) -> None:
    """The plan of a job that shared no links is no choice to stay with."""
    jobs, fabric = mix(seed, 3), pairs(3)
    one_by_one, at_once = Echelon(), Echelon()
    for count in (1, 2, 3):
        one_by_one.plan(jobs[:count], fabric)
    at_once.plan(jobs, fabric)
    for policy in (one_by_one, at_once):
        [found] = policy.searches(jobs, fabric)
        policy.adopt(found.group, found.run())
    assert one_by_one.plan(jobs, fabric) == at_once.plan(jobs, fabric)


def test_jobs_without_flows_are_alone() -> None:
    """They share no link, so that no two of them are a group."""
    jobs = [Job(f"job{n}", (ComputeUnit("c", f"a{n}", Fraction(1)),), (), ()) for n in range(2)]
    policy = Echelon()
    policy.plan(jobs, pairs(2))
    assert policy.choices.keys() == {frozenset({"job0"}), frozenset({"job1"})}


def test_a_group_too_large_to_be_simulated_keeps_its_plan_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, fabric = mix(7, 3), pairs(3)
    policy = Echelon()
    policy.plan(jobs, fabric)
    assert len(policy.searches(jobs, fabric)) == 1
    steps = sum(len(job.computes) + len(job.flows) for job in jobs)
    monkeypatch.setattr("echelon.planning.policies.echelon.policy.MOST_STEPS", steps - 1)
    [search] = policy.searches(jobs, fabric)
    choice = search.run()
    assert choice.best.candidate == policy.choices[search.group].candidate
    assert f"{steps:,} steps" in (choice.best.problem or "")
    assert not policy.adopt(search.group, choice)
    assert policy.searches(jobs, fabric) == []


def test_copies_that_start_together_are_separated() -> None:
    """Both send for half of their iteration: together they take 1.5 times as long, one after the
    other as long as alone."""
    jobs = [
        Job(f"copy{n}", *all_reduce([f"a{n}", f"b{n}"], Fraction(1), 1_000_000)) for n in range(2)
    ]
    result = simulate(jobs, pairs(2), make_policy("echelon"), 8)
    for job in jobs:
        times_s = [float(time_s) for time_s in result.iteration_times_s(job.name)]
        assert times_s[3:] == pytest.approx([2] * len(times_s[3:]), rel=0.03)


def test_where_a_chosen_policy_gives_no_rates_its_plan_is_executed() -> None:
    """A run with ideal rates asks the policy, and `mfs` has a plan only."""
    jobs, fabric = mix(7, 3), pairs(3)
    policy = Echelon(Echelon.Parameters(plan="rule"))
    plan = policy.plan(jobs, fabric)
    assert policy.allocates
    group = next(group for group in policy.choices if len(group) > 1)
    policy.adopt(group, Choice(Prediction(MFS, {}, 1, 1), ()))
    assert policy.plan(jobs, fabric) != plan
    assert not policy.allocates
    run = simulate(jobs, fabric, policy, 2, ideal=True)
    assert all(record.finished for record in run.jobs.values())
