"""Orders between EchelonFlows: exact overtaking times, and levels for switches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.plan import LEVELS
from echelon.planning.policies.echelon.policy import Echelon
from echelon.planning.policies.orders import (
    MEMORY,
    ORDERS,
    STEPS,
    THRESHOLDS,
    Blended,
    EarliestDeadline,
    JobFacts,
    NormalisedTardiness,
    SmallestTardiness,
    Urgency,
    next_overtaking_s,
    overtaking_s,
)
from echelon.planning.policies.tardiness import effective_tardiness_s
from echelon.planning.rankings.deadline import Deadline, Relative
from tests.drawing import examples

LINKS: list[Link] = [("s", f"h{k}") for k in range(3)]
numbers = st.fractions(-5, 5, max_denominator=6)


def facts(
    alone: Fraction | int, weight: Fraction | int = 1, tardiness: Fraction | int = 1
) -> JobFacts:
    return JobFacts(Fraction(alone), Fraction(weight), {"H": Fraction(tardiness)})


@st.composite
def moving_flows(draw: st.DrawFn) -> list[tuple[tuple[Link, ...], Fraction, Fraction]]:
    links = st.lists(st.sampled_from(LINKS), min_size=1, max_size=2, unique=True).map(tuple)
    periods = st.sampled_from([Fraction(1), Fraction(2), Fraction(5, 2), Fraction(7)])
    return draw(st.lists(st.tuples(links, numbers, periods), min_size=1, max_size=7))


@settings(max_examples=examples(100), deadline=None)
@given(made=moving_flows(), now=st.fractions(0, 9, max_denominator=5))
def test_the_order_on_every_link_holds_until_the_next_overtaking(
    active: Callable[..., ActiveFlow],
    made: list[tuple[tuple[Link, ...], Fraction, Fraction]],
    now: Fraction,
) -> None:
    """Neighbours are enough: no pair on any link, neighbours or not, changes places earlier, and
    one does then.
    """
    order = NormalisedTardiness()
    flows = [active(k, links, deadline_s=ideal) for k, (links, ideal, _) in enumerate(made)]
    jobs = [facts(period) for _, _, period in made]

    def ranks(at: Fraction) -> list[Urgency]:
        return [
            order.urgency(job, at, flow, flow.deadline_s)
            for job, flow in zip(jobs, flows, strict=True)
        ]

    def on_links(urgencies: list[Urgency]) -> list[list[int]]:
        ranked = sorted(range(len(flows)), key=lambda i: urgencies[i].rank)
        return [[i for i in ranked if link in flows[i].links] for link in LINKS]

    urgencies = ranks(now)
    ranked = sorted(range(len(flows)), key=lambda i: urgencies[i].rank)
    wait = next_overtaking_s(flows, ranked, dict(enumerate(urgencies)))

    # By definition: every pair that shares a link meets where their lines cross.
    meetings = []
    for a in range(len(flows)):
        for b in range(len(flows)):
            slopes = 1 / made[a][2], 1 / made[b][2]
            if slopes[0] < slopes[1] and set(flows[a].links) & set(flows[b].links):
                crossing = (made[b][1] * slopes[1] - made[a][1] * slopes[0]) / (
                    slopes[1] - slopes[0]
                )
                if crossing > now:
                    meetings.append(crossing)
    assert wait == (min(meetings) - now if meetings else None)
    if wait is not None:
        assert wait > 0
        assert on_links(ranks(now + wait * Fraction(999, 1000))) == on_links(urgencies)
        assert on_links(ranks(now + wait)) != on_links(urgencies)


def test_overtaking_is_exact() -> None:
    ahead = Urgency(Fraction(1, 3), Fraction(1, 7), Fraction(0), Fraction(0), 0)
    behind = Urgency(Fraction(-1, 2), Fraction(1, 3), Fraction(0), Fraction(0), 1)
    assert (
        overtaking_s(ahead, behind)
        == Fraction(5, 6) / (Fraction(1, 3) - Fraction(1, 7))
        == Fraction(35, 8)
    )
    assert overtaking_s(behind, ahead) is None


def test_the_fluid_changes_rates_exactly_then(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """A job twice as fast catches up: key (t - 0) / 4 of the slow one against (t - 1) / 2 of the
    fast one, at t = 2.
    """
    policy = Echelon(Echelon.Parameters(order="normalised"))
    jobs = [
        Job(
            name,
            (ComputeUnit("c", "h1", Fraction(alone - 1)),),
            (Flow(flow, "h1", "h2", 1000, ("c",)),),
            (held,),
        )
        for name, flow, alone in (("slow", "f0", 4), ("fast", "f1", 2))
        for held in (EchelonFlow("H", (flow,), (Fraction(0),)),)
    ]
    policy.plan(jobs, star(2))
    links = (("h1", "s1"), ("s1", "h2"))
    flows = [
        active(0, links, job="slow", start_s=Fraction(0)),
        active(1, links, job="fast", start_s=Fraction(1)),
    ]
    before = policy.allocate(Fraction(3, 2), flows)
    assert (before.rates_Bps, before.valid_until_s) == ((1000, 0), 2)
    after = policy.allocate(Fraction(2), flows)
    assert (after.rates_Bps, after.valid_until_s) == ((0, 1000), None)


def test_weight_multiplies_normalised_tardiness(active: Callable[..., ActiveFlow]) -> None:
    order, flow, due = NormalisedTardiness(), active(0, (LINKS[0],)), Fraction(1)
    assert order.urgency(facts(4), Fraction(3), flow, due).value == Fraction(1, 2)
    assert order.urgency(facts(4, weight=3), Fraction(3), flow, due).value == Fraction(3, 2)
    assert order.levels({"j": facts(4, weight=2)})["j"].thresholds_s == tuple(
        2 * part for part in THRESHOLDS
    )


def test_memory_and_head_start_shift_the_rank(active: Callable[..., ActiveFlow]) -> None:
    """The rank is (3 - 1 + E - 1 / 2) / (4 / 2 * sqrt(9 / 4))."""
    order, flow = Blended(), active(0, (LINKS[0],))
    of_job = replace(facts(4, weight=2), busy_s=Fraction(1), occupied_s=Fraction(9))
    assert order.urgency(of_job, Fraction(3), flow, Fraction(1)).value == Fraction(3, 2) / 3
    assert (
        order.urgency(of_job, Fraction(3), flow, Fraction(1), Fraction(6)).value
        == Fraction(15, 2) / 3
    )
    assert order.urgency(of_job, Fraction(3), flow, Fraction(1)).slope == Fraction(1, 3)


@given(st.fractions(0, 20, max_denominator=1000))
def test_the_unit_grows_with_the_root_of_the_links_in_use(occupied_s: Fraction) -> None:
    unit_s = float(replace(facts(5), occupied_s=occupied_s).unit_s(MEMORY))
    assert unit_s == pytest.approx(5 * max(math.sqrt(occupied_s / 5), 0.01), abs=0.0005)


def test_switches_get_what_the_rank_needs(star: Callable[..., Fabric]) -> None:
    """The pipeline has two flows of 2 s on each of two links, 1 s apart; computing ends 1 s after
    the second.
    """
    computes = (
        ComputeUnit("a", "h1", Fraction(1)),
        ComputeUnit("b", "h1", Fraction(1), ("a",)),
        ComputeUnit("c", "h2", Fraction(1), ("f0",)),
        ComputeUnit("d", "h2", Fraction(1), ("c", "f1")),
    )
    flows = (Flow("f0", "h1", "h2", 2000, ("a",)), Flow("f1", "h1", "h2", 2000, ("b",)))
    job = Job(
        "j",
        computes,
        flows,
        (EchelonFlow("H", ("f0", "f1"), (Fraction(0), Fraction(1))),),
        weight=Fraction(2),
    )
    plan = Echelon().plan([job], star(2))
    # It sends from 1 to 5 s and ends at 6 s, so that two links are busy for two thirds; the second
    # flow is due at 2 s.
    unit_s = 3 * Fraction("1.1547")
    for flow in plan.flows:
        assert isinstance(flow.ranking, Deadline)
        assert flow.ranking.relative == Relative(
            unit_s, 2 / unit_s, Fraction(3), Fraction(6, 16), STEPS
        )
        assert flow.ranking.queues == range(1, 8)


def test_flows_of_a_job_that_are_due_together_share(
    active: Callable[..., ActiveFlow], star: Callable[..., Fabric]
) -> None:
    """Both cross h1's link; one after the other, the second would wait for nothing but its turn."""
    flows = tuple(Flow(f"f{k}", "h1", f"h{k + 2}", 1000) for k in range(2))
    job = Job("j", (), flows, (EchelonFlow.coflow("H", ("f0", "f1")),))
    policy = Echelon()
    policy.plan([job], star(3))
    here = [active(k, (("h1", "s1"), ("s1", f"h{k + 2}")), job="j") for k in range(2)]
    assert policy.allocate(Fraction(0), here).rates_Bps == (500, 500)


def test_thresholds_are_parts_of_the_time_alone() -> None:
    levels = NormalisedTardiness().levels({"a": facts(100), "b": facts(10)})
    assert levels["a"].thresholds_s == tuple(100 * part for part in THRESHOLDS)
    assert levels["b"].thresholds_s == tuple(10 * part for part in THRESHOLDS)


def test_each_level_but_the_lowest_can_have_its_threshold() -> None:
    assert len(THRESHOLDS) == LEVELS - 2
    assert all(a < b for a, b in pairwise(THRESHOLDS))


@pytest.mark.parametrize("order", [*ORDERS])
@pytest.mark.parametrize("count", range(1, 13))
def test_best_effort_has_the_lowest_level_to_itself(order: str, count: int) -> None:
    """Jobs have the other seven levels."""
    levels = ORDERS[order]().levels({f"j{k}": facts(10 + k, tardiness=k) for k in range(count)})
    assert {k for each in levels.values() for k in range(each.lowest, each.highest + 1)} == {
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    }


def test_by_deadline_all_jobs_have_the_median_jobs_thresholds() -> None:
    levels = EarliestDeadline().levels({"a": facts(100), "b": facts(10), "c": facts(50)})
    assert {each.thresholds_s for each in levels.values()} == {
        tuple(50 * part for part in THRESHOLDS)
    }
    assert EarliestDeadline().levels({}) == {}


@pytest.mark.parametrize("count", range(1, 13))
def test_smallest_tardiness_gives_each_job_a_band(count: int) -> None:
    jobs = {f"j{k}": facts(10, tardiness=(k * 7) % count) for k in range(count)}
    levels = SmallestTardiness().levels(jobs)
    ranked = sorted(jobs, key=lambda name: jobs[name].tardiness_s["H"])
    bands = [levels[name] for name in ranked]
    assert bands[0].highest == LEVELS - 1
    assert bands[-1].lowest == 1
    for upper, lower in pairwise(bands):
        assert lower.lowest <= lower.highest <= upper.highest
        if count <= 7:
            assert lower.highest == upper.lowest - 1
        else:
            assert upper.lowest == upper.highest
            assert lower.highest >= upper.lowest - 1
    for band in bands:
        assert len(band.thresholds_s) == band.highest - band.lowest
        assert all(a < b for a, b in pairwise(band.thresholds_s))
        assert set(band.thresholds_s) <= {10 * part for part in THRESHOLDS}


def test_a_single_job_has_all_levels() -> None:
    assert SmallestTardiness().levels({"j": facts(1)}) == NormalisedTardiness().levels(
        {"j": facts(1)}
    )


def test_two_jobs_split_the_levels_and_take_every_second_threshold() -> None:
    levels = SmallestTardiness().levels(
        {"a": facts(1, tardiness=2), "b": facts(1, weight=4, tardiness=4)}
    )
    assert (levels["b"].lowest, levels["b"].highest) == (5, 7)
    assert (levels["a"].lowest, levels["a"].highest) == (1, 4)
    assert levels["b"].thresholds_s == (THRESHOLDS[1] / 4, THRESHOLDS[3] / 4)
    assert levels["a"].thresholds_s == (THRESHOLDS[0], THRESHOLDS[2], THRESHOLDS[4])


def flows_between(pairs: list[tuple[str, str, int]]) -> tuple[Flow, ...]:
    return tuple(Flow(f"f{k}", src, dst, size) for k, (src, dst, size) in enumerate(pairs))


def paths_of(job: Job) -> dict[str, tuple[str, ...]]:
    return {flow.name: (flow.src, "s1", flow.dst) for flow in job.flows}


def test_effective_tardiness_of_a_staggered_echelonflow() -> None:
    """Three flows of 2 s, ideally 1 s apart, are done at 2, 4 and 6 s instead of 0, 1 and 2 s."""
    flows = flows_between([("h1", "h2", 2000)] * 3)
    echelonflow = EchelonFlow("H", ("f0", "f1", "f2"), (Fraction(0), Fraction(1), Fraction(2)))
    job = Job("j", (), flows, (echelonflow,))
    capacities = {("h1", "s1"): Fraction(1000), ("s1", "h2"): Fraction(1000)}
    assert effective_tardiness_s(echelonflow, job, paths_of(job), capacities) == 4


def test_effective_tardiness_counts_the_time_a_link_waits() -> None:
    """The second flow alone starts at its ideal time, after the link has been idle: the flows are 1
    s and 3 s late.
    """
    flows = flows_between([("h1", "h2", 1000), ("h1", "h2", 3000)])
    echelonflow = EchelonFlow("H", ("f0", "f1"), (Fraction(0), Fraction(5)))
    job = Job("j", (), flows, (echelonflow,))
    capacities = {("h1", "s1"): Fraction(1000), ("s1", "h2"): Fraction(1000)}
    assert effective_tardiness_s(echelonflow, job, paths_of(job), capacities) == 3


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 99)).filter(
            lambda f: f[0] != f[1]
        ),
        min_size=1,
        max_size=6,
    ),
    numbers,
)
def test_effective_tardiness_of_a_coflow_is_its_bottleneck(
    shuffle: list[tuple[int, int, int]], offset: Fraction
) -> None:
    flows = flows_between([(f"h{a}", f"h{b}", size) for a, b, size in shuffle])
    echelonflow = EchelonFlow("H", tuple(f.name for f in flows), (offset,) * len(flows))
    job = Job("j", (), flows, (echelonflow,))
    capacities = {
        link: Fraction(7) for k in range(1, 4) for link in ((f"h{k}", "s1"), ("s1", f"h{k}"))
    }
    ports = [sum(s for a, _, s in shuffle if a == k) for k in (1, 2, 3)]
    ports += [sum(s for _, b, s in shuffle if b == k) for k in (1, 2, 3)]
    assert effective_tardiness_s(echelonflow, job, paths_of(job), capacities) == Fraction(
        max(ports), 7
    )
