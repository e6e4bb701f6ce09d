"""Max-K-cut of the contention graph (Crux, section 4.3), against brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.planning.policies.crux.compression import best_cut, compress, contention, random_order
from tests.drawing import examples

Graph = dict[tuple[str, str], Fraction]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], Graph]:
    """Draw jobs in order of priority, and edges downwards between some of them; an edge has the
    weight of its upper end.
    """
    jobs = [f"j{k}" for k in range(draw(st.integers(1, 7)))]
    weights = {job: Fraction(draw(st.integers(1, 100))) for job in jobs}
    pairs = list(combinations(jobs, 2))
    kept = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return jobs, {(above, below): weights[above] for above, below in kept}


def cut(edges: Graph, levels: dict[str, int]) -> Fraction:
    return sum(
        (weight for (above, below), weight in edges.items() if levels[above] < levels[below]),
        Fraction(0),
    )


@given(graphs(), st.integers(1, 4))
def test_the_cut_of_an_order_is_the_best_there_is(
    graph: tuple[list[str], Graph], levels: int
) -> None:
    jobs, edges = graph
    weight, blocks = best_cut(jobs, edges, levels)
    assert [job for block in blocks for job in block] == jobs
    assert len(blocks) <= levels
    level = {job: number for number, block in enumerate(blocks) for job in block}
    assert weight == cut(edges, level)
    cuts = (
        chosen for count in range(levels) for chosen in combinations(range(1, len(jobs)), count)
    )
    best = max(
        cut(edges, {job: sum(k >= at for at in chosen) for k, job in enumerate(jobs)})
        for chosen in cuts
    )
    assert weight == best


@given(graphs(), st.integers(0, 10**6))
def test_orders_follow_the_edges(graph: tuple[list[str], Graph], seed: int) -> None:
    jobs, edges = graph
    order = random_order(jobs, edges, Random(seed))
    assert sorted(order) == sorted(jobs)
    assert all(order.index(above) < order.index(below) for above, below in edges)


def test_every_order_can_come_up() -> None:
    """Three jobs below one have six orders."""
    jobs = ["a", "b", "c", "d"]
    edges = {("a", other): Fraction(1) for other in "bcd"}
    random = Random(1)
    assert len({tuple(random_order(jobs, edges, random)) for _ in range(200)}) == 6


@settings(max_examples=examples(40))
@given(graphs(), st.integers(1, 3))
def test_no_edge_leads_upwards_and_enough_orders_find_the_optimum(
    graph: tuple[list[str], Graph], levels: int
) -> None:
    jobs, edges = graph
    found = compress(jobs, edges, levels, orders=60)
    assert all(found[above] <= found[below] for above, below in edges)
    valid = (
        dict(zip(jobs, chosen, strict=True)) for chosen in product(range(levels), repeat=len(jobs))
    )
    best = max(
        cut(edges, each)
        for each in valid
        if all(each[above] <= each[below] for above, below in edges)
    )
    assert cut(edges, found) == best


def test_contention_is_between_jobs_that_share_a_link() -> None:
    priorities = {"a": Fraction(1), "b": Fraction(3), "c": Fraction(2)}
    intensities = {"a": Fraction(10), "b": Fraction(20), "c": Fraction(30)}
    one, two = ("s1", "h1"), ("s1", "h2")
    links = {"a": frozenset({one, two}), "b": frozenset({one}), "c": frozenset({two})}
    assert contention(priorities, intensities, links) == {("b", "a"): 20, ("c", "a"): 30}


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_chain_in_fewer_levels(levels: int) -> None:
    """The most intense of three jobs that all meet is told apart first."""
    edges = {("a", "b"): Fraction(9), ("a", "c"): Fraction(9), ("b", "c"): Fraction(2)}
    expected = {1: [0, 0, 0], 2: [0, 1, 1], 3: [0, 1, 2]}[levels]
    assert compress(["a", "b", "c"], edges, levels, 10) == dict(zip("abc", expected, strict=True))
