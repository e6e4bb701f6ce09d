"""The section of a job whose state is sharded: FSDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from echelon.model.quantities import size_text
from echelon_lab.models.collectives import Bus, round_s
from echelon_lab.models.execution import execution
from echelon_lab.models.layers import Layer
from echelon_lab.models.placement import Placement
from echelon_lab.models.times import pass_s
from echelon_lab.models.training import Training


def sharded(
    training: Training,
    placed: Placement,
    times: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the section, with the times of each layer.

    A host gathers what its GPUs have together, once: inside, they pass it on over their own links.
    """
    parameters = []
    gradients = []
    for layer in training.model.layers:
        count = training.host_parameters([layer], placed.gpus_per_host)
        parameters.append(size_text(training.model.parameter_bytes * count))
        gradients.append(size_text(training.summed_element_bytes * count))
    section: dict[str, Any] = {
        "zero": training.zero,
        "layers": len(parameters),
        "micro_batches": training.micro_batches,
        **times,
        "parameters": parameters,
        "gradients": gradients,
    }
    if placed.sharded_replicas > 1:
        section["replicas"] = placed.sharded_replicas
    return section


def layer_pass_s(
    training: Training,
    layer: Layer,
    placed: Placement,
) -> tuple[Fraction, Fraction]:
    """Return what the forward and the backward pass of a layer take on a host.

    Shards inside a host are gathered and scattered over its own links, while the layer before is
    computed. Those of several hosts pass through NICs, which are slower, and are flows of the job.
    """
    forward, backward = pass_s(training, [layer], placed.host)
    if placed.shard_hosts > 1:
        return forward, backward
    bus = Bus(execution(training.gpu).ring_bytes_per_s(training.gpu))
    scatter_s = round_s(bus, training.shards, training.summed_bytes([layer]))
    if training.zero < 3:
        return forward, max(backward, scatter_s)
    gather_s = round_s(bus, training.shards, training.gathered_bytes([layer]))
    return max(forward, gather_s), max(backward, gather_s, scatter_s)
