"""Derived arrangement functions: published ones, and a slow reference for random graphs."""

from __future__ import annotations

from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.jobs.analysis import topological_order
from echelon.model.jobs.arrangement import arrange
from echelon.model.jobs.combinators import (
    Block,
    Step,
    collective,
    compute,
    parallel,
    replicate,
    series,
)
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow, IterationGraph, Job
from echelon.model.jobs.paradigms.data import bucketed_all_reduce
from echelon.model.jobs.pipelines import gpipe, one_f_one_b
from tests.drawing import examples
from tests.echelon.jobs.test_free_graphs import free_graphs

TIMES = st.integers(0, 3000).map(lambda ms: Fraction(ms, 1000))
POSITIVE = st.integers(1, 3000).map(lambda ms: Fraction(ms, 1000))
Functions = dict[tuple[str, ...], tuple[Fraction, ...]]


def derived(graph: IterationGraph) -> Functions:
    """Return the functions that follow from the steps of `graph`, by the flows in order."""
    job = Job("j", *graph)
    every: tuple[ComputeUnit | Flow, ...] = (*job.computes, *job.flows)
    steps = {step.name: step for step in every}
    nodes = [steps[name] for name in topological_order(job)]
    return {
        h.flows: h.offsets_s for h in arrange(nodes, {flow.name: [flow.name] for flow in job.flows})
    }


def published(graph: IterationGraph) -> Functions:
    return {h.flows: h.offsets_s for h in graph.echelonflows}


@given(st.integers(2, 6), st.integers(1, 7), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_of_a_pipeline_equation_6_follows(stages: int, batches: int, data: st.DataObject) -> None:
    """The equation holds for unequal stages, forward alone, and backward, too."""
    hosts = [f"h{i}" for i in range(stages)]
    forward, backward = (
        data.draw(st.lists(POSITIVE, min_size=stages, max_size=stages)) for _ in range(2)
    )
    given_s = backward if data.draw(st.booleans()) else None
    graph = gpipe(hosts, batches, forward, [1] * (stages - 1), given_s)
    assert derived(graph) == published(graph)


@given(st.integers(2, 6), st.integers(1, 9), POSITIVE, POSITIVE)
@settings(max_examples=examples(60), deadline=None)
def test_of_1f1b_with_equal_stages_the_pace_of_its_schedule_follows(
    stages: int, batches: int, forward_s: Fraction, backward_s: Fraction
) -> None:
    """The distance is F + B for each micro-batch, but only B if the consumer has done all forwards
    before the first gradient.
    """
    hosts = [f"h{i}" for i in range(stages)]
    graph = one_f_one_b(
        hosts, batches, [forward_s] * stages, [1] * (stages - 1), [backward_s] * stages
    )
    expected = {
        flows: offsets_s
        for flows, offsets_s in published(graph).items()
        if "activation" in flows[0]
    }
    for s in range(1, stages):
        first_done = stages - s + 1
        gap_s = backward_s if batches <= first_done else forward_s + backward_s
        expected[tuple(f"gradient-s{s + 1}-m{m}" for m in range(1, batches + 1))] = tuple(
            m * gap_s for m in range(batches)
        )
    assert derived(graph) == expected


@given(
    st.integers(2, 6),
    st.integers(1, 5),
    TIMES,
    TIMES,
    st.sampled_from(["ring", "tree", "direct"]),
    st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_of_data_parallelism_equation_5_follows(
    ranks: int,
    buckets: int,
    forward_s: Fraction,
    backward_s: Fraction,
    algorithm: str,
    rounds: bool,
) -> None:
    """All flows of all buckets are due together, whether they are sent by rounds or not."""
    names = [str(rank) for rank in range(ranks)]
    work = [everyone("forward", names, forward_s)]
    work += [everyone(f"backward-{b}", names, backward_s) for b in range(buckets)]
    sums = [collective(f"sum-{b}", "all-reduce", names, 999, algorithm) for b in range(buckets)]
    block = parallel(series(*work), *map(series, work[1:], sums), series(*sums))
    graph = FreeGraph(with_rounds(block, rounds)).iteration([f"h{i}" for i in range(ranks)])
    (one,) = graph.echelonflows
    assert one.is_coflow
    assert sorted(one.flows) == sorted(flow.name for flow in graph.flows)
    if rounds and algorithm == "ring":
        ours = bucketed_all_reduce(names, forward_s, backward_s * buckets, buckets, 999 * buckets)
        assert len(ours.echelonflows[0].flows) == len(one.flows)


@given(
    st.integers(2, 5),
    st.integers(1, 6),
    POSITIVE,
    POSITIVE,
    st.sampled_from(["ring", "direct"]),
    st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_of_fsdp_equation_7_follows(
    ranks: int, layers: int, forward_s: Fraction, backward_s: Fraction, algorithm: str, rounds: bool
) -> None:
    """2n all-gathers, each due a layer's pass after the one before.

    As printed, the gap before the first backward layer is a backward time. What is computed between
    these two is the forward pass of the last layer.
    """
    names = [str(rank) for rank in range(ranks)]
    passes = [("forward", layer, forward_s) for layer in range(layers)]
    passes += [("backward", layer, backward_s) for layer in reversed(range(layers))]
    work = [
        everyone(f"{direction}-{layer}", names, lasts_s) for direction, layer, lasts_s in passes
    ]
    gathers = [
        collective(f"gather-{i}", "all-gather", names, 999, algorithm) for i in range(2 * layers)
    ]
    block = parallel(series(*work), *map(series, gathers, work), series(*gathers))
    graph = FreeGraph(with_rounds(block, rounds)).iteration([f"h{i}" for i in range(ranks)])
    (one,) = graph.echelonflows
    printed = [Fraction(0)]
    for i in range(1, 2 * layers):
        printed.append(printed[-1] + (forward_s if i <= layers - 1 else backward_s))
    counted = [d if i < layers else d - backward_s + forward_s for i, d in enumerate(printed)]
    of_flow = dict(zip(one.flows, one.offsets_s, strict=True))
    for name, offset_s in of_flow.items():
        assert offset_s == counted[int(name.split("-")[1])]
    assert len(of_flow) == len(graph.flows)
    if forward_s == backward_s:
        assert counted == printed


def everyone(name: str, ranks: list[str], lasts_s: Fraction) -> Block:
    return replicate(ranks, lambda number, rank: compute(f"{name}-{number}", rank, lasts_s))


def with_rounds(block: Block, rounds: bool) -> tuple[Step, ...]:
    return tuple(
        CollectiveStep(
            n.name, n.operation, n.group, n.size_bytes, n.algorithm, None, rounds, n.after
        )
        if isinstance(n, CollectiveStep)
        else n
        for n in block.nodes()
    )


@given(free_graphs())
@settings(max_examples=examples(100), deadline=None)
def test_offsets_are_the_computing_between_what_consumes_the_flows(
    drawn: tuple[FreeGraph, int],
) -> None:
    """The offsets are the longest paths of networkx, from the head to each node."""
    graph, workers = drawn
    ranks = [str(rank) for rank in range(workers * graph.ranks_per_worker)]
    found = FreeGraph(graph.nodes).iteration(ranks)
    nodes = {node.name: node for node in graph.nodes}
    edges: nx.DiGraph[str] = nx.DiGraph()
    edges.add_nodes_from([*nodes, "end"])
    for node in nodes.values():
        edges.add_edge(node.name, "end", lasts=lasts_s(node))
        edges.add_edges_from(
            (before, node.name, {"lasts": lasts_s(nodes[before])}) for before in node.after
        )
    for h in found.echelonflows:
        head = operation(h.flows[0], nodes)
        reached = {head, *nx.descendants(edges, head)}
        part = edges.subgraph(reached)
        begins = dict.fromkeys(reached, Fraction(0))
        for name in nx.topological_sort(part):
            for before in part.predecessors(name):
                begins[name] = max(begins[name], begins[before] + part.edges[before, name]["lasts"])
        for flow, offset_s in zip(h.flows, h.offsets_s, strict=True):
            consumers = first_computes(operation(flow, nodes), edges, nodes)
            if consumers == {"end"}:
                assert offset_s == (
                    0 if "end" in first_computes(head, edges, nodes) else begins["end"]
                )
            else:
                assert offset_s == min(begins[name] for name in consumers & reached - {"end"})


def lasts_s(node: Step) -> Fraction:
    return node.duration_s if isinstance(node, ComputeUnit) else Fraction(0)


def operation(flow: str, nodes: dict[str, Step]) -> str:
    return flow if flow in nodes else flow.split("-")[0]


def first_computes(name: str, edges: nx.DiGraph[str], nodes: dict[str, Step]) -> set[str]:
    """Return the units that compute on an operation's result; the end if none does."""
    out: set[str] = set()
    stack = [name]
    while stack:
        for after in edges.successors(stack.pop()):
            if isinstance(nodes.get(after), ComputeUnit):
                out.add(after)
            elif after != "end":
                stack.append(after)
    return out or {"end"}


@pytest.mark.parametrize("layers", [1, 3])
def test_collectives_that_wait_for_each_other_are_coflows_of_their_own(layers: int) -> None:
    names = ["0", "1"]
    work = [everyone(f"c{n}", names, Fraction(1)) for n in range(layers)]
    sums = [collective(f"s{n}", "all-reduce", names, 8) for n in range(layers)]
    rows = [step for pair in zip(work, sums, strict=True) for step in pair]
    graph = FreeGraph(series(*rows).nodes()).iteration(["h1", "h2"])
    assert [h.name for h in graph.echelonflows] == [f"s{n}" for n in range(layers)]
