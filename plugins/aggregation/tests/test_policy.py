"""Rates with memory: the definition of max-min fairness, the core's filling, and times by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.fabric.builders import leaf_spine, one_tor
from echelon.model.fabric.load import build_fabric
from echelon.model.fabric.model import Fabric, root_of
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.fluid import FluidResult, simulate
from echelon.planning.policies.fair import Fair
from echelon.planning.policies.filling import fill_evenly
from echelon.planning.policies.registry import PolicyChoiceError, make_policy
from echelon_aggregation.comparison import Training
from echelon_aggregation.filling import fill
from echelon_aggregation.panama import TreesByLoad
from echelon_aggregation.policy import Aggregation
from tests.drawing import examples
from tests.faults import coded

LINKS = tuple((name, "x") for name in "abcde")
RATE_BPS = 8_000_000


@st.composite
def drawn_loads(draw: st.DrawFn) -> tuple[list[dict[Link, float]], list[float], dict[Link, float]]:
    loads = draw(
        st.lists(
            st.dictionaries(st.sampled_from(LINKS), st.integers(1, 5).map(float), min_size=1),
            min_size=1,
            max_size=6,
        )
    )
    most = [draw(st.sampled_from([float("inf"), 1.0, 5.0])) for _ in loads]
    return loads, most, {link: float(draw(st.integers(1, 20))) for link in LINKS}


@settings(max_examples=examples(200))
@given(drawn_loads())
def test_rates_are_max_min_fair(
    drawn: tuple[list[dict[Link, float]], list[float], dict[Link, float]],
) -> None:
    loads, most, capacity = drawn
    rates = fill(loads, most, [range(len(loads))], dict(capacity))
    used = {
        link: sum(rate * load.get(link, 0) for rate, load in zip(rates, loads, strict=True))
        for link in LINKS
    }
    assert all(used[link] <= capacity[link] * (1 + 1e-9) for link in LINKS)
    for rate, limit, load in zip(rates, most, loads, strict=True):
        # Nobody gains without taking from a flow that has no more.
        held_up = any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and rate
            >= max(other for other, of in zip(rates, loads, strict=True) if link in of) * (1 - 1e-9)
            for link in load
        )
        assert held_up or rate == limit


@settings(max_examples=examples(100))
@given(drawn_loads())
def test_where_loads_are_one_rates_are_those_of_the_core(
    drawn: tuple[list[dict[Link, float]], list[float], dict[Link, float]],
) -> None:
    loads, _, capacity = drawn
    flows = [
        ActiveFlow("j", str(at), 1, None, tuple(load), 1, 1.0, 0.0, 0.0, at)
        for at, load in enumerate(loads)
    ]
    expected: list[Any] = [0.0] * len(flows)
    fill_evenly(flows, range(len(flows)), dict(capacity), expected)
    ones = [dict.fromkeys(load, 1.0) for load in loads]
    found = fill(ones, [float("inf")] * len(loads), [range(len(loads))], dict(capacity))
    assert found == pytest.approx(expected)


def test_tiers_take_what_those_before_leave() -> None:
    link = LINKS[0]
    assert fill(
        [{link: 2.0}, {link: 1.0}, {link: 1.0}], [3.0, 9.0, 9.0], [[0], [1, 2]], {link: 10.0}
    ) == [3, 2, 2]


TOR = build_fabric(one_tor(8, RATE_BPS))
BYTES = 125_000


def jobs(gradient_bytes: int = BYTES) -> list[Job]:
    """Return two jobs that compute for a second; its data takes `share_s()` of one on a link."""
    hosts = tuple(TOR.hosts)
    return [
        Training(name, workers, Fraction(1), gradient_bytes).in_network()
        for name, workers in (("a", hosts[:4]), ("b", hosts[4:]))
    ]


def share_s() -> float:
    return 8 * jobs()[0].flows[0].size_bytes / RATE_BPS


def run(of: list[Job], fabric: Fabric = TOR, **parameters: Any) -> FluidResult:
    return simulate(of, fabric, make_policy("aggregation", window=8, **parameters), 1)


def finishes(result: FluidResult) -> list[Any]:
    return [record.iterations[0].finish for record in result.jobs.values()]


def test_without_memory_the_fallbacks_link_carries_all_contributions_and_the_result() -> None:
    assert finishes(run(jobs(), places=0)) == pytest.approx([1 + 5 * share_s()] * 2)


def test_with_memory_for_both_each_takes_as_long_as_alone() -> None:
    assert finishes(run(jobs(), places=32)) == pytest.approx([1 + share_s()] * 2)


def test_static_memory_is_the_first_jobs() -> None:
    assert finishes(run(jobs(), by="share", places=31)) == pytest.approx(
        [1 + share_s(), 1 + 5 * share_s()]
    )


def test_first_come_both_have_half() -> None:
    # One half crosses the fallback's link once, the other five times.
    assert finishes(run(jobs(), by="first", places=16)) == pytest.approx([1 + 3 * share_s()] * 2)


def test_by_deadline_the_earlier_job_has_all_and_then_the_other() -> None:
    a, b = jobs()
    late = Job("b", b.computes, b.flows, b.echelonflows, Fraction(1, 100))
    # Until the first has finished, the second is served at a fifth of the rate.
    first = 1 + share_s()
    left = share_s() - (first - 1.01) / 5
    assert finishes(run([a, late], places=16)) == pytest.approx([first, first + left])


def test_with_enough_memory_rates_are_fair_ones() -> None:
    fabric = build_fabric(leaf_spine(2, 1, 4, 4, RATE_BPS))
    hosts = tuple(fabric.hosts)
    of = [
        Training("a", hosts[:3] + hosts[4:6], Fraction(1), BYTES).in_network(),
        Training("b", (hosts[3], *hosts[6:]), Fraction(1), 3 * BYTES).in_network(),
        Training("c", hosts, Fraction(1, 2), BYTES).by_hosts(),
    ]
    fair = simulate(of, fabric, Fair(), 5, ideal=True)
    own = simulate(of, fabric, Aggregation(), 5)
    for name, record in fair.jobs.items():
        assert [one.finish for one in own.jobs[name].iterations] == pytest.approx(
            [one.finish for one in record.iterations]
        )


def test_by_deadline_on_links_too() -> None:
    of = [
        Training(name, ("h1", f"h{at + 1}"), Fraction(at), BYTES).in_network()
        for at, name in ((1, "a"), (2, "b"))
    ]
    of[0] = Training("a", ("h1", "h2"), Fraction(1), 16 * BYTES).in_network()
    done = finishes(run(of, rates="deadline"))
    whole = 8 * of[0].flows[0].size_bytes / RATE_BPS
    assert done == pytest.approx([1 + whole, 1 + whole + share_s()])


def test_a_plan_without_trees_needs_no_rates_of_its_own() -> None:
    policy = Aggregation()
    assert not policy.plan(
        [Training("a", ("h1", "h2"), Fraction(1), BYTES).by_hosts()], TOR
    ).allocated
    assert policy.plan(jobs(), TOR).allocated
    assert [claim.places for claim in policy.claims()] == [512, 512]
    assert [grant and (grant.first, grant.mask) for _, grant in policy.grants()] == [(0, 4095)] * 2


def test_a_window_is_a_power_of_two() -> None:
    with pytest.raises(PolicyChoiceError, check=coded("invalid-value", "9", parameter="window")):
        make_policy("aggregation", window=9)


def test_trees_are_chosen_by_load() -> None:
    fabric = build_fabric(leaf_spine(2, 4, 4, rate_bps=RATE_BPS))
    hosts = tuple(fabric.hosts)
    of = [
        Training(f"j{at}", (hosts[at], hosts[at + 4]), Fraction(1), BYTES * (4 - at)).in_network()
        for at in range(4)
    ]
    extra = Training("j4", (hosts[0], hosts[4]), Fraction(1), BYTES).in_network()
    chooser = TreesByLoad()

    def roots(found: Any) -> list[str]:
        return [root_of(path) for routes in found.values() for path in routes.values()]

    assert roots(chooser.route(fabric, of)) == ["spine1", "spine2", "spine3", "spine4"]
    assert roots(chooser.route(fabric, [*of, extra]))[-1] == "spine4"  # the smallest is there
    assert set(roots(TreesByLoad(always_first=True).route(fabric, of))) == {"spine1"}
    split = Training("s", (hosts[0], hosts[4]), Fraction(1), BYTES).in_network(trees=2)
    assert len(set(roots(TreesByLoad().route(fabric, [split])))) == 2
    without = fabric.without([("leaf1", "spine1")])
    assert "spine1" not in roots(chooser.route(without, of))
