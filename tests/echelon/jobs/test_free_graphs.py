"""Free graphs: what ranks wait for, transfers inside a host, and what is refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.model.documents import DocumentError, parse_document
from echelon.model.errors import Code
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import earliest_start_s
from echelon.model.jobs.collectives import OPERATIONS
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph, ranks_of
from echelon.model.jobs.graph import LOCAL, CollectiveStep, ComputeUnit, Flow, Job
from echelon.model.jobs.spec import JobSpec
from tests.drawing import examples
from tests.echelon.jobs.documents import graph_section
from tests.shared import refused


def document(*nodes: dict[str, Any], workers: int = 2, **section: object) -> dict[str, object]:
    return {
        "job": "j",
        "parallelism": "graph",
        "workers": [f"h{i + 1}" for i in range(workers)],
        "graph": {"nodes": list(nodes), **section},
    }


def job_of(*nodes: dict[str, Any], workers: int = 2, **section: object) -> Job:
    return build_job(parse_document(JobSpec, document(*nodes, workers=workers, **section), "job"))


@st.composite
def free_graphs(draw: st.DrawFn) -> tuple[FreeGraph, int]:
    """Draw a graph and its number of workers: random nodes, each after some of the earlier ones
    that its ranks know.
    """
    workers, per_worker = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    ranks = [str(rank) for rank in range(workers * per_worker)]
    nodes: list[Step] = []
    for number in range(draw(st.integers(1, 12))):
        name = f"n{number}"
        kind = draw(st.sampled_from([ComputeUnit, Flow, CollectiveStep]))
        own = draw(st.permutations(ranks))
        if kind is ComputeUnit:
            node: Step = ComputeUnit(name, own[0], Fraction(draw(st.integers(0, 9)), 1000))
        elif kind is Flow:
            node = Flow(name, own[0], own[1], draw(st.integers(1, 99)))
        else:
            operation = draw(st.sampled_from(list(OPERATIONS)))
            group = tuple(own[: draw(st.integers(1, len(own)))])
            # Flows of the hierarchical one depend on where ranks are, which tests here change.
            good = [
                key
                for key, algorithm in OPERATIONS[operation].items()
                if key != "hierarchical" and not algorithm.refusal(len(group))
            ]
            algorithm = draw(st.sampled_from([None, *good]))
            if algorithm is None and next(iter(OPERATIONS[operation])) not in good:
                algorithm = good[0]
            size = 1 if operation == "barrier" else draw(st.integers(1, 999))
            matrix = None
            if operation == "all-to-all" and draw(st.booleans()):
                sizes = st.integers(0, 99)
                matrix = tuple(tuple(draw(sizes) for _ in group) for _ in group)
                size = 1
            node = CollectiveStep(
                name, operation, group, size, algorithm, matrix, draw(st.booleans())
            )
        starters = {node.src} if isinstance(node, Flow) else set(ranks_of(node))
        known = [other.name for other in nodes if not starters.isdisjoint(ranks_of(other))]
        after = tuple(draw(st.lists(st.sampled_from(known), unique=True))) if known else ()
        nodes.append(
            type(node)(**{**{key: getattr(node, key) for key in node.__slots__}, "after": after})
        )
    return FreeGraph(
        tuple(draw(st.permutations(nodes))),
        per_worker,
        draw(st.sampled_from([None, Fraction(8000)])),
    ), workers


@given(free_graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_file_says_all_of_a_graph(drawn: tuple[FreeGraph, int]) -> None:
    graph, workers = drawn
    data = document(workers=workers) | {"graph": graph_section(graph)}
    spec = parse_document(JobSpec, data, "job")
    job = build_job(spec)
    assert (job.computes, job.flows, job.echelonflows) == graph.iteration(spec.workers)
    assert spec.flow_count == len(job.flows)
    carried: Counter[tuple[str, str]] = Counter()
    for flow in job.flows:
        carried[flow.src, flow.dst] += flow.size_bytes
    assert spec.paradigm.connection_bytes(workers) == max(carried.values(), default=0)


@given(free_graphs())
@settings(max_examples=examples(100), deadline=None)
def test_a_rank_starts_its_part_when_it_has_finished_those_before(
    drawn: tuple[FreeGraph, int],
) -> None:
    """The steps before a part are found by paths in the graph of steps, whose names tell the node
    and the ranks.
    """
    graph, workers = drawn
    one_each = FreeGraph(graph.nodes)
    ranks = [str(rank) for rank in range(workers * graph.ranks_per_worker)]
    computes, flows, _ = one_each.iteration(ranks)
    nodes = {node.name: node for node in graph.nodes}
    every: tuple[ComputeUnit | Flow, ...] = (*computes, *flows)
    steps = {step.name: step for step in every}
    edges = nx.DiGraph([(before, step.name) for step in steps.values() for before in step.after])
    edges.add_nodes_from(steps)
    assert nx.is_directed_acyclic_graph(edges)
    reached = {name: nx.ancestors(edges, name) for name in steps}
    # Steps by the node they belong to, and by the ranks that start them and that take part.
    started, shared = defaultdict(set), defaultdict(set)
    for step in steps.values():
        of = step.name.split("-")[0]
        starter = step.worker if isinstance(step, ComputeUnit) else step.src
        started[of, starter].add(step.name)
        for rank in ranks_of(step):
            shared[of, rank].add(step.name)
    for node in nodes.values():
        for before in node.after:
            for rank in ranks_of(node):
                for late in started[node.name, rank]:
                    assert shared[before, rank] <= reached[late]


@given(free_graphs())
@settings(max_examples=examples(100), deadline=None)
def test_ranks_on_one_host_change_no_ideal_time(drawn: tuple[FreeGraph, int]) -> None:
    """It does not matter which transfers are flows if no transfer takes time."""
    graph, workers = drawn
    ranks = [str(rank) for rank in range(workers * graph.ranks_per_worker)]
    hosts = [f"h{i}" for i in range(workers)]
    free = FreeGraph(graph.nodes, graph.ranks_per_worker)
    spread = Job("j", *FreeGraph(graph.nodes).iteration(ranks))
    packed = Job("j", *free.iteration(hosts))
    starts = [earliest_start_s(job, lambda _: Fraction(0)) for job in (spread, packed)]
    assert all(starts[0][name] == starts[1][name] for name in starts[1])
    inside = {
        flow.name
        for flow in spread.flows
        if int(flow.src) // graph.ranks_per_worker == int(flow.dst) // graph.ranks_per_worker
    }
    assert {flow.name for flow in packed.flows} == {flow.name for flow in spread.flows} - inside
    # At a finite speed, each is a unit of the host instead.
    slow = FreeGraph(graph.nodes, graph.ranks_per_worker, Fraction(80)).iteration(hosts)
    sizes = {flow.name: flow.size_bytes for flow in spread.flows}
    assert {unit.name: unit.duration_s for unit in slow.computes if unit.kind == LOCAL} == {
        name: Fraction(sizes[name], 10) for name in inside
    }


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_collective_sends_what_nccl_counts(operation: str, ranks: int) -> None:
    size = 5040
    share = {"all-reduce": Fraction(2), "all-gather": Fraction(1), "reduce-scatter": Fraction(1)}
    for algorithm in OPERATIONS[operation]:
        if OPERATIONS[operation][algorithm].refusal(ranks):
            continue
        for rounds in (False, True):
            node = CollectiveStep(
                "c", operation, tuple(map(str, range(ranks))), size, algorithm, None, rounds
            )
            flows = FreeGraph((node,)).iteration([f"h{i}" for i in range(ranks)]).flows
            sent: Counter[str] = Counter()
            for flow in flows:
                # Gloo's words have a byte, and chunks of 5040 bytes have more.
                sent[flow.src] += (
                    flow.size_bytes if flow.size_bytes > 1 or operation == "barrier" else 0
                )
            if operation in ("broadcast", "reduce") or algorithm == "tree":
                times = 2 if operation in ("all-reduce", "barrier") else 1
                assert sum(sent.values()) == times * (ranks - 1) * size
            else:
                each = share.get(operation, Fraction(1)) * (ranks - 1) * size / ranks
                assert set(sent.values()) == {each}


A = {"name": "a", "rank": 0, "compute": "1 s"}
B = {"name": "b", "rank": 1, "compute": "1 s"}
SUM = {"name": "sum", "collective": "all-reduce", "group": [0, 1], "bytes": "8 B"}
SWAP = {
    "name": "swap",
    "collective": "all-to-all",
    "group": [0, 1],
    "matrix": [[0, "1 B"], ["1 B", 0]],
}


@pytest.mark.parametrize(
    ("nodes", "section", "path", "code"),
    [
        ([A, {**B, "name": "a"}], {}, "graph.nodes[1].name", "duplicate"),
        ([{**A, "rank": 2}], {}, "graph.nodes[0].rank", "unknown-name"),
        ([{**A, "after": ["b"]}], {}, "graph.nodes[0].after", "unknown-name"),
        ([A, {**B, "after": ["a"]}], {}, "graph.nodes[1].after", "invalid-value"),
        ([{**A, "after": ["c"]}, {**A, "name": "c", "after": ["a"]}], {}, "graph.nodes", "cycle"),
        ([{**A, "bytes": "1 B"}], {}, "graph.nodes[0].bytes", "conflicting-key"),
        ([{**A, "send": [0, 1]}], {}, "graph.nodes[0]", "conflicting-key"),
        ([{"name": "a"}], {}, "graph.nodes[0]", "conflicting-key"),
        ([{"name": "a", "compute": "1 s"}], {}, "graph.nodes[0].rank", "missing-key"),
        ([{"name": "s", "send": [0, 0], "bytes": "1 B"}], {}, "graph.nodes[0].send", "duplicate"),
        ([{"name": "s", "send": [0, 1]}], {}, "graph.nodes[0].bytes", "missing-key"),
        ([{"name": "s", "send": [0], "bytes": "1 B"}], {}, "graph.nodes[0].send", "wrong-length"),
        # The receiver's work does not hold back the sender.
        (
            [B, {"name": "s", "send": [0, 1], "bytes": "1 B", "after": ["b"]}],
            {},
            "graph.nodes[1].after",
            "invalid-value",
        ),
        (
            [{**SUM, "group": "dp"}],
            {"groups": {"pp": [0, 1]}},
            "graph.nodes[0].group",
            "unknown-name",
        ),
        ([{**SUM, "group": [0, 1, 1]}], {}, "graph.nodes[0].group", "duplicate"),
        ([{**SUM, "group": []}], {}, "graph.nodes[0].group", "wrong-length"),
        (
            [{**SUM, "group": [0, 1, 2], "algorithm": "hierarchical"}],
            {"ranks_per_worker": 2},
            "graph.nodes[0].algorithm",
            "not-allowed",
        ),
        (
            [{**SUM, "group": [0, 2, 1, 3], "algorithm": "hierarchical"}],
            {"ranks_per_worker": 2},
            "graph.nodes[0].algorithm",
            "not-allowed",
        ),
        (
            [{**SUM, "matrix": [[0, "1 B"], ["1 B", 0]]}],
            {},
            "graph.nodes[0].bytes",
            "conflicting-key",
        ),
        ([{**SWAP, "collective": "all-gather"}], {}, "graph.nodes[0].matrix", "conflicting-key"),
        ([{**SWAP, "matrix": [[0, "1 B"], ["1 B"]]}], {}, "graph.nodes[0].matrix", "wrong-length"),
        (
            [{**SWAP, "matrix": [[0, 1], ["1 B", 0]]}],
            {},
            "graph.nodes[0].matrix[0][1]",
            "missing-unit",
        ),
        (
            [{**SUM, "collective": "all-gather", "algorithm": "tree"}],
            {},
            "graph.nodes[0].algorithm",
            "not-allowed",
        ),
        (
            [{**SUM, "group": [0, 1, 2], "algorithm": "halving-doubling"}],
            {"ranks_per_worker": 2},
            "graph.nodes[0].algorithm",
            "not-allowed",
        ),
        # Two nodes that would make flows of one name.
        (
            [SUM, {"name": "sum-w1-w2", "send": [0, 1], "bytes": "1 B"}],
            {},
            "graph.nodes[1].name",
            "duplicate",
        ),
    ],
)
def test_what_is_refused(
    nodes: list[dict[str, Any]], section: dict[str, Any], path: str, code: Code
) -> None:
    with refused(code, path, DocumentError) as caught:
        parse_document(JobSpec, document(*nodes, **section), "job")
    assert f"{caught.value}".endswith(")"), "says what to do"


def test_a_hierarchical_all_reduce_sends_each_shard_along_its_rail() -> None:
    """Each rank sends 2(H-1)/(L H) = 2/3 of 2400 bytes to the next of 3 workers of 2 ranks."""
    node = {**SUM, "group": [0, 1, 2, 3, 4, 5], "bytes": "2400 B", "algorithm": "hierarchical"}
    job = job_of(node, workers=3, ranks_per_worker=2)
    pairs = [(flow.src, flow.dst, flow.size_bytes) for flow in job.flows]
    assert sorted(pairs) == sorted([("h1", "h2", 1600), ("h2", "h3", 1600), ("h3", "h1", 1600)] * 2)


def test_flows_of_a_graph_cannot_be_told_apart_by_bytes() -> None:
    by_bytes = {"by": "bytes", "source_port": 1, "destination_port": 2, "idle_gap": "1 ms"}
    with refused("not-allowed", "recognition.by", DocumentError):
        parse_document(JobSpec, {**document(A, B, SUM), "recognition": by_bytes}, "job")
    by_agent = {"by": "agent", "idle_gap": "50 ms"}
    assert (
        parse_document(
            JobSpec, {**document(A, B, SUM), "recognition": by_agent}, "job"
        ).recognition.by
        == "agent"
    )


def test_a_collective_of_one_rank_only_orders_its_work() -> None:
    alone = {
        "name": "sum",
        "collective": "all-reduce",
        "group": [0],
        "bytes": "8 B",
        "after": ["a"],
    }
    job = job_of(A, alone, {"name": "c", "rank": 0, "compute": "1 s", "after": ["sum"]})
    assert job.flows == ()
    assert {unit.name: unit.after for unit in job.computes} == {"a": (), "c": ("a",)}


def test_a_matrix_is_written_as_it_is_read() -> None:
    spec = parse_document(JobSpec, document(SWAP), "job")
    assert parse_document(JobSpec, spec.model_dump(mode="json", exclude_unset=True), "job") == spec
