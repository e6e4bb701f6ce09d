"""The order of kernels in Chakra traces that do not say it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from echelon.model.jobs.graph import ComputeUnit
from echelon_importers import Source, Workload, make_importer
from echelon_importers.workload import contracted
from plugins.importers.tests.traces import kernel, node, traces

ON_STREAM = "waits for the node before on a stream, by start times"
BETWEEN = "waits for nodes of other streams, by start times"
IN_TURN = "waits for computing before it on the same GPU, one at a time"
MIB = 1 << 20


def read(sources: Sequence[Source], **options: object) -> Workload:
    return contracted(make_importer("chakra", options).read(sources))


def iteration_us(workload: Workload, collective_us: int) -> int:
    """Return the time of an iteration in which each communication takes so long."""
    ends: dict[str, Fraction] = {}
    for step in workload.nodes:
        start_s = max((ends[name] for name in step.after), default=Fraction(0))
        is_computing = isinstance(step, ComputeUnit)
        taken_s = step.duration_s if is_computing else Fraction(collective_us, 10**6)
        ends[step.name] = start_s + taken_s
    return round(max(ends.values()) * 10**6)


def launched(times: Iterable[int]) -> list[Any]:
    """Return a launch and three kernels of 1 ms; an all-reduce of another stream stands between.

    All depend on the launch alone (mlcommons/chakra #215).
    """
    first, second, reduced, third = times
    return [
        node(1, 4, us=10, is_cpu_op=True),
        kernel(2, first, 1000, [1], 7),
        kernel(3, second, 1000, [1], 7),
        kernel(4, reduced, 500, [1], 20, comm_type=0, comm_size=MIB),
        kernel(5, third, 1000, [1], 7),
    ]


def test_kernels_without_stream_order_take_as_long_as_the_trace_says() -> None:
    """3.5 ms by start times; the dependencies alone make 1.01 ms of it."""
    sources = traces(*[launched((10, 1010, 2010, 2510))] * 2)
    workload = read(sources)
    assert iteration_us(workload, collective_us=500) == 3510
    assert workload.tally.derived[ON_STREAM] == 2 * 2
    assert workload.tally.derived[BETWEEN] == 2 * 2
    assert workload.tally.notes == []


def test_streams_that_overlap_stay_apart() -> None:
    """The all-reduce runs beside the second kernel, so nothing waits between the streams."""
    workload = read(traces(*[launched((10, 1010, 1010, 2010))] * 2))
    assert iteration_us(workload, collective_us=500) == 3010
    assert workload.tally.derived[ON_STREAM] == 2 * 2
    assert workload.tally.derived[BETWEEN] == 0


def test_the_order_is_that_of_start_times_not_of_the_file() -> None:
    kernels = [kernel(2, 2000, 1000, [], 7), kernel(1, 1000, 1000, [], 7)]
    workload = make_importer("chakra", {}).read(traces(kernels, kernels))
    after = {step.name: step.after for step in workload.nodes}
    assert after["n2-r0"] == ("n1-r0",)


def test_a_trace_whose_times_contradict_its_dependencies_is_said_to() -> None:
    """Three kernels wait for each other, but all of them start at once."""
    kernels = [kernel(n, 100, 1000, [n - 1] if n > 1 else [], n) for n in (1, 2, 3)]
    workload = read(traces(kernels, kernels))
    assert iteration_us(workload, 0) == 3000
    [note] = workload.tally.notes
    assert note == (
        "2 of 2 traces do not add up: a.0.et spans 1 ms by its start times, but its"
        " dependencies and durations make it 3 ms, which counts"
    )
    backward = [kernel(1, 2000, 100, [], 7), kernel(2, 1000, 100, [1], 7)]
    notes = read(traces(backward, backward)).tally.notes
    assert notes[0].startswith("2 nodes start before nodes of their stream for which they wait")


def test_a_stream_without_start_times_runs_one_kernel_at_a_time() -> None:
    """A launch of 1 ms comes between the two kernels of 0.5 ms, in another order than numbers."""
    nodes = [
        node(1, 4, us=1000, is_cpu_op=True),
        kernel(2, 0, 500, [1], 7),
        kernel(3, 0, 500, [], 7),
        kernel(4, 0, 500, [1], 7),
        kernel(5, 0, 500, [1], 9),
    ]
    workload = make_importer("chakra", {}).read(traces(nodes, nodes))
    after = {step.name: set(step.after) for step in workload.nodes}
    assert after["n2-r0"] == {"n1-r0", "n3-r0"}
    assert after["n4-r0"] == {"n2-r0"}
    assert after["n5-r0"] == {"n1-r0"}
    assert workload.tally.derived[IN_TURN] == 2 * 2
    assert iteration_us(workload, 0) == 2000


def test_a_gpu_without_streams_computes_one_node_at_a_time_across_ranks_that_wait() -> None:
    """By numbers, rank 0 would wait for what rank 1 sends only after it has received."""
    first = [
        node(1, 6, comm_src=1, comm_tag=0, comm_size=9),
        node(2, 4, [1], us=10, is_cpu_op=False),
        node(3, 4, us=30, is_cpu_op=False),
        node(4, 5, [3], comm_dst=1, comm_tag=0, comm_size=9),
    ]
    second = [
        node(1, 6, comm_src=0, comm_tag=0, comm_size=9),
        node(2, 4, [1], us=20, is_cpu_op=False),
        node(3, 5, [2], comm_dst=0, comm_tag=0, comm_size=9),
    ]
    workload = make_importer("chakra", {}).read(traces(first, second))
    after = {step.name: set(step.after) for step in workload.nodes}
    assert "n2-r0" not in after["n3-r0"]
    assert iteration_us(workload, 0) == 60


def test_computing_of_cpus_stays_as_it_is() -> None:
    nodes = [node(number, 4, us=10, is_cpu_op=True, stream=0) for number in (1, 2)]
    assert iteration_us(read(traces(nodes, nodes)), 0) == 10
    unsaid = [node(number, 4, us=10) for number in (1, 2)]
    assert iteration_us(read(traces(unsaid, unsaid)), 0) == 10
