"""The bytes that the GPUs of a training send in an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echelon_lab.models.layers import Layer
from echelon_lab.models.training import Training

INDEX_BYTES = 8
"""Bytes of the number of a row in a table: torch.int64, as TorchRec sends them."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one GPU's collectives and sends in an iteration, by operation and group.

    They are sizes of tensors, as they are handed to the library.
    """

    tensor_all_reduce: int
    """The bytes of an all-reduce.

    With sequence parallelism, they are those of a reduce-scatter and of an all-gather.
    """
    pipeline_send: int
    data_all_reduce: int
    data_reduce_scatter: int
    data_all_gather: int
    context_all_gather: int = 0
    context_reduce_scatter: int = 0
    expert_all_to_all: int = 0
    shard_reduce_scatter: int = 0
    shard_all_gather: int = 0
    table_all_to_all: int = 0


def traffic(training: Training) -> list[Traffic]:
    """Return what a GPU of each stage hands to its collectives in an iteration."""
    by_stage = []
    for number, layers in enumerate(training.stages):
        by_stage.append(_stage_traffic(training, number, layers))
    return by_stage


def _stage_traffic(
    training: Training,
    number: int,
    layers: Sequence[Layer],
) -> Traffic:
    micro_batches = training.micro_batches
    passes = 2
    if training.recompute == "full":
        passes = 3
    key_values = micro_batches * sum(training.context_bytes(layer) for layer in layers)
    routed = micro_batches * sum(training.routed_bytes(layer) for layer in layers)

    all_reduce, reduce_scatter, all_gather = _state_bytes(training, layers)
    shard_scatter = shard_gather = 0
    if training.shards < training.data * training.context:
        # Only what a GPU has of a layer is summed over groups.
        shard_scatter, shard_gather = reduce_scatter, all_gather
        all_reduce = -(-reduce_scatter // training.shards)
        reduce_scatter = all_gather = 0
    exchanged = 0
    for layer in layers:
        exchanged += table_bytes(training, layer)
    return Traffic(
        tensor_all_reduce=passes * micro_batches * training.tensor_bytes(layers),
        pipeline_send=micro_batches * _pipeline_sends(training, number),
        data_all_reduce=all_reduce,
        data_reduce_scatter=reduce_scatter,
        data_all_gather=all_gather,
        context_all_gather=passes * key_values,
        context_reduce_scatter=key_values,
        expert_all_to_all=2 * passes * routed,
        shard_reduce_scatter=shard_scatter,
        shard_all_gather=shard_gather,
        table_all_to_all=exchanged,
    )


def _state_bytes(training: Training, layers: Sequence[Layer]) -> tuple[int, int, int]:
    """Return the bytes of gradients and parameters that a GPU exchanges with replicas.

    They are those of all-reduces, reduce-scatters and all-gathers.
    """
    if training.data * training.context == 1:
        return 0, 0, 0
    summed = training.summed_bytes(layers)
    gathered = training.gathered_bytes(layers)
    if training.zero == 0:
        return summed, 0, 0
    if training.is_sharded:
        summed *= training.micro_batches
    if training.zero == 3:
        gathered *= 2 * training.micro_batches
    return 0, summed, gathered


def table_bytes(training: Training, layer: Layer) -> int:
    """Return the bytes of all-to-alls of tables: indices, sums of rows, and their gradients."""
    elements = 2 * training.model.parameter_bytes * layer.tables.pooled
    return training.micro_batch_samples * (INDEX_BYTES * layer.tables.indices + elements)


def _pipeline_sends(training: Training, number: int) -> int:
    """Return the bytes that a GPU of this stage sends to other stages for one micro-batch."""
    ends = []
    for layers in training.stages[:-1]:
        ends.append(training.sent_bytes(layers[-1]))
    if not ends:
        return 0
    # Nothing leaves the last chunk of the last stage, or goes back from the first one of the first.
    last = len(ends)
    forward = training.chunks - (number == last)
    backward = training.chunks - (number == 0)
    return forward * ends[min(number, last - 1)] + backward * ends[number - 1]
