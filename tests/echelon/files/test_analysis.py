"""Graphs that are none are refused; orders and profile errors are as said."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.jobs.analysis import GraphError, connections, earliest_start_s, topological_order, with_profile_error
from echelon.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job


def job_of(needs: dict[str, tuple[str, ...]]) -> Job:
    """Names in upper case are flows."""
    computes = tuple(ComputeUnit(n, "h1", Fraction(1), after) for n, after in needs.items() if n.islower())
    flows = tuple(Flow(n, "h1", "h2", 1, after) for n, after in needs.items() if n.isupper())
    return Job("j", computes, flows, tuple(EchelonFlow(f.name, (f.name,), (Fraction(0),)) for f in flows))


@st.composite
def any_graph(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = draw(st.permutations(["a", "b", "c", "D", "E", "F"]))
    return {name: tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2))) for name in names}


@given(any_graph())
@settings(max_examples=200, deadline=None)
def test_an_order_is_found_exactly_when_there_is_one(needs: dict[str, tuple[str, ...]]) -> None:
    graph = nx.DiGraph([(before, name) for name, after in needs.items() for before in after])
    if not nx.is_directed_acyclic_graph(graph):
        with pytest.raises(GraphError, match="job j: waits for itself: "):
            topological_order(job_of(needs))
        return
    order = topological_order(job_of(needs))
    assert sorted(order) == sorted(needs)
    assert all(order.index(before) < order.index(name) for name, after in needs.items() for before in after)
    assert order == topological_order(job_of(needs))


def test_the_cycle_is_named() -> None:
    with pytest.raises(GraphError, match=r"^job j: waits for itself: (a -> B -> a|B -> a -> B)$"):
        topological_order(job_of({"a": ("B",), "B": ("a",), "c": ()}))


def test_unknown_and_repeated_names() -> None:
    with pytest.raises(GraphError, match="'a' waits for 'X', which it does not have"):
        topological_order(job_of({"a": ("X",)}))
    twice = Job("j", (ComputeUnit("a", "h1", Fraction(1)),), (Flow("a", "h1", "h2", 1),), ())
    with pytest.raises(GraphError, match="the name 'a' is given to more than one"):
        connections(twice)


def test_earliest_starts_are_longest_paths() -> None:
    job = job_of({"a": (), "b": ("a",), "D": ("a",), "E": ("b",), "c": ("D", "E")})
    start = earliest_start_s(job, lambda flow: Fraction(5) if flow.name == "D" else Fraction(1, 2))
    assert start == {"a": 0, "b": 1, "D": 1, "E": 2, "c": 6}
    assert [flow.name for flow in connections(job)["h1", "h2"]] == ["D", "E"]


def test_a_connection_carries_flows_by_time_not_by_listing() -> None:
    # The late one has the shorter chain before it, of one unit that takes longer than the two of the other.
    flows = (Flow("LATE", "h1", "h2", 1, ("slow",)), Flow("EARLY", "h1", "h2", 2, ("b",)))
    slow = ComputeUnit("slow", "h3", Fraction(3))
    computes = (slow, ComputeUnit("a", "h1", Fraction(1)), ComputeUnit("b", "h1", Fraction(1), ("a",)))
    assert [flow.name for flow in connections(Job("j", computes, flows, ()))["h1", "h2"]] == ["EARLY", "LATE"]


@pytest.mark.parametrize(
    ("error", "durations", "offsets"),
    [
        ("0.2", ("1.2", "0.6"), (0, "1.2", "3.6")),
        ("-0.5", ("0.5", "0.25"), (0, "0.5", "1.5")),
        (0, (1, "0.5"), (0, 1, 3)),
    ],
)
def test_profile_error_scales_compute_times_and_distances_and_nothing_else(
    error: str | int, durations: tuple[str | int, ...], offsets: tuple[str | int, ...]
) -> None:
    computes = (ComputeUnit("a", "h1", Fraction(1)), ComputeUnit("b", "h2", Fraction(1, 2), ("a", "A")))
    flows = tuple(Flow(name, "h1", "h2", 1) for name in "ABC")
    held = EchelonFlow("h", ("A", "B", "C"), (Fraction(0), Fraction(1), Fraction(3)))
    job = Job("j", computes, flows, (held,), Fraction(4), Fraction(5))
    believed = with_profile_error(job, Fraction(error))
    assert [unit.duration_s for unit in believed.computes] == [Fraction(duration) for duration in durations]
    assert believed.echelonflows[0].offsets_s == tuple(Fraction(offset) for offset in offsets)
    restored = tuple(replace(b, duration_s=c.duration_s) for b, c in zip(believed.computes, computes, strict=True))
    assert replace(believed, computes=restored, echelonflows=(held,)) == job
