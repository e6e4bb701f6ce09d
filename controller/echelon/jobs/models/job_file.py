"""The job file that trains a model, with comments that say where its numbers come from.

The file describes hosts, since the network sees nothing else: `GPUs per host` consecutive ranks are one worker. Inside
a host, tensor parallelism takes the time of a ring over NVLink, which is added to the computing; its data-parallel sums
are left out. Between hosts there are the sends of the pipeline and the collectives of data parallelism, with the bytes
that all GPUs of a host send together.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import yaml

from echelon.documents import DocumentError
from echelon.jobs.models.model import Layer
from echelon.jobs.models.training import BACKWARD, Training, traffic
from echelon.jobs.pipelines.one_f_one_b import schedule
from echelon.jobs.pipelines.schedule import Pass
from echelon.quantities import duration_text, size_text

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default (S. Li et al., PyTorch Distributed, VLDB '20, section
3.2.3)."""
_MOST_BUCKETS = 1000
_WIDTH = 110
_DIGITS = 9

Node = dict[str, Any]


def job_file(training: Training, name: str, gpus_per_host: int, hosts: Sequence[str] | None = None) -> str:
    """Return the text of the job file, YAML with comments. `hosts` are h1, h2... if they are not given.

    Raises `DocumentError` for groups that do not fit `gpus_per_host` or `hosts`.
    """
    count = _hosts(training, gpus_per_host)
    workers = list(hosts) if hosts is not None else [f"h{number}" for number in range(1, count + 1)]
    if len(workers) != count:
        reason = f"{len(workers)} hosts are given, but {training.gpus} GPUs at {gpus_per_host} a host need {count}"
        raise DocumentError("--hosts", "", reason, code="wrong-length")
    paradigm, section = _section(training, gpus_per_host, count)
    lines = (line for text in _comments(training, gpus_per_host, count) for line in textwrap.wrap(text, _WIDTH))
    comments = "".join(f"# {line}\n" for line in lines)
    head = f"job: {name}\nparallelism: {paradigm}\nworkers: [{', '.join(workers)}]\n"
    return comments + head + _text(paradigm, section)


def _hosts(training: Training, gpus_per_host: int) -> int:
    replicas = gpus_per_host // training.tensor
    if training.tensor > gpus_per_host or gpus_per_host % training.tensor or training.data % replicas:
        reason = (
            f"{gpus_per_host} a host do not hold whole groups of tp={training.tensor}, or do not divide "
            f"dp={training.data} (give a multiple of tp that divides tp x dp)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    hosts = training.gpus // gpus_per_host
    if hosts < 2:
        raise DocumentError("--gpus", "", f"{training.gpus} are on one host, which needs no network (give more)")
    return hosts


def _section(training: Training, gpus_per_host: int, hosts: int) -> tuple[str, dict[str, Any]]:
    replicas = gpus_per_host // training.tensor
    per_stage = hosts // training.pipeline
    if training.zero == 3:
        return "graph", {"nodes": list(_sharded(training, hosts))}
    if training.pipeline == 1 and training.zero == 0 and training.micro_batches == 1:
        layers = training.model.layers
        forward_s = training.forward_s(layers) + training.tensor_s(layers)
        # The ranks of a tensor group have one part of the gradients each, and the host sends them all.
        gradient = training.summed_bytes(layers) * training.tensor
        buckets = min(-(-gradient // BUCKET_BYTES), _MOST_BUCKETS)
        backward_s = BACKWARD * training.forward_s(layers) + training.tensor_s(layers)
        times = {"forward": _seconds(forward_s), "backward": _seconds(backward_s)}
        return "data", {**times, "buckets": buckets, "gradient": size_text(gradient)}
    if per_stage == 1:
        stages = training.stages
        sent = [replicas * training.tensor * training.activation_bytes(layers[-1]) for layers in stages[:-1]]
        return "pipeline", {
            "schedule": "1f1b",
            "micro_batches": training.micro_batches,
            "forward": [_seconds(training.forward_s(of) + training.tensor_s(of)) for of in stages],
            "backward": [_seconds(BACKWARD * training.forward_s(of) + training.tensor_s(of)) for of in stages],
            "activation": [size_text(size) for size in sent],
        }
    return "graph", {"nodes": list(_three_dimensional(training, replicas, per_stage))}


def _three_dimensional(training: Training, replicas: int, per_stage: int) -> Iterator[Node]:
    """Yield the nodes of pipelines side by side, one for each host of a stage, and of the sums of their gradients."""
    stages = training.stages
    sent = [replicas * training.tensor * training.activation_bytes(layers[-1]) for layers in stages]
    for stage, layers in enumerate(stages, start=1):
        computed_s, reduced_s = training.forward_s(layers), training.tensor_s(layers)
        lasts_s = {"forward": computed_s + reduced_s, "backward": BACKWARD * computed_s + reduced_s}
        for host in range(per_stage):
            rank = (stage - 1) * per_stage + host
            before: str | None = None
            for each in schedule(stage, len(stages), training.micro_batches):
                unit = f"{each.unit}-d{host + 1}"
                after = [before] if before else []
                if producer := _producer(each, len(stages)):
                    after.append(f"send-{producer.unit}-d{host + 1}")
                node = {"name": unit, "rank": rank, "compute": _seconds(lasts_s[each.direction])}
                yield {**node, "kind": each.direction, "micro_batch": each.micro_batch, "after": after}
                before = unit
                if 1 <= each.consumer.stage <= len(stages):
                    to = (each.consumer.stage - 1) * per_stage + host
                    size = sent[min(stage, each.consumer.stage) - 1]
                    yield {
                        "name": f"send-{unit}",
                        "send": [rank, to],
                        "bytes": size_text(size),
                        "micro_batch": each.micro_batch,
                        "after": [unit],
                    }
        group = list(range((stage - 1) * per_stage, stage * per_stage))
        last = [f"backward-s{stage}-m{training.micro_batches}-d{host + 1}" for host in range(per_stage)]
        if per_stage > 1:
            yield from _sums(training, layers, stage, group, last)


def _producer(each: Pass, stages: int) -> Pass | None:
    """Return the pass of the neighbouring stage that this one waits for."""
    stage = each.stage + (-1 if each.direction == "forward" else 1)
    return Pass(each.direction, stage, each.micro_batch) if 1 <= stage <= stages else None


def _sums(
    training: Training, layers: Sequence[Layer], stage: int, group: list[int], after: list[str]
) -> Iterator[Node]:
    summed = size_text(training.tensor * training.summed_bytes(layers))
    if training.zero == 0:
        yield {"name": f"sum-s{stage}", "collective": "all-reduce", "group": group, "bytes": summed, "after": after}
        return
    scatter, gathered = f"scatter-s{stage}", size_text(training.tensor * training.gathered_bytes(layers))
    yield {"name": scatter, "collective": "reduce-scatter", "group": group, "bytes": summed, "after": after}
    gather = {"collective": "all-gather", "group": group, "bytes": gathered, "after": [scatter]}
    yield {"name": f"gather-s{stage}", **gather}


def _sharded(training: Training, hosts: int) -> Iterator[Node]:
    """Yield the nodes of ZeRO stage 3: parameters are gathered one layer ahead, on a stream of their own."""
    layers, group = training.model.layers, list(range(hosts))
    gathered: str | None = None
    computed: dict[int, str] = {}
    scattered: str | None = None
    passes = [
        (direction, m, at)
        for m in range(1, training.micro_batches + 1)
        for direction, order in (("forward", range(len(layers))), ("backward", range(len(layers) - 1, -1, -1)))
        for at in order
    ]
    units: list[list[str]] = []
    for direction, m, at in passes:
        layer = layers[at]
        name = f"{direction}-l{at + 1}-m{m}"
        after = [gathered] if gathered else []
        if len(units) >= 2:
            after += units[-2]  # one layer ahead, no more
        gather = {"name": f"gather-{name}", "collective": "all-gather", "group": group}
        yield {**gather, "bytes": size_text(training.gathered_bytes([layer])), "after": after}
        gathered = f"gather-{name}"
        lasts_s = training.forward_s([layer]) * (BACKWARD if direction == "backward" else 1)
        unit = []
        for host in group:
            needed = [gathered] + ([computed[host]] if host in computed else [])
            computed[host] = f"{name}-d{host + 1}"
            unit.append(computed[host])
            node = {"name": computed[host], "rank": host, "compute": _seconds(lasts_s), "kind": direction}
            yield {**node, "micro_batch": m, "after": needed}
        units.append(unit)
        if direction == "backward":
            waits = [*unit, *([scattered] if scattered else [])]
            scattered = f"scatter-l{at + 1}-m{m}"
            scatter = {"name": scattered, "collective": "reduce-scatter", "group": group}
            yield {**scatter, "bytes": size_text(training.summed_bytes([layer])), "after": waits}


def _comments(training: Training, gpus_per_host: int, hosts: int) -> Iterator[str]:
    model, gpu = training.model, training.gpu
    yield f"{model.name}: {model.parameters:,} parameters ({model.source})."
    yield (
        f"{training.gpus} {gpu.name} on {hosts} hosts of {gpus_per_host}: dp={training.data}, tp={training.tensor}, "
        f"pp={training.pipeline}, ZeRO {training.zero}."
    )
    yield (
        f"Micro-batches of an iteration: {training.micro_batches} for each replica. Samples of a micro-batch: "
        f"{training.micro_batch_samples}, each {model.sample}."
    )
    yield (
        f"Computing: {model.forward_flops / 1e12:.4g} TFLOP a sample forward, {BACKWARD} times that backward, at "
        f"{float(training.efficiency):.0%} of {gpu.peak_flops / 1e12:g} TFLOP/s "
        f"({gpu.source})."
    )
    for of, layers in zip(_traffic_lines(training), training.stages, strict=True):
        yield f"{layers[0].name} to {layers[-1].name}: {of}"


def _traffic_lines(training: Training) -> list[str]:
    """Return one line for each stage: the bytes of a GPU in an iteration, by operation."""
    lines = []
    for of in traffic(training):
        parts = [
            (of.tensor_all_reduce, "all-reduced in its tensor group (inside the host)"),
            (of.pipeline_send, "sent to other stages"),
            (of.data_all_reduce, "all-reduced over replicas"),
            (of.data_reduce_scatter, "reduce-scattered over replicas"),
            (of.data_all_gather, "all-gathered over replicas"),
        ]
        said = ", ".join(f"{size / 1e9:.4g} GB {what}" for size, what in parts if size)
        lines.append(f"{said or 'nothing sent'}, by each GPU in an iteration.")
    return lines


def _seconds(value: Fraction) -> str:
    """Return a duration as text, rounded to nanoseconds."""
    return duration_text(Fraction(max(1, round(value * 10**_DIGITS)), 10**_DIGITS))


def _text(paradigm: str, section: dict[str, Any]) -> str:
    if paradigm != "graph":
        return yaml.safe_dump({paradigm: section}, sort_keys=False, default_flow_style=None, width=110)
    nodes = "".join(
        "    - " + yaml.safe_dump(node, sort_keys=False, default_flow_style=True, width=10**9)
        for node in section["nodes"]
    )
    return f"{paradigm}:\n  nodes:\n{nodes}"
