"""Traces of PyTorch: every operation of a process group is read as it is, or refused with a reason.

The names are those in ``ProcessGroupNCCL.cpp`` and in torchcomms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from echelon.model.documents import DocumentError
from echelon.model.jobs.graph import CollectiveStep, ComputeUnit, Flow
from echelon_importers import Source, Workload, make_importer
from echelon_importers.pytorch.replay import replayed_s
from plugins.importers.tests.pipeline_traces import arguments, host
from plugins.importers.tests.test_pytorch import execution, kernel, kineto, recorded

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def said(name: str, elements: int = 100, size: int = 2, **args: Any) -> dict[str, Any]:
    """Return the arguments of an operation on two bytes an element."""
    described = {
        "Collective name": name,
        "In msg nelems": elements,
        "dtype": "BFloat16",
        "Group size": size,
    }
    return described | args


def operation(name: str, elements: int = 100, **args: Any) -> dict[str, Any]:
    return kernel(0, 5, 24, KERNEL, **said(name, elements, **args))


def read(*sources: Source, **options: object) -> Workload:
    return make_importer("pytorch", options).read(sources)


def collective(workload: Workload) -> CollectiveStep:
    [step] = [node for node in workload.nodes if isinstance(node, CollectiveStep)]
    return step


def both(*events: dict[str, Any]) -> list[Source]:
    """Return the files of two ranks with the same events."""
    return [kineto(*events, rank=rank) for rank in (0, 1)]


@pytest.mark.parametrize(
    ("name", "kind", "size_bytes"),
    [
        ("allreduce", "all-reduce", 200),
        ("allreduce_coalesced", "all-reduce", 200),
        ("all_gather", "all-gather", 400),
        ("_allgather_base", "all-gather", 400),
        ("allgather_into_tensor_coalesced", "all-gather", 400),
        ("all_gather_single", "all-gather", 400),
        ("reduce_scatter", "reduce-scatter", 200),
        ("_reduce_scatter_base", "reduce-scatter", 200),
        ("reduce_scatter_tensor_coalesced", "reduce-scatter", 200),
        ("all_to_all", "all-to-all", 200),
        ("all_to_allv", "all-to-all", 200),
        ("all_to_all_single", "all-to-all", 200),
        ("broadcast", "broadcast", 200),
        ("_broadcast_oop", "broadcast", 200),
        ("reduce", "reduce", 200),
        ("_reduce_oop", "reduce", 200),
        ("barrier", "barrier", 0),
    ],
)
def test_each_name_is_its_collective(name: str, kind: str, size_bytes: int) -> None:
    step = collective(read(*both(operation(name))))
    assert (step.operation, step.size_bytes, step.group) == (kind, size_bytes, ("0", "1"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("allreduce_sparse", "sparse tensor"),
        ("recvAnysource", "which rank sends"),
        ("batch_op_issue", "its batch sends"),
        ("teleport", "no operation of a process group"),
    ],
)
def test_what_cannot_be_read_is_refused_and_never_left_out(name: str, words: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        read(*both(operation(name)))
    assert refusal.value.path == "entry 0"
    assert words in refusal.value.reason
    assert "leave it out" not in refusal.value.reason


@pytest.mark.parametrize(
    ("dtype", "element_bytes"),
    [("Float8_e4m3fn", 1), ("UInt32", 4), ("ComplexFloat", 8), ("Long", 8), ("Bool", 1)],
)
def test_each_type_has_its_bytes(dtype: str, element_bytes: int) -> None:
    step = collective(read(*both(operation("allreduce", dtype=dtype))))
    assert step.size_bytes == 100 * element_bytes


def recorded_by_host(
    name: str, elements: int, rank: int, root: int, world: int, **args: Any
) -> Source:
    """Return a trace whose kernel describes itself, and whose host records the root as well."""
    fields = said(name, elements, world, **{"External id": 9}, **args)
    return kineto(
        host("record_param_comms", "cpu_op", 0, 5, {**fields, "Rank": root}),
        kernel(10, 5, 24, KERNEL, **fields),
        rank=rank,
        world=world,
    )


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_the_root_is_first(name: str) -> None:
    files = [recorded_by_host(name, 100, rank, 2, 3) for rank in range(3)]
    assert collective(read(*files)).group == ("2", "0", "1")
    unsaid = read(*both(operation(name)))
    assert unsaid.tally.derived[f"{name} roots that are not recorded, as the first rank"] == 2


def test_a_gather_and_a_scatter_go_to_and_from_one_rank() -> None:
    gather = [recorded_by_host("gather", 100, rank, 1, 3) for rank in range(3)]
    step = collective(read(*gather))
    assert step.matrix == ((0, 200, 0), (0, 0, 0), (0, 200, 0))
    # PyTorch records the bytes of all parts of a scatter on each rank.
    scatter = [recorded_by_host("scatter", 300, rank, 1, 3) for rank in range(3)]
    step = collective(read(*scatter))
    assert step.matrix == ((0, 0, 0), (200, 0, 200), (0, 0, 0))


@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_a_gather_without_its_root_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match=r"does not say the root .*CPU activities"):
        read(*both(operation(name)))


def test_an_all_to_all_has_what_each_rank_sends_to_each() -> None:
    splits = ("[30, 10]", "[40, 0]")
    files = [
        kineto(
            operation("all_to_allv", 400, **{"In split size": splits[rank], "Rank": 0}),
            rank=rank,
        )
        for rank in (0, 1)
    ]
    assert collective(read(*files)).matrix == ((600, 200), (800, 0))
    cut = [
        kineto(operation("all_to_allv", 100 + rank, **{"In split size": "[3, ..., 4]"}), rank=rank)
        for rank in (0, 1)
    ]
    workload = read(*cut)
    assert collective(workload).size_bytes == 201
    assert workload.tally.derived["all-to-alls with the mean of the ranks' bytes"] == 1


def test_an_uneven_all_gather_keeps_the_bytes_of_all_parts() -> None:
    files = [kineto(operation("all_gather", elements), rank=r) for r, elements in enumerate((1, 9))]
    assert collective(read(*files)).size_bytes == 2 * (1 + 9)


def world_of(size: int, rank: int, *events: dict[str, Any], **info: object) -> Source:
    document = {
        "distributedInfo": {"rank": rank, "world_size": size, **info},
        "traceEvents": list(events),
    }
    return Source(f"rank{rank}.json", json.dumps(document).encode())


def test_a_list_of_ranks_that_is_cut_off_is_completed() -> None:
    listed = ", ".join(str(2 * rank) for rank in range(29))
    cut = operation(
        "allreduce",
        **{
            "Group size": 31,
            "Process Group Ranks": f"[{listed}, ..., 60]",
            "Process Group Name": "e",
        },
    )
    files = [world_of(62, rank, cut if rank % 2 == 0 else kernel(0, 1)) for rank in range(62)]
    assert collective(read(*files)).group == tuple(str(rank) for rank in range(0, 62, 2))


@pytest.mark.parametrize(
    "listed", ["[0, ..., 1]", "[0, 2, ..., 5]", "[0, 0, ..., 0]", "[]", "0, 1"]
)
def test_a_list_of_ranks_that_cannot_be_completed_is_not_taken(listed: str) -> None:
    cut = operation("allreduce", **{"Group size": 3, "Process Group Ranks": listed})
    with pytest.raises(DocumentError, match="has 3 of 2 ranks, and no file says which"):
        read(*both(cut))


def test_the_groups_of_the_profiler_name_ranks_that_are_not_evenly_spaced() -> None:
    groups = [{"pg_name": "7", "ranks": [0, 1, 3]}, {"pg_name": "8", "ranks": [2]}]
    event = operation(
        "allreduce", **{"Group size": 3, "Process Group Ranks": "[]", "Process Group Name": "7"}
    )
    files = [
        world_of(4, rank, kernel(0, 1) if rank == 2 else event, pg_config=groups)
        for rank in range(4)
    ]
    assert collective(read(*files)).group == ("0", "1", "3")


def transfer(name: str, peer: int | None, start_us: float = 0, **args: Any) -> dict[str, Any]:
    fields = arguments(name, 0, 2) | args
    for key in ("Dst Rank", "Src Rank"):
        fields.pop(key, None)
    if peer is not None:
        fields["Dst Rank" if name == "send" else "Src Rank"] = peer
    return kernel(start_us, 5, 24, KERNEL, **fields)


def flows(workload: Workload) -> list[tuple[str, str, int]]:
    return [
        (node.src, node.dst, node.size_bytes) for node in workload.nodes if isinstance(node, Flow)
    ]


def test_two_micro_batches_on_two_stages() -> None:
    """The case of mlcommons/chakra's pull requests 112 and 185."""
    forward, backward, other = "gemm", "gemm_bwd", 7

    def computed(start_us: float, us: float, name: str = forward) -> dict[str, Any]:
        return kernel(start_us, us, other, name)

    first = kineto(
        computed(1000, 1000),
        transfer("send", 1, 2000, **{"Src Rank": 0}) | {"dur": 400},
        computed(2000, 1000),
        transfer("send", 1, 3000) | {"dur": 400},
        transfer("recv", 1, 5000) | {"dur": 400},
        computed(5400, 2000, backward),
        transfer("recv", 1, 7000) | {"dur": 400},
        computed(7400, 2000, backward),
    )
    second = kineto(
        transfer("recv", 0, 1000) | {"dur": 1400},
        computed(2400, 1000),
        transfer("recv", 0, 2400) | {"dur": 1000},
        computed(3400, 1000),
        computed(4400, 600, backward),
        transfer("send", 0, 5000) | {"dur": 400},
        computed(5400, 1600, backward),
        transfer("send", 0, 7000) | {"dur": 400},
        rank=1,
    )
    workload = read(first, second)
    size_bytes = 2 * 1_048_576
    assert sorted(flows(workload)) == [("0", "1", size_bytes)] * 2 + [("1", "0", size_bytes)] * 2
    kernels_us = {"0": 2 * 1000 + 2 * 2000, "1": 2 * 1000 + 600 + 1600}
    # What the GPU waits for the host: a receipt that is posted 1.6 ms after the last send, and the
    # next, as long behind the first one; a send as long behind the one before.
    host_us = {"0": 2 * 1600, "1": 1600 - 1600}
    for rank, us in kernels_us.items():
        seconds = sum(
            node.duration_s
            for node in workload.nodes
            if isinstance(node, ComputeUnit) and node.worker == rank
        )
        assert seconds * 10**6 == us + host_us[rank]
    assert workload.tally.notes[0].startswith("Iteration: 8.4 ms in the trace, 8.4 ms as imported")


def test_the_other_end_is_the_one_that_a_trace_says() -> None:
    # By the host's record: `Rank` is the place in the group.
    fields = arguments("send", 0, 3) | {"External id": 9, "Process Group Ranks": "[0, 2, 1]"}
    del fields["Dst Rank"]
    sender = kineto(
        host("record_param_comms", "cpu_op", 0, 5, {**fields, "Rank": 1}),
        kernel(10, 5, 24, KERNEL, **fields),
        world=3,
    )
    idle = kineto(kernel(0, 1), rank=1, world=3)
    receiver = kineto(transfer("recv", 0), rank=2, world=3)
    assert flows(read(sender, idle, receiver)) == [("0", "2", 2_097_152)]
    # In a group of two, it is the other one.
    workload = read(kineto(transfer("send", None)), kineto(transfer("recv", None), rank=1))
    assert flows(workload) == [("0", "1", 2_097_152)]
    assert workload.tally.derived["other ends of transfers, in groups of two"] == 2
    # In a larger one, it has to be recorded.
    unsaid = transfer("send", None, **{"Group size": 3, "Process Group Ranks": "[0, 1, 2]"})
    with pytest.raises(DocumentError, match="does not say to which rank it sends, of 3"):
        read(kineto(unsaid, world=3), idle, receiver)


def test_sends_match_within_their_process_group() -> None:
    small = {"In msg nelems": 5, "Process Group Name": "2"}
    workload = read(
        kineto(transfer("send", 1, 0), transfer("send", 1, 10, **small)),
        kineto(transfer("recv", 0, 0, **small), transfer("recv", 0, 10), rank=1),
        transfers="eager",
    )
    assert sorted(size for _, _, size in flows(workload)) == [10, 2_097_152]


def refused(*sources: Source) -> DocumentError:
    with pytest.raises(DocumentError) as refusal:
        read(*sources)
    return refusal.value


def test_a_missing_partner_is_said_with_ranks_and_times() -> None:
    fault = refused(
        kineto(transfer("send", 1, 100), transfer("send", 1, 2345.5)),
        kineto(transfer("recv", 0, 100), rank=1),
    )
    assert (fault.file, fault.path) == ("kineto_0.json", "entry 1, at 2345.5 us")
    assert "rank 0 sends 2 times to rank 1, which receives 1 times from it" in fault.reason


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (
            [kineto(transfer("send", 1))],
            "which ranks do not run alike (give the files of all ranks",
        ),
        (
            both(kernel(0, 5, 24, KERNEL, **arguments("recv", 0, 2), **{"Dst Rank": 1})),
            "is a recv of rank 1, but the file is of rank 0",
        ),
        (both(transfer("send", 1)), "rank 1, whose other end is rank 1 itself"),
        (
            [
                kineto(transfer("send", 1)),
                kineto(transfer("recv", 0, **{"In msg nelems": 7}), rank=1),
            ],
            "receives 14 B on rank 1, but entry 0, at 0 us of kineto_0.json sends 2097152 B",
        ),
        (
            [kineto(transfer("send", 1), world=3), kineto(transfer("recv", 0), rank=1, world=3)],
            "is of a job of 3 ranks, but there are files of 2",
        ),
        (both(kernel(0, 5, 24, KERNEL)), "does not say its bytes (profile with CPU activities"),
    ],
)
def test_what_a_pipeline_lacks_is_said(sources: Sequence[Source], words: str) -> None:
    assert words in refused(*sources).reason


def launched(number: int, start_us: float, stream: int = 24) -> list[dict[str, Any]]:
    """Return a kernel of NCCL that says nothing, and its launch."""
    launch = host("cudaLaunchKernelExC", "cuda_runtime", start_us, 1, {"correlation": number})
    return [launch, kernel(100 + start_us, 5, stream, KERNEL, correlation=number)]


def test_a_batch_too_large_for_one_kernel_goes_on_in_the_next() -> None:
    files = []
    for rank in (0, 1):
        name = "send" if rank == 0 else "recv"
        record = host("record_param_comms", "cpu_op", 0, 2, arguments(name, 1 - rank, 2))
        events = [record, *launched(1, 5), *launched(2, 10), kernel(200, 7)]
        files.append(kineto(*events, rank=rank))
    workload = read(*files)
    assert flows(workload) == [("0", "1", 2_097_152)]
    assert workload.tally.derived["kernels of NCCL that carry on the one before"] == 2


def test_kernels_of_one_record_are_one_operation() -> None:
    fields = said("all_to_allv", **{"External id": 9})
    workload = read(*both(*(kernel(10 * n, 9, 24, KERNEL, **fields) for n in range(3))))
    assert collective(workload).size_bytes == 200
    assert workload.tally.derived["kernels of NCCL that carry on the one before"] == 4
    other = kernel(30, 9, 24, KERNEL, **(fields | {"External id": 10}))
    assert len(read(*both(kernel(0, 9, 24, KERNEL, **fields), other)).groups) == 1


def test_coalesced_collectives_are_one_kernel() -> None:
    records = [
        host("record_param_comms", "cpu_op", start_us, 2, said("_allgather_base", elements))
        for start_us, elements in ((0, 10), (3, 20))
    ]
    workload = read(*both(*records, *launched(1, 8)))
    steps = [node for node in workload.nodes if isinstance(node, CollectiveStep)]
    assert [step.size_bytes for step in steps] == [40, 80]
    # Neither waits for the other.
    assert all(step.name not in other.after for step in steps for other in steps)


def test_operations_without_a_kernel_are_said() -> None:
    record = host("record_param_comms", "cpu_op", 0, 2, said("allreduce"))
    workload = read(*both(record, kernel(10, 5)))
    [note, *_] = workload.tally.notes
    assert "records 1 operations that no kernel of NCCL in it carries" in note


def test_a_step_has_what_the_host_launched_in_it() -> None:
    steps = [host(f"ProfilerStep#{n}", "user_annotation", 100 * n, 100, {}) for n in (1, 2)]
    launch = host("cudaLaunchKernel", "cuda_runtime", 190, 1, {"correlation": 1})
    # Launched in the first step, begun in the second.
    late = kernel(205, 10, correlation=1)
    workload = read(*both(*steps, launch, late, kernel(260, 10)))
    computing = [node for node in workload.nodes if isinstance(node, ComputeUnit)]
    assert len(computing) == 2


def test_a_time_that_differs_has_its_word() -> None:
    # Rank 0 waits 9 ms for rank 1, whose trace begins only then.
    early = kineto(kernel(0, 1000), operation("allreduce") | {"ts": 1000, "dur": 9000})
    late = kineto(kernel(9000, 500), operation("allreduce") | {"ts": 9500, "dur": 500}, rank=1)
    [note] = read(early, late).tally.notes
    assert note.startswith("Iteration: 10 ms in the trace, 1.5 ms as imported")
    assert "85 % shorter" in note


def test_clocks_may_differ() -> None:
    ahead = [operation("allreduce") | {"ts": 10**9 * rank + 1000, "dur": 400} for rank in (0, 1)]
    files = [kineto(kernel(10**9 * rank, 1000), ahead[rank], rank=rank) for rank in (0, 1)]
    [note] = read(*files).tally.notes
    assert note.startswith("Iteration: 1.4 ms in the trace, 1.4 ms as imported")


def test_small_sends_that_cross_do_not_wait_for_each_other() -> None:
    files = [
        kineto(transfer("send", 1 - rank, 0), transfer("recv", 1 - rank, 10), rank=rank)
        for rank in (0, 1)
    ]
    workload = read(*files)
    assert sorted(flows(workload)) == [("0", "1", 2_097_152), ("1", "0", 2_097_152)]
    assert "wait for each other in a circle" in workload.tally.notes[0]


def on_host(
    name: str, elements: int, member: int, number: object, start: int = 0
) -> dict[str, Any]:
    """Return a record of PyTorch since 2.4."""
    node = recorded(name, elements)
    tensor = node["inputs"][0]
    node["inputs"] = [
        tensor, [number, True], ["0", "pp"], member, name, [], [], start, 1, 2, False
    ]  # fmt: skip
    return node


def test_an_execution_trace_says_its_batches() -> None:
    files = []
    for rank in (0, 1):
        nodes = [on_host(name, 8, 1 - rank, 5) for name in ("send", "recv")]
        nodes.append(on_host("allreduce", 3, rank, 1))
        files.append(execution(*nodes, rank=rank))
    workload = read(*files)
    assert sorted(flows(workload)) == [("0", "1", 16), ("1", "0", 16)]
    [step] = [node for node in workload.nodes if node.name == "pg0-0"]
    assert set(step.after) == {"send-0-1-t0-0", "send-1-0-t0-0"}


def test_an_execution_trace_says_the_ranks_of_a_group() -> None:
    files = []
    for rank in range(4):
        first = rank // 2 * 2
        files.append(execution(on_host("allreduce", 3, rank - first, 1, first), rank=rank))
    assert sorted(read(*files).groups) == [("0", "1"), ("2", "3")]


def test_an_execution_trace_of_gloo_is_refused() -> None:
    node = {"id": 1, "name": "c10d::send", "inputs": {"values": [[], "<Object>", 1, 0]}}
    fault = refused(execution(node), execution(node, rank=1))
    assert "records no process group, as with Gloo" in fault.reason
    assert "echelon capture" in fault.reason


def waiting(kind: str, correlation: int, start_us: float, **args: object) -> list[dict[str, Any]]:
    """Return a call of the host that lets something wait, and Kineto's event about it."""
    call = host("cudaStreamWaitEvent", "cuda_runtime", start_us, 1, {"correlation": correlation})
    return [call, host(kind, "cuda_sync", start_us, 1, {"correlation": correlation, **args})]


def test_recorded_waits_count_alone() -> None:
    """Two gradients: the second is computed beside the sum of the first, the optimizer waits."""
    fields = said("allreduce")
    calls = [host("cudaLaunchKernel", "cuda_runtime", n, 1, {"correlation": n}) for n in (1, 5, 7)]
    calls.append(host("cudaLaunchKernelExC", "cuda_runtime", 4, 1, {"correlation": 4}))
    records = [host("cudaEventRecord", "cuda_runtime", n, 1, {"correlation": n}) for n in (2, 6)]
    begins = waiting(
        "Stream Wait Event",
        3,
        3,
        stream=24,
        wait_on_stream=7,
        wait_on_cuda_event_record_corr_id=2,
    )
    ends = waiting(
        "Stream Wait Event",
        8,
        8,
        stream=7,
        wait_on_stream=24,
        wait_on_cuda_event_record_corr_id=6,
    )
    calls.append(host("cudaLaunchKernel", "cuda_runtime", 9, 1, {"correlation": 9}))
    kernels = [
        kernel(100, 10, correlation=1),
        kernel(110, 20, 24, KERNEL, correlation=4, **fields),
        kernel(110, 30, correlation=5),
        kernel(140, 30, correlation=7),
        kernel(170, 5, correlation=9),
    ]
    events = [*calls, *records, *begins, *ends, *kernels]
    asks = host("record_param_comms", "cpu_op", 6, 0, said("wait"))
    silent = [event for event in events if event["cat"] != "cuda_sync"]
    # Without a record, what the host launched after it asked for the sum has to wait for it.
    for chosen, lengths in ((events, {5}), ([*silent, asks], {30}), (silent, set())):
        workload = read(*both(*chosen))
        step = collective(workload)
        followers = [node for node in workload.nodes if step.name in node.after]
        computing = [node for node in followers if isinstance(node, ComputeUnit)]
        assert {node.duration_s * 10**6 for node in computing} == lengths


def gradients(buckets: int, sum_us: int) -> tuple[list[dict[str, Any]], int]:
    """Return the events of a backward pass whose gradients are summed meanwhile, and its end.

    A bucket takes two kernels of 500 us; the optimizer waits for the last sum.
    """
    events = []
    summed_us = 0
    for number in range(2 * buckets + 1):
        launch = host("cudaLaunchKernel", "cuda_runtime", 4 * number, 1, {"correlation": number})
        events.append(launch)
        if number == 2 * buckets:
            events.append(kernel(summed_us, 100, correlation=number))
            continue
        events.append(kernel(500 * number, 500, correlation=number))
        if number % 2:
            start_us = max(500 * (number + 1), summed_us)
            summed_us = start_us + sum_us
            correlation = 1000 + number
            launch = {**launch, "ts": 4 * number + 2, "args": {"correlation": correlation}}
            args = said("allreduce", 10 + number) | {"correlation": correlation}
            events += [launch, kernel(start_us, sum_us, 24, KERNEL, **args)]
    return events, summed_us + 100


@pytest.mark.parametrize("sum_us", [100, 999, 1400, 7000])
def test_a_backward_pass_does_not_wait_for_its_sums(sum_us: int) -> None:
    events, end_us = gradients(6, 300)
    workload = read(*both(*events))
    assert replayed_s(workload) * 10**6 == end_us
    took_s = dict.fromkeys(workload.took_s, Fraction(sum_us, 10**6))
    _, slower_us = gradients(6, sum_us)
    assert replayed_s(replace(workload, took_s=took_s)) * 10**6 == slower_us


def test_communication_without_nccl_is_said() -> None:
    name = "void deep_ep::internode::dispatch<false>(int4*)"
    workload = read(*both(kernel(0, 5, name=name)))
    assert workload.tally.derived["kernels of other libraries that communicate, as computing"] == 2
