"""Weighted max-min fairness, against its definition."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.allocation import ActiveFlow, Link
from echelon.planning.policies.filling import fill_evenly
from echelon.planning.policies.weighted import fill_by_weight

LINKS: tuple[Link, ...] = tuple((f"s{k}", f"s{k + 1}") for k in range(4))
CAPACITIES = {link: Fraction(100 * (k + 1)) for k, link in enumerate(LINKS)}

paths = st.tuples(st.integers(0, 3), st.integers(1, 4)).map(lambda at: LINKS[at[0] : at[0] + at[1]])
limits = st.one_of(st.none(), st.integers(1, 200).map(Fraction))
sets = st.lists(st.tuples(paths, st.integers(1, 9).map(Fraction), limits), min_size=1, max_size=7)


@given(sets)
def test_nobody_can_gain_but_from_one_who_has_less(
    active: Callable[..., ActiveFlow],
    drawn: list[tuple[tuple[Link, ...], Fraction, Fraction | None]],
) -> None:
    """The rates meet the definition: each flow is at its limit, or has a full link on which no
    other has more for its weight.
    """
    flows = [active(k, path, max_rate_Bps=limit) for k, (path, _, limit) in enumerate(drawn)]
    weights = {k: weight for k, (_, weight, _) in enumerate(drawn)}
    residual = dict(CAPACITIES)
    rates = [Fraction(0)] * len(flows)
    fill_by_weight(flows, weights, residual, rates)
    for link in LINKS:
        used = sum(rate for flow, rate in zip(flows, rates, strict=True) if link in flow.links)
        assert used <= CAPACITIES[link]
        assert residual[link] == CAPACITIES[link] - used
    for k, flow in enumerate(flows):
        at_limit = rates[k] == flow.max_rate_Bps
        assert at_limit or any(
            residual[link] == 0
            and all(
                rates[k] / weights[k] >= rates[i] / weights[i]
                for i, other in enumerate(flows)
                if link in other.links
            )
            for link in flow.links
        )


@given(sets)
def test_equal_weights_are_fair_shares(
    active: Callable[..., ActiveFlow],
    drawn: list[tuple[tuple[Link, ...], Fraction, Fraction | None]],
) -> None:
    flows = [active(k, path, max_rate_Bps=limit) for k, (path, _, limit) in enumerate(drawn)]
    ours, theirs = [Fraction(0)] * len(flows), [Fraction(0)] * len(flows)
    fill_by_weight(flows, dict.fromkeys(range(len(flows)), Fraction(3)), dict(CAPACITIES), ours)
    fill_evenly(flows, range(len(flows)), dict(CAPACITIES), theirs)
    assert ours == theirs
