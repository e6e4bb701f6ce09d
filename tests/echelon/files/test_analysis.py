"""Graphs that are none are refused; orders and profile errors are as said."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError
from echelon.model.jobs.analysis import (
    GraphError,
    connections,
    earliest_start_s,
    topological_order,
    with_offsets,
    with_profile_error,
)
from echelon.model.jobs.graph import ComputeUnit, EchelonFlow, Flow, Job
from tests.drawing import examples
from tests.faults import coded, mentions
from tests.shared import refused


def job_of(needs: dict[str, tuple[str, ...]]) -> Job:
    """Return a job of these needs; names in upper case are flows."""
    computes = tuple(
        ComputeUnit(n, "h1", Fraction(1), after) for n, after in needs.items() if n.islower()
    )
    flows = tuple(Flow(n, "h1", "h2", 1, after) for n, after in needs.items() if n.isupper())
    return Job(
        "j", computes, flows, tuple(EchelonFlow(f.name, (f.name,), (Fraction(0),)) for f in flows)
    )


@st.composite
def any_graph(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = draw(st.permutations(["a", "b", "c", "D", "E", "F"]))
    return {
        name: tuple(draw(st.lists(st.sampled_from(names), unique=True, max_size=2)))
        for name in names
    }


@given(any_graph())
@settings(max_examples=examples(200), deadline=None)
def test_an_order_is_found_exactly_when_there_is_one(needs: dict[str, tuple[str, ...]]) -> None:
    graph = nx.DiGraph([(before, name) for name, after in needs.items() for before in after])
    if not nx.is_directed_acyclic_graph(graph):
        with pytest.raises(GraphError, check=coded("cycle", "job j")):
            topological_order(job_of(needs))
        return
    order = topological_order(job_of(needs))
    assert sorted(order) == sorted(needs)
    assert all(
        order.index(before) < order.index(name) for name, after in needs.items() for before in after
    )
    # Layer by layer: what waits for one layer more comes later, and a layer is in the job's order.
    job = job_of(needs)
    listed = [step.name for step in (*job.computes, *job.flows)]
    layers = {
        name: number
        for number, layer in enumerate(nx.topological_generations(graph))
        for name in layer
    }
    assert list(order) == sorted(listed, key=lambda name: (layers.get(name, 0), listed.index(name)))


def test_the_cycle_is_named() -> None:
    with refused("cycle", error=GraphError) as caught:
        topological_order(job_of({"a": ("B",), "B": ("a",), "c": ()}))
    cycles = [line for line in ("a -> B -> a", "B -> a -> B") if f"{caught.value}".endswith(line)]
    assert len(cycles) == 1
    assert mentions(f"{caught.value}", "job j")


def test_unknown_and_repeated_names() -> None:
    with pytest.raises(GraphError, check=coded("unknown-name", "'a'", "'X'")):
        topological_order(job_of({"a": ("X",)}))
    twice = Job("j", (ComputeUnit("a", "h1", Fraction(1)),), (Flow("a", "h1", "h2", 1),), ())
    with pytest.raises(GraphError, check=coded("duplicate", "'a'")):
        connections(twice)


def test_earliest_starts_are_longest_paths() -> None:
    job = job_of({"a": (), "b": ("a",), "D": ("a",), "E": ("b",), "c": ("D", "E")})
    start = earliest_start_s(job, lambda flow: Fraction(5) if flow.name == "D" else Fraction(1, 2))
    assert start == {"a": 0, "b": 1, "D": 1, "E": 2, "c": 6}
    assert [flow.name for flow in connections(job)["h1", "h2"]] == ["D", "E"]


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
    computes = (
        ComputeUnit("a", "h1", Fraction(1)),
        ComputeUnit("b", "h2", Fraction(1, 2), ("a", "A")),
    )
    flows = tuple(Flow(name, "h1", "h2", 1) for name in "ABC")
    held = EchelonFlow("h", ("A", "B", "C"), (Fraction(0), Fraction(1), Fraction(3)))
    job = Job("j", computes, flows, (held,), Fraction(4), Fraction(5))
    believed = with_profile_error(job, Fraction(error))
    assert [unit.duration_s for unit in believed.computes] == [
        Fraction(duration) for duration in durations
    ]
    assert believed.echelonflows[0].offsets_s == tuple(Fraction(offset) for offset in offsets)
    restored = tuple(
        replace(b, duration_s=c.duration_s)
        for b, c in zip(believed.computes, computes, strict=True)
    )
    assert replace(believed, computes=restored, echelonflows=(held,)) == job


@given(any_graph(), st.lists(st.fractions(0, 3, max_denominator=7), min_size=3, max_size=3))
@settings(max_examples=examples(200), deadline=None)
def test_a_connection_carries_its_flows_as_they_start(
    needs: dict[str, tuple[str, ...]], durations: list[Fraction]
) -> None:
    graph = nx.DiGraph([(before, name) for name, after in needs.items() for before in after])
    if not nx.is_directed_acyclic_graph(graph):
        return
    job = job_of(needs)
    job = replace(
        job,
        computes=tuple(
            replace(c, duration_s=d) for c, d in zip(job.computes, durations, strict=True)
        ),
    )
    start = earliest_start_s(job, lambda _: Fraction(0))
    order = topological_order(job)
    (carried,) = connections(job).values()
    assert carried == tuple(
        sorted(job.flows, key=lambda flow: (start[flow.name], order.index(flow.name)))
    )


def arranged() -> Job:
    job = job_of({"a": (), "D": ("a",), "E": ("a",), "F": ("a",)})
    held = (
        EchelonFlow("h", ("D", "E"), (Fraction(0), Fraction(1))),
        EchelonFlow("i", ("F",), (Fraction(0),)),
    )
    return replace(job, echelonflows=held)


def test_reported_offsets_take_the_place_of_those_of_the_graph() -> None:
    job = arranged()
    changed = with_offsets(job, {"h": [Fraction(0), Fraction(5, 2)]})
    assert changed.echelonflows[0].offsets_s == (0, Fraction(5, 2))
    assert changed.echelonflows[1] is job.echelonflows[1]
    assert replace(changed, echelonflows=job.echelonflows) == job
    assert with_offsets(job, {}) is job


@pytest.mark.parametrize(
    ("name", "offsets", "path", "names"),
    [
        ("x", [0, 1], "echelonflow", ["'x'", "h, i"]),
        ("h", [0], "offsets", ["1 values", "'h'", "2 flows"]),
        ("h", [1, 2], "offsets[0]", ["0"]),
        ("h", [0, -1], "offsets[1]", []),
    ],
)
def test_offsets_that_do_not_fit_are_refused(
    name: str, offsets: list[int], path: str, names: list[str]
) -> None:
    unfit = coded("invalid-value", *names, file="job j", path=path)
    with pytest.raises(DocumentError, check=unfit):
        with_offsets(arranged(), {name: [Fraction(offset) for offset in offsets]})
