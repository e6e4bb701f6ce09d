"""The comments of a job file, and what it warns of."""

from __future__ import annotations

from collections.abc import Iterator

from echelon_lab.models.computing import BACKWARD
from echelon_lab.models.hosts import Host
from echelon_lab.models.predictions import timing
from echelon_lab.models.traffic import Traffic, traffic
from echelon_lab.models.training import Training


def warnings(training: Training) -> Iterator[str]:
    """Yield a sentence for each part of the layout with which no one would train."""
    stages = training.pipeline * training.chunks
    micro_batches = training.micro_batches
    if training.pipeline > 1 and micro_batches < stages:
        bubbles = training.pipeline - 1
        idle = bubbles / (training.chunks * micro_batches + bubbles)
        plural = ""
        if micro_batches > 1:
            plural = "es"
        yield (
            f"{stages} stages with {micro_batches} micro-batch{plural}"
            f" leave GPUs idle for {idle:.0%} of the time (give a larger --global-batch)."
        )
    state = float(training.state_bytes)
    size = training.gpu.memory_bytes
    if size is not None and state > size:
        yield (
            f"Parameters, gradients and Adam's state take {state / 1e9:.0f} GB of each GPU, which"
            f" has {size / 1e9:.0f} GB (give a higher tp, pp or --zero)."
        )
    if training.zero and training.data * training.context == 1:
        yield (
            f"--zero {training.zero} shards over replicas,"
            " of which there is one (give dp=2 or more)."
        )


def comments(
    training: Training,
    host: Host,
    hosts: int,
) -> Iterator[str]:
    """Yield what the numbers of a job file mean, and where they come from."""
    model = training.model
    gpu = training.gpu
    active = ""
    if model.active_parameters < model.parameters:
        active = f", {model.active_parameters:,} active"
    yield f"{model.name}: {model.parameters:,} parameters{active} ({model.source})."

    degrees = [f"dp={training.data}", f"tp={training.tensor}", f"pp={training.pipeline}"]
    if training.context > 1:
        degrees.append(f"cp={training.context}")
    if training.expert > 1:
        degrees.append(f"ep={training.expert}")
        degrees.append(f"etp={1 if training.folded else training.tensor}")
    if training.shard is not None:
        degrees.append(f"shard={training.shard}")
    ways = [f"recomputation: {training.recompute}"]
    if training.sequence_parallel:
        ways.append("sequence parallelism")
    if training.chunks > 1:
        ways.append(f"{training.chunks} chunks of each stage")
    if training.blocking and training.pipeline > 1:
        ways.append("stages wait for what they send")
    if training.expert > 1 and training.dispatch == "host":
        ways.append("tokens sent once to each host")
    machines = f"{training.gpus} {gpu.name} on {hosts} hosts of {host.gpus}"
    yield f"{machines}: {', '.join(degrees)}, ZeRO {training.zero}; {', '.join(ways)}."

    samples = training.data * training.micro_batches * training.micro_batch_samples
    yield (
        f"Micro-batches of an iteration: {training.micro_batches} for each replica. Samples of a"
        f" micro-batch: {training.micro_batch_samples}, each {model.sample}; of an iteration:"
        f" {samples}."
    )
    measured = "given"
    if training.efficiency == gpu.efficiency:
        measured = gpu.measured
    yield (
        f"Computing: {model.forward_flops / 1e12:.4g} TFLOP a sample forward, {BACKWARD} times that"
        f" backward, at {float(training.efficiency):.1%} ({measured}) of"
        f" {gpu.peak_flops / 1e12:g} TFLOP/s ({gpu.source}); memory at"
        f" {gpu.memory_bytes_per_s / 1e9:g} GB/s."
    )
    yield from timing(training, host)
    for warning in warnings(training):
        yield f"Warning: {warning}"
    for sent, layers in zip(traffic(training), training.stages, strict=True):
        yield f"{layers[0].name} to {layers[-1].name}: {_traffic_line(sent)}"


def _traffic_line(sent: Traffic) -> str:
    """Return the bytes of a GPU of one stage in an iteration, by operation."""
    operations = [
        (sent.tensor_all_reduce, "all-reduced in its tensor group (inside the host)"),
        (sent.context_all_gather, "of keys and values all-gathered in its context's group"),
        (sent.context_reduce_scatter, "of their gradients reduce-scattered"),
        (sent.expert_all_to_all, "of tokens in all-to-alls of its experts' group"),
        (sent.table_all_to_all, "of rows and indices in all-to-alls of all GPUs"),
        (sent.pipeline_send, "sent to other stages"),
        (sent.data_all_reduce, "all-reduced over replicas"),
        (sent.data_reduce_scatter, "reduce-scattered over replicas"),
        (sent.data_all_gather, "all-gathered over replicas"),
        (sent.shard_reduce_scatter, "reduce-scattered over its shards' group"),
        (sent.shard_all_gather, "all-gathered over its shards' group"),
    ]
    parts = [f"{size / 1e9:.4g} GB {operation}" for size, operation in operations if size]
    return f"{', '.join(parts) or 'nothing sent'}, by each GPU in an iteration."
