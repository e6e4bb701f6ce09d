"""Pipelines in traces of PyTorch's profiler: sends, receipts, batches, and what is between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from echelon.model.jobs.graph import ComputeUnit, Flow
from echelon_importers import Workload, make_importer
from echelon_importers.pytorch.replay import replayed_s
from plugins.importers.tests.pipeline_traces import (
    BACKWARD_US,
    ELEMENTS,
    FORWARD_US,
    Rank,
    gpipe,
    looped,
    one_forward_one_backward,
    run,
    traces,
)

SCHEDULES = [gpipe, one_forward_one_backward, looped]


def sent(workload: Workload) -> Counter[tuple[str, str]]:
    """Return how often each rank sends to each, after a check that all have the same bytes."""
    flows = [node for node in workload.nodes if isinstance(node, Flow)]
    assert {flow.size_bytes for flow in flows} == {2 * ELEMENTS}
    return Counter((flow.src, flow.dst) for flow in flows)


def expected(schedule: Callable[..., object], stages: int, count: int) -> Counter[tuple[str, str]]:
    """Return how often each rank sends to each, from the number of micro-batches alone."""
    pairs: Counter[tuple[str, str]] = Counter()
    loops = 2 if schedule is looped else 1
    for stage in range(loops * stages - 1):
        src, dst = str(stage % stages), str((stage + 1) % stages)
        pairs[src, dst] += count
        pairs[dst, src] += count
    return pairs


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 2), (2, 4), (3, 5), (4, 8)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipelines_keep_bytes_computing_and_time(
    schedule: Callable[[int, int], list[Rank]], stages: int, micro_batches: int, batched: bool
) -> None:
    ranks = schedule(stages, micro_batches)
    workload = make_importer("pytorch", {}).read(traces(ranks, batched=batched))
    assert sent(workload) == expected(schedule, stages, micro_batches)

    computed: Counter[str] = Counter()
    for node in workload.nodes:
        if isinstance(node, ComputeUnit):
            computed[node.worker] += round(node.duration_s * 10**6)
    chunks = 2 if schedule is looped else 1
    each = chunks * micro_batches * (FORWARD_US + BACKWARD_US)
    assert computed == {str(rank): each for rank in range(stages)}

    ms = f"{run(ranks) / 1000:.4g} ms"
    [note] = workload.tally.notes
    assert note.startswith(f"Iteration: {ms} in the trace, {ms} as imported")
    assert workload.tally.read["kernels"] == chunks * 2 * micro_batches * stages


@pytest.mark.parametrize("transfer_us", [100, 1500, 5000])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_job_takes_what_the_pipeline_would_take_on_another_network(
    schedule: Callable[[int, int], list[Rank]], batched: bool, transfer_us: int
) -> None:
    workload = make_importer("pytorch", {}).read(traces(schedule(3, 6), batched=batched))
    flows = [node.name for node in workload.nodes if isinstance(node, Flow)]
    took_s = dict.fromkeys(flows, Fraction(transfer_us, 10**6))
    imported_us = replayed_s(replace(workload, took_s=took_s)) * 10**6
    assert imported_us == run(schedule(3, 6), transfer_us)


def test_a_batch_is_the_operations_before_its_launch() -> None:
    workload = make_importer("pytorch", {}).read(traces(one_forward_one_backward(2, 3)))
    # Stage 0 sends an activation and receives a gradient at once, twice. Stage 1 has the other
    # ends, and waits for the last gradient that it sends alone.
    assert workload.tally.derived["batches of operations in one kernel of NCCL"] == 2 + 2
    # Both ends of the batch are awaited by the backward pass behind it.
    followers = [node.after for node in workload.nodes if "send-1-0-t0-0" in node.after]
    assert any("send-0-1-t0-1" in after for after in followers)


def test_computing_overlaps_with_a_send() -> None:
    workload = make_importer("pytorch", {}).read(traces(gpipe(2, 2)))
    computing = [node for node in workload.nodes if isinstance(node, ComputeUnit)]
    second = [node for node in computing if node.worker == "0" and node.duration_s > 0][1]
    assert second.duration_s == Fraction(FORWARD_US, 10**6)
    assert not any(name.startswith("send") for name in second.after)
