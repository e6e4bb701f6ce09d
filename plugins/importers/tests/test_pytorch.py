"""Traces of PyTorch: kernels, streams, and collectives from either kind of file."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit
from echelon_importers import Source, Workload, make_importer
from tests.faults import coded


def kernel(
    start_us: float, us: float, stream: int = 7, name: str = "gemm", **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": start_us,
        "dur": us,
        "args": {"stream": stream, **args},
    }


def all_reduce(start_us: float, us: float, elements: int = 100, **args: Any) -> dict[str, Any]:
    said = {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "dtype": "BFloat16",
        "Group size": 2,
    }
    return kernel(start_us, us, 24, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", **(said | args))


def kineto(*events: dict[str, Any], rank: int = 0, world: int = 2) -> Source:
    document = {"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": list(events)}
    return Source(f"kineto_{rank}.json", json.dumps(document).encode())


def recorded(name: str, elements: int, size: int = 2, group: object = 5) -> dict[str, Any]:
    tensor = [[1, 2, 0, elements, 2, "cuda:0"]]
    return {
        "id": 1,
        "name": "record_param_comms",
        "inputs": [tensor, 3, group, 0, name, [], [], size],
    }


def execution(*nodes: dict[str, Any], rank: int = 0) -> Source:
    return Source(f"et_{rank}.json", json.dumps({"schema": "1.0.1", "nodes": list(nodes)}).encode())


def read(*sources: Source, **options: object) -> Workload:
    return make_importer("pytorch", options).read(sources)


def test_kernels_wait_for_their_stream_and_for_what_had_ended() -> None:
    workload = read(kineto(kernel(0, 10), all_reduce(10, 50), kernel(15, 20), kernel(65, 5)))
    rank_0 = {
        node.name: node
        for node in workload.nodes
        if isinstance(node, ComputeUnit) and node.worker == "0"
    }
    [collective] = [node for node in workload.nodes if isinstance(node, CollectiveStep)]
    assert (collective.operation, collective.size_bytes) == ("all-reduce", 200)
    assert collective.group == ("0", "1")
    # The second kernel overlaps with the collective; the host needed 5 us to start it, and 5 us to
    # start the last one.
    assert rank_0["n4-r0"].after == ("n0-r0",)
    assert rank_0["n4-r0"].duration_s == Fraction(25, 10**6)
    assert set(rank_0["n6-r0"].after) == {"n4-r0", collective.name}
    assert rank_0["n6-r0"].duration_s == Fraction(10, 10**6)


def test_an_execution_trace_gives_the_bytes_that_kineto_lacks() -> None:
    events = (
        kernel(0, 10),
        kernel(10, 50, 24, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)"),
    )
    with pytest.raises(DocumentError):
        read(kineto(*events))
    nodes = (
        recorded("allreduce", 10, size=1),
        recorded("allreduce", 30),
        {"id": 2, "name": "aten::add"},
    )
    [collective] = [
        node
        for node in read(kineto(*events), execution(*nodes)).nodes
        if isinstance(node, CollectiveStep)
    ]
    assert collective.size_bytes == 60


def test_an_execution_trace_alone_gives_the_order() -> None:
    nodes = (
        recorded("_allgather_base", 10),
        recorded("_reduce_scatter_base", 30),
        recorded("wait", 1),
    )
    workload = read(execution(*nodes), ranks=2)
    assert [
        (node.operation, node.size_bytes)
        for node in workload.nodes
        if isinstance(node, CollectiveStep)
    ] == [
        ("all-gather", 40),
        ("reduce-scatter", 60),
    ]
    assert workload.nodes[1].after == (workload.nodes[0].name,)


def test_uneven_all_to_alls_keep_the_total() -> None:
    files = [
        execution(recorded("all_to_allv", elements), rank=rank)
        for rank, elements in enumerate((10, 30))
    ]
    [collective] = read(*files).nodes
    assert isinstance(collective, CollectiveStep)
    assert collective.size_bytes == (20 + 60) // 2


def test_process_groups_name_their_ranks() -> None:
    described = json.dumps([{"pg_name": "7", "ranks": [1, 3]}, {"pg_name": "8", "ranks": [0, 2]}])
    files = [
        execution(
            {"id": 0, "name": "## process_group:init ##", "inputs": {"values": [described]}},
            recorded("broadcast", 10, group="8" if rank % 2 == 0 else ["7", "experts"]),
            rank=rank,
        )
        for rank in range(4)
    ]
    workload = read(*files)
    assert sorted(workload.groups) == [("0", "2"), ("1", "3")]


def test_a_step_of_the_profiler_is_an_iteration() -> None:
    steps = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{n}",
            "ts": 100 * n,
            "dur": 100,
        }
        for n in (1, 2)
    ]
    source = kineto(*steps, kernel(110, 10), kernel(210, 20), kernel(240, 20))
    assert [
        len(read(source, **chosen).nodes) // 2
        for chosen in ({}, {"iterations": "2"}, {"iterations": "1:2"})
    ] == [
        1,
        2,
        3,
    ]


def test_a_trace_of_a_cpu_says_how_to_capture_such_a_job() -> None:
    on_host = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "tid": 1}
    source = kineto(on_host)
    advised = coded("empty-document", "GPU", "echelon capture", file=source.name)
    with pytest.raises(DocumentError, check=advised):
        read(source, ranks=2)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (kineto(kernel(-1, 10)), "entry 0"),
        (kineto(kernel(0, 10), kernel(0, float("1e30"))), "entry 1"),
        (kineto(all_reduce(0, 1, elements=-5)), "entry 0"),
        (kineto(all_reduce(0, 1, **{"Collective name": "gather"})), "entry 0"),
        (kineto(all_reduce(0, 1, **{"Collective name": "send"})), "entry 0"),
        (execution(recorded("allreduce", -1)), "entry 0"),
        (execution(recorded("shrug", 1)), "entry 0"),
        (execution({"id": 1}), "entry 0"),
    ],
)
def test_a_refusal_names_the_entry(source: Source, place: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        read(source, ranks=2)
    assert (refusal.value.file, refusal.value.path) == (source.name, place)


@pytest.mark.parametrize("options", [{}, {"ranks": 2}])
def test_a_job_of_one_rank_needs_no_network(options: dict[str, object]) -> None:
    source = kineto(kernel(0, 5), world=1)
    expected = coded("wrong-length", "kineto_0.json", "one rank", "profile one of several")
    with pytest.raises(DocumentError, check=expected):
        read(source, **options)


def test_hosts_are_not_more_than_the_trace_has_ranks() -> None:
    expected = coded("wrong-length", "has 2 ranks (its world_size)", "the hosts have 4")
    with pytest.raises(DocumentError, check=expected):
        read(kineto(all_reduce(0, 5)), ranks=4)


def test_an_execution_trace_says_how_many_ranks_there_are() -> None:
    everyone = recorded("allreduce", 100, group=["0", "default_pg"])
    everyone["inputs"] = [*everyone["inputs"][:-1], 0, 1, 4]
    assert read(execution(everyone)).ranks == 4
    with pytest.raises(DocumentError, check=coded("missing-key", "--hosts")):
        read(execution(recorded("allreduce", 100, group=["7", "dp"])))
    with pytest.raises(DocumentError, check=coded("wrong-length", "has 4 ranks")):
        read(execution(everyone), ranks=8)
