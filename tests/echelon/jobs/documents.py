"""Job files of every paradigm, drawn at random: small enough to build and run, with whatever a file
may say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from echelon.model.jobs.collectives import ALL_REDUCES
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon.model.quantities import duration_text, rate_text, size_text

TIMES = st.integers(0, 3000).map(lambda ms: f"{ms} ms")


def _bytes(least: int, most: int) -> st.SearchStrategy[str]:
    return st.integers(least, most).map(lambda size: f"{size} B")


def _collectives(workers: int) -> st.SearchStrategy[dict[str, object]]:
    """Return a strategy for a collective that suits the number of workers, or none."""
    names = [name for name, algorithm in ALL_REDUCES.items() if algorithm.refusal(workers) is None]
    return st.sampled_from([{}, *({"collective": name} for name in names)])


@st.composite
def all_reduce(draw: st.DrawFn, workers: int) -> dict[str, object]:
    section: dict[str, object] = {"compute": draw(TIMES), "gradient": draw(_bytes(workers, 10_000))}
    section |= draw(_collectives(workers))
    return {**section, "local_steps": draw(st.integers(1, 9))} if draw(st.booleans()) else section


@st.composite
def overlapping(draw: st.DrawFn, workers: int) -> dict[str, object]:
    buckets = draw(st.integers(1, 5))
    stale = draw(st.integers(0, buckets))
    return {
        **({"stale_buckets": stale} if stale else {}),
        "forward": draw(TIMES),
        "backward": draw(TIMES),
        "buckets": buckets,
        "gradient": draw(_bytes(buckets * workers, 10_000)),
        **draw(_collectives(workers)),
    }


@st.composite
def parameter_server(draw: st.DrawFn, workers: int) -> dict[str, object]:
    section: dict[str, object] = {
        "server": "ps",
        "compute": draw(TIMES),
        "gradient": draw(_bytes(1, 10_000)),
    }
    return {**section, "aggregate": draw(TIMES)} if draw(st.booleans()) else section


@st.composite
def pipeline(draw: st.DrawFn, workers: int) -> dict[str, object]:
    def each(values: st.SearchStrategy[str], count: int) -> object:
        return draw(st.one_of(values, st.lists(values, min_size=count, max_size=count)))

    section: dict[str, object] = {
        "schedule": draw(st.sampled_from(["gpipe", "1f1b"])),
        "micro_batches": draw(st.integers(1, 6)),
        "forward": each(TIMES, workers),
        "activation": each(_bytes(1, 99), workers - 1),
    }
    if section["schedule"] == "1f1b" or draw(st.booleans()):
        section["backward"] = each(TIMES, workers)
        if draw(st.booleans()):
            section["gradient"] = each(_bytes(1, 99), workers - 1)
    return section


SECTIONS = [
    ("data", all_reduce),
    ("data", overlapping),
    ("parameter_server", parameter_server),
    ("pipeline", pipeline),
]


@st.composite
def job_documents(draw: st.DrawFn, most_workers: int = 5) -> dict[str, object]:
    """Draw a job of any paradigm, with workers h1, h2, ... in any order and, where there is one,
    the parameter server ps.
    """
    workers = draw(
        st.permutations([f"h{i + 1}" for i in range(draw(st.integers(2, most_workers)))])
    )
    parallelism, section = draw(st.sampled_from(SECTIONS))
    return {
        "job": "j",
        "parallelism": parallelism,
        "workers": list(workers),
        parallelism: draw(section(len(workers))),
    }


def graph_section(graph: FreeGraph) -> dict[str, Any]:
    """Return a graph as the section `graph` of a job file.

    Groups that several collectives have get names.
    """
    groups: dict[tuple[str, ...], str] = {}
    for node in graph.nodes:
        if isinstance(node, CollectiveStep):
            groups.setdefault(node.group, f"g{len(groups)}")
    section: dict[str, Any] = {}
    if graph.ranks_per_worker != 1:
        section["ranks_per_worker"] = graph.ranks_per_worker
    if graph.local_bps is not None:
        section["local_bandwidth"] = rate_text(int(graph.local_bps))
    if groups:
        section["groups"] = {name: [int(rank) for rank in ranks] for ranks, name in groups.items()}
    return section | {"nodes": [dict(_entries(node, groups)) for node in graph.nodes]}


def _entries(node: Step, groups: Mapping[tuple[str, ...], str]) -> Iterable[tuple[str, object]]:
    yield "name", node.name
    match node:
        case ComputeUnit():
            yield "rank", int(node.worker)
            yield "compute", duration_text(node.duration_s)
            if node.kind != "compute":
                yield "kind", node.kind
        case Flow():
            yield "send", [int(node.src), int(node.dst)]
            yield "bytes", size_text(node.size_bytes)
        case CollectiveStep():
            yield "collective", node.operation
            yield "group", groups[node.group]
            if node.matrix is not None:
                yield "matrix", [[size_text(size) for size in row] for row in node.matrix]
            elif node.operation != "barrier":
                yield "bytes", size_text(node.size_bytes)
            if node.algorithm is not None:
                yield "algorithm", node.algorithm
            if node.rounds:
                yield "steps", "rounds"
    if node.after:
        yield "after", list(node.after)
    if node.micro_batch is not None:
        yield "micro_batch", node.micro_batch
