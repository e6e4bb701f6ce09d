"""The laws of the algebra of graphs, and what `series` promises, on random blocks."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.collectives import ALL_REDUCES, Collective
from echelon.model.jobs.combinators import Block, Step, compute, flow, parallel, replicate, series
from echelon.model.jobs.free import ranks_of
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, GraphError
from echelon.model.jobs.ranked import Mesh
from tests.drawing import examples
from tests.faults import coded, naming

EMPTY = parallel()
RANKS = ["a", "b", "c"]


def blocks(number: int) -> st.SearchStrategy[Block]:
    """Return a strategy for blocks with steps of their own, whose names begin with `number`."""

    @st.composite
    def draw_block(draw: st.DrawFn) -> Block:
        made = 0

        def step() -> Block:
            nonlocal made
            made += 1
            src = draw(st.sampled_from(RANKS))
            if draw(st.booleans()):
                return compute(f"{number}.{made}", src, Fraction(1))
            return flow(
                f"{number}.{made}",
                src,
                draw(st.sampled_from([rank for rank in RANKS if rank != src])),
                made,
            )

        def block(depth: int) -> Block:
            if not depth or draw(st.booleans()):
                return step()
            parts = [block(depth - 1) for _ in range(draw(st.integers(1, 3)))]
            return draw(st.sampled_from([series, parallel]))(*parts)

        return block(3)

    return draw_block()


def same(one: Block, other: Block) -> bool:
    """Return whether two blocks are equal up to the order of listing."""
    return one.steps == other.steps and all(
        {key: set(names) for key, names in left.items()}
        == {key: set(names) for key, names in right.items()}
        for left, right in (
            (one.after, other.after),
            (one.first, other.first),
            (one.last, other.last),
        )
    )


def ancestors(block: Block) -> dict[str, set[str]]:
    graph = nx.DiGraph([(before, name) for name, names in block.after.items() for before in names])
    graph.add_nodes_from(block.steps)
    return {name: nx.ancestors(graph, name) for name in graph}


def starter(step: Step) -> str:
    assert not isinstance(step, CollectiveStep)
    return step.worker if isinstance(step, ComputeUnit) else step.src


def takes_part(step: Step) -> set[str]:
    return set(ranks_of(step))


@given(blocks(1), blocks(2), blocks(3))
@settings(max_examples=examples(150), deadline=None)
def test_laws(a: Block, b: Block, c: Block) -> None:
    assert same(series(series(a, b), c), series(a, series(b, c)))
    assert same(series(a, b, c), series(a, series(b, c)))
    assert same(parallel(parallel(a, b), c), parallel(a, parallel(b, c)))
    assert same(parallel(a, b), parallel(b, a))
    assert same(parallel(a, a), a)
    assert same(parallel(series(a, b), a, b), parallel(a, b, series(a, b)))
    for law in (series(a, EMPTY), series(EMPTY, a), parallel(a, EMPTY)):
        assert same(law, a)


@given(blocks(1), blocks(2), blocks(3))
@settings(max_examples=examples(150), deadline=None)
def test_series_orders_what_each_rank_does_and_nothing_else(a: Block, b: Block, c: Block) -> None:
    """All that a rank starts in `b` follows all that it takes part in in `a`.

    Ranks that do not meet do not wait.
    """
    both = series(a, b)
    before = ancestors(both)
    for late in b.steps.values():
        for early in a.steps.values():
            if starter(late) in takes_part(early):
                assert early.name in before[late.name]
    for name, names in both.after.items():
        for early in names:
            assert starter(both.steps[name]) in takes_part(both.steps[early])
    # Also over a block in between in which a rank has no part.
    before = ancestors(series(a, b, c))
    for late in c.steps.values():
        for early in (*a.steps.values(), *b.steps.values()):
            if starter(late) in takes_part(early):
                assert early.name in before[late.name]


@given(blocks(1), blocks(2), blocks(3))
@settings(max_examples=examples(100), deadline=None)
def test_blocks_of_disjoint_steps_make_acyclic_graphs_with_all_their_bytes(
    a: Block, b: Block, c: Block
) -> None:
    whole = series(parallel(a, b), c)
    edges = [(before, name) for name, names in whole.after.items() for before in names]
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    graph = whole.graph()
    assert {step.name for step in (*graph.computes, *graph.flows)} == {*a.steps, *b.steps, *c.steps}
    assert sum(flow.size_bytes for flow in graph.flows) == sum(
        sum(flow.size_bytes for flow in block.graph().flows) for block in (a, b, c)
    )
    assert {
        step.name: step.after for step in (*graph.computes, *graph.flows) if step.after
    } == whole.after


def test_blocks_may_share_steps() -> None:
    shared = compute("x", "a", Fraction(1))
    fork = parallel(*(series(shared, compute(name, "a", Fraction(1))) for name in ("y", "z")))
    assert list(fork.steps) == ["x", "y", "z"]
    assert fork.after == {"y": ("x",), "z": ("x",)}


def test_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(GraphError, check=coded("duplicate", "'x'")):
        series(compute("x", "a", Fraction(1)), compute("x", "a", Fraction(2)))


def test_a_mesh_of_pipelines_whose_stages_reduce_their_gradients() -> None:
    """The mesh has two axes: each line along `stage` sends down a pipeline, each line along `data`
    then runs an all-reduce.
    """
    mesh = Mesh([f"h{i}" for i in range(12)], {"data": 4, "stage": 3})
    assert mesh.groups("stage") == tuple(
        tuple(f"h{3 * line + s}" for s in range(3)) for line in range(4)
    )
    assert mesh.groups("data") == tuple(
        tuple(f"h{s + 3 * line}" for line in range(4)) for s in range(3)
    )
    assert mesh.groups("stage", "data") == (tuple(mesh.ranks),)
    pipelines = parallel(
        *(
            series(*(flow(f"p{p}-{s}", line[s], line[s + 1], 10) for s in range(2)))
            for p, line in enumerate(mesh.groups("stage"))
        )
    )
    gradients = parallel(
        *(
            Collective(ALL_REDUCES["halving-doubling"], group).block(f"g{s}", 400)
            for s, group in enumerate(mesh.groups("data"))
        )
    )
    computed = replicate(mesh.ranks, lambda i, rank: compute(f"c{i}", rank, Fraction(1)))
    block = series(computed, pipelines, gradients)
    before = ancestors(block)
    # The first stage of a pipeline need not wait for the second to have passed anything on.
    assert "p0-0" in before["g0-k1-w1"]
    assert "p0-1" not in before["g0-k1-w1"]
    assert {"p0-1", "c3"} <= before["g2-k1-w1"]
    assert sum(flow.size_bytes for flow in block.graph().flows) == 4 * 2 * 10 + 3 * 2 * 3 * 400


def test_a_mesh_needs_a_rank_for_every_place() -> None:
    with pytest.raises(ValueError, check=naming("5 ranks", "2 (data)", "3 (stage)")):
        Mesh(["a"] * 5, {"data": 2, "stage": 3})
