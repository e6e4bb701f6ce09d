"""Max-min fairness and filling in order, against definitions and linear programming."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from echelon.planning.allocation import ActiveFlow, Link, Number
from echelon.planning.policies.filling import fill_evenly, fill_in_order
from tests.drawing import examples

LINKS: list[Link] = [("s", f"h{k}") for k in range(5)]
capacities_of = st.fixed_dictionaries(
    {link: st.fractions(1, 20, max_denominator=7) for link in LINKS}
)
shapes = st.lists(
    st.tuples(
        st.lists(st.sampled_from(LINKS), min_size=1, max_size=3, unique=True),
        st.none() | st.fractions(Fraction(1, 9), 9, max_denominator=9),
    ),
    min_size=1,
    max_size=8,
)


def made(
    active: Callable[..., ActiveFlow], shape: Sequence[tuple[list[Link], Fraction | None]]
) -> list[ActiveFlow]:
    return [active(k, tuple(links), max_rate_Bps=limit) for k, (links, limit) in enumerate(shape)]


def load_of(flows: Sequence[ActiveFlow], rates: Sequence[Fraction]) -> dict[Link, Fraction]:
    load: dict[Link, Fraction] = defaultdict(Fraction)
    for flow, rate in zip(flows, rates, strict=True):
        for link in flow.links:
            load[link] += rate
    return load


@settings(max_examples=examples(80), deadline=None)
@given(capacities=capacities_of, shape=shapes)
def test_every_flow_has_a_bottleneck(
    active: Callable[..., ActiveFlow],
    capacities: dict[Link, Fraction],
    shape: list[tuple[list[Link], Fraction | None]],
) -> None:
    """An allocation is max-min fair if and only if each flow is at its own limit, or crosses a full
    link on which none is faster (Bertsekas and Gallager, Data Networks, section 6.5.2)."""
    flows = made(active, shape)
    rates, residual = [Fraction(0)] * len(flows), dict(capacities)
    fill_evenly(flows, range(len(flows)), residual, rates)
    load = load_of(flows, rates)
    assert residual == {link: capacities[link] - load[link] for link in LINKS}
    assert min(residual.values()) >= 0
    for flow, rate in zip(flows, rates, strict=True):
        fastest = {
            link: max(r for f, r in zip(flows, rates, strict=True) if link in f.links)
            for link in flow.links
        }
        bottlenecked = any(not residual[link] and fastest[link] == rate for link in flow.links)
        at_limit = rate == flow.max_rate_Bps
        assert bottlenecked or at_limit
        assert flow.max_rate_Bps is None or rate <= flow.max_rate_Bps


@settings(max_examples=examples(200), deadline=None)
@given(
    capacities=st.fixed_dictionaries({link: st.floats(1e5, 1e7) for link in LINKS}),
    shape=shapes,
    groups=st.integers(2, 4),
)
def test_no_rate_is_negative_however_numbers_round(
    active: Callable[..., ActiveFlow],
    capacities: dict[Link, float],
    shape: list[tuple[list[Link], Fraction | None]],
    groups: int,
) -> None:
    flows = made(active, [(links, None) for links, _ in shape])
    rates: list[Number] = [0.0] * len(flows)
    residual: dict[Link, Number] = {**capacities}
    for group in range(groups):
        fill_evenly(flows, range(group, len(flows), groups), residual, rates)
    assert min(rates) >= 0


def max_min_by_programming(
    flows: Sequence[ActiveFlow], capacities: dict[Link, Fraction]
) -> list[float]:
    """Lexicographically: raise the least rate as far as it goes, fix what cannot exceed it, and so
    on.
    """
    count, fixed = len(flows), dict[int, float]()
    use = np.array([[float(link in flow.links) for flow in flows] for link in LINKS])
    room = np.array([float(capacities[link]) for link in LINKS])
    limit = [None if f.max_rate_Bps is None else float(f.max_rate_Bps) for f in flows]
    while len(fixed) < count:
        # Variables: the rates, then the least of those not fixed yet.
        below = [
            [-float(i == k) for i in range(count)] + [1.0] for k in range(count) if k not in fixed
        ]
        bounds = [(fixed[k], fixed[k]) if k in fixed else (0.0, limit[k]) for k in range(count)]
        matrix = np.vstack([np.hstack([use, np.zeros((len(LINKS), 1))]), below])
        right = np.concatenate([room, np.zeros(len(below))])
        least = linprog([0.0] * count + [-1.0], matrix, right, bounds=[*bounds, (0, None)]).x[-1]
        stuck = {}
        for k in range(count):
            if k not in fixed:
                floors = [
                    bounds[i] if i in fixed else (max(0.0, least - 1e-9), limit[i])
                    for i in range(count)
                ]
                most = linprog(
                    [-float(i == k) for i in range(count)], use, room + 1e-9, bounds=floors
                ).x[k]
                if most < least + 1e-6:
                    stuck[k] = least
        fixed |= stuck
    return [fixed[k] for k in range(count)]


@settings(max_examples=15, deadline=None)
@given(capacities=capacities_of, shape=shapes)
def test_progressive_filling_as_by_linear_programming(
    active: Callable[..., ActiveFlow],
    capacities: dict[Link, Fraction],
    shape: list[tuple[list[Link], Fraction | None]],
) -> None:
    flows = made(active, shape)
    rates = [Fraction(0)] * len(flows)
    fill_evenly(flows, range(len(flows)), dict(capacities), rates)
    assert [float(rate) for rate in rates] == pytest.approx(
        max_min_by_programming(flows, capacities), abs=1e-5
    )


def test_the_textbook_chain(active: Callable[..., ActiveFlow]) -> None:
    """Three flows get thirds of the narrow link; one of them also crosses the wide link, whose
    other flow gets more.
    """
    a, b = LINKS[:2]
    flows = [active(0, (a, b)), active(1, (a,)), active(2, (b,)), active(3, (a,))]
    rates = [Fraction(0)] * 4
    fill_evenly(flows, range(4), {a: Fraction(1), b: Fraction(2)}, rates)
    assert rates == [Fraction(1, 3), Fraction(1, 3), Fraction(5, 3), Fraction(1, 3)]


@settings(max_examples=examples(50), deadline=None)
@given(capacities=capacities_of, shape=shapes, data=st.data())
def test_filling_in_order_gives_each_flow_all_that_is_left(
    active: Callable[..., ActiveFlow],
    capacities: dict[Link, Fraction],
    shape: list[tuple[list[Link], Fraction | None]],
    data: st.DataObject,
) -> None:
    flows = made(active, shape)
    order = data.draw(st.permutations(range(len(flows))))
    rates, residual = [Fraction(0)] * len(flows), dict(capacities)
    fill_in_order(flows, order, residual, rates)
    left = dict(capacities)
    for k in order:
        limits = [left[link] for link in flows[k].links]
        if flows[k].max_rate_Bps is not None:
            limits.append(flows[k].max_rate_Bps)
        assert rates[k] == min(limits)
        for link in flows[k].links:
            left[link] -= rates[k]
    assert residual == left


@settings(max_examples=30, deadline=None)
@given(capacities=capacities_of, shape=shapes, cut=st.integers(0, 8))
def test_fillings_add_up(
    active: Callable[..., ActiveFlow],
    capacities: dict[Link, Fraction],
    shape: list[tuple[list[Link], Fraction | None]],
    cut: int,
) -> None:
    """Filling what is full changes nothing, and senders' limits count what they already have."""
    flows = made(active, shape)
    rates, residual = [Fraction(0)] * len(flows), dict(capacities)
    fill_evenly(flows, range(min(cut, len(flows))), residual, rates)
    fill_in_order(flows, range(len(flows)), residual, rates)
    again, left = list(rates), dict(residual)
    fill_evenly(flows, range(len(flows)), left, again)
    assert (again, left) == (rates, residual)
    assert all(
        f.max_rate_Bps is None or r <= f.max_rate_Bps for f, r in zip(flows, rates, strict=True)
    )
