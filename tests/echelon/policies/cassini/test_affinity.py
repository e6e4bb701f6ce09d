"""The affinity graph: one shift for each job, on which all its links agree."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from echelon.planning.policies.cassini.affinity import Wish, agree

TOLERANCE = Fraction(1, 100)


def wish(gain: float = 1, **shifts_s: int) -> Wish:
    return Wish({job: Fraction(shift_s) for job, shift_s in shifts_s.items()}, gain, TOLERANCE)


def periods(**of: int) -> dict[str, Fraction]:
    return {job: Fraction(period_s) for job, period_s in of.items()}


def test_a_chain_of_links_adds_up() -> None:
    """The paper's formula: t_k = t_j - t_j on the link + t_k on the link, modulo k's period."""
    wishes = [wish(a=0, b=3), wish(b=1, c=4)]
    every = periods(a=10, b=10, c=10)
    found = agree(wishes, every, dict.fromkeys(every, Fraction(0)))
    assert found.shifts_s == {"a": 0, "b": 3, "c": 6}
    assert found.ignored == ()


def test_components_have_their_own_origin() -> None:
    every = periods(a=10, b=10, c=10, d=10)
    starts = {"a": Fraction(2), "b": Fraction(0), "c": Fraction(7), "d": Fraction(0)}
    found = agree([wish(a=0, b=3), wish(c=0, d=5)], every, starts)
    assert found.shifts_s == {"a": 2, "b": 5, "c": 7, "d": 2}


def test_a_loop_that_agrees_costs_nothing() -> None:
    every = periods(a=10, b=10)
    found = agree([wish(a=0, b=3), wish(a=2, b=5)], every, dict.fromkeys(every, Fraction(0)))
    assert found.ignored == ()
    # With periods of 4 and 6 only the phase modulo 2 matters.
    every = periods(a=4, b=6)
    found = agree([wish(a=0, b=1), wish(a=0, b=5)], every, dict.fromkeys(every, Fraction(0)))
    assert found.ignored == ()


def test_a_loop_that_contradicts_itself_costs_the_link_that_gains_least() -> None:
    every = periods(a=10, b=10, c=10)
    wishes = [wish(0.3, a=0, b=5), wish(0.1, b=0, c=5), wish(0.2, c=0, a=5)]
    found = agree(wishes, every, dict.fromkeys(every, Fraction(0)))
    assert found.ignored == (1,)
    assert found.shifts_s == {"a": 0, "b": 5, "c": 5}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), max_size=12))
def test_every_wish_that_is_not_ignored_comes_true(drawn: list[tuple[int, int, int]]) -> None:
    every = periods(**{f"j{k}": 10 for k in range(6)})
    wishes = [
        wish(k, **{f"j{a}": 0, f"j{b}": shift}) for k, (a, b, shift) in enumerate(drawn) if a != b
    ]
    found = agree(wishes, every, dict.fromkeys(every, Fraction(0)))
    for index, one in enumerate(wishes):
        (a, _), (b, shift_s) = one.shifts_s.items()
        apart = (found.shifts_s[b] - found.shifts_s[a] - shift_s) % 10
        assert (apart == 0) == (index not in found.ignored)
