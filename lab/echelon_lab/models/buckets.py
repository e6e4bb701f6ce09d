"""The sums of gradients between hosts: their sizes, and their numbers of parts."""

from __future__ import annotations

from collections.abc import Iterator

from echelon_lab.models.placement import Placement
from echelon_lab.models.training import Training

BUCKET_PARAMETERS = 40_000_000
"""Parameters in one sum of a mesh: `bucket_size` of Megatron-LM.

It is a million for each replica if that is more
(megatron/core/distributed/distributed_data_parallel.py).
"""
BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default.

S. Li et al., PyTorch Distributed, VLDB '20, section 3.2.3.
"""
_MOST_BUCKETS = 1000


def plain_buckets(gradient_bytes: int) -> int:
    """Return the number of parts in which data parallelism alone sums gradients."""
    return min(-(-gradient_bytes // BUCKET_BYTES), _MOST_BUCKETS)


def mesh_buckets(
    training: Training,
    layers: int,
    group: int,
) -> int:
    """Return the number of parts in which a chunk's gradients are summed.

    It divides the number of `layers` where a `group` exchanges something in each of them.
    """
    parameters = max(map(training.parameters, training.stages)) // training.chunks
    bucket = max(BUCKET_PARAMETERS, 10**6 * training.data)
    most = min(layers, -(-parameters // bucket))
    if group == 1:
        return max(1, most)
    return max(number for number in range(1, most + 1) if layers % number == 0)


def sums(
    training: Training,
    placed: Placement,
) -> Iterator[tuple[str, list[int]]]:
    """Yield the sizes of a host's sums of gradients in each stage, by key of a mesh.

    With ZeRO, the parameters that it gathers then follow. Of hosts that share layers, each has all
    parameters of a context, and its part of the experts.
    """
    dense = []
    experts = []
    for layers in training.stages:
        dense.append(training.tensor * training.dense(layers))
        experts.append(training.host_experts(layers, placed.gpus_per_host))
    everything = [sum(sizes) for sizes in zip(dense, experts, strict=True)]

    # Parameters that replicas sum among themselves, and those that all hosts of a stage sum.
    if placed.group == 1:
        by_replicas = everything
        by_all = []
    elif placed.has_context:
        by_replicas = []
        by_all = everything
    else:
        by_replicas = experts
        by_all = dense
    summed = training.summed_element_bytes
    gathered = training.model.parameter_bytes
    if any(by_replicas):
        yield "gradient", [summed * size for size in by_replicas]
        if training.zero:
            yield "parameters", [gathered * size for size in by_replicas]
    if any(by_all):
        if training.zero:
            # A reduce-scatter and an all-gather send half as much as an all-reduce each.
            yield "shared_gradient", [size * (summed + gathered) // 2 for size in by_all]
        else:
            yield "shared_gradient", [size * summed for size in by_all]
