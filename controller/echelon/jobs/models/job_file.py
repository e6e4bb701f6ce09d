"""The job file that trains a model, with comments that say where its numbers come from.

The file describes hosts, since the network sees nothing else: `GPUs per host` consecutive ranks are one worker. Inside
a host, tensor parallelism takes the time of a ring over NVLink, which is added to the computing; its data-parallel sums
are left out. Between hosts there are the sends of the pipeline and the collectives of data parallelism, with the bytes
that all GPUs of a host send together. With ZeRO stage 1, gradients are summed by an all-reduce of as many bytes as the
reduce-scatter and the all-gather send.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, cast

import yaml

from echelon.documents import DocumentError, suggestion
from echelon.jobs.models.models import Layer, find_model
from echelon.jobs.models.training import BACKWARD, EFFICIENCY, GPUS, Training, Zero, traffic
from echelon.quantities import duration_text, size_text

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default (S. Li et al., PyTorch Distributed, VLDB '20, section
3.2.3)."""
_MOST_BUCKETS = 1000
_WIDTH = 110
_DIGITS = 9
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_DEGREE = re.compile(r"(dp|tp|pp)=([1-9][0-9]{0,5})")


def new_job_file(
    model: str,
    *,
    gpus: int,
    parallel: str = "",
    gpu: str = "A100",
    micro_batches: int = 1,
    micro_batch_samples: int = 1,
    zero: int = 0,
    gpus_per_host: int = 8,
    hosts: Sequence[str] | None = None,
    efficiency: Fraction = EFFICIENCY,
    name: str | None = None,
) -> str:
    """Return the text of the job file that trains `model` on `gpus` GPUs.

    `parallel` is as in ``dp=8,tp=4,pp=2``; a missing dp is what remains. Raises `DocumentError`, which names the option
    at fault.
    """
    of = find_model(model)
    if gpu not in GPUS:
        raise DocumentError("--gpu", "", f"unknown GPU '{gpu}' ({suggestion(gpu, GPUS)})", code="unknown-name")
    if zero not in (0, 1, 3):
        raise DocumentError("--zero", "", f"{zero} is not a stage of ZeRO (give 0, 1 or 3)", code="not-allowed")
    if not 0 < efficiency <= 1:
        raise DocumentError("--efficiency", "", f"{efficiency} is not above 0 and at most 1 (give a part of the peak)")
    title = re.sub(r"[^A-Za-z0-9_-]", "_", model) if name is None else name
    if not _NAME.fullmatch(title):
        reason = f"'{title}' is not a name (up to 32 letters, digits, '-', '_'; a letter first)"
        raise DocumentError("--name", "", reason, code="not-a-name")
    degrees = _degrees(parallel, gpus)
    training = Training(
        of,
        GPUS[gpu],
        degrees["dp"],
        degrees["tp"],
        degrees["pp"],
        micro_batches,
        micro_batch_samples,
        cast("Zero", zero),
        efficiency,
    )
    return job_file(training, title, min(gpus_per_host, gpus), hosts)


def _degrees(parallel: str, gpus: int) -> dict[str, int]:
    degrees: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in parallel.split(","))):
        match = _DEGREE.fullmatch(part)
        if match is None or match[1] in degrees:
            reason = f"'{part}' is not a degree of parallelism, or is given twice (write dp=8,tp=4,pp=2)"
            raise DocumentError("--parallel", "", reason)
        degrees[match[1]] = int(match[2])
    tensor, pipeline = degrees.get("tp", 1), degrees.get("pp", 1)
    data = degrees.get("dp", max(1, gpus // (tensor * pipeline)))
    if data * tensor * pipeline != gpus:
        reason = f"dp={data}, tp={tensor} and pp={pipeline} are {data * tensor * pipeline} GPUs, not {gpus}"
        raise DocumentError("--parallel", "", f"{reason} (correct one of them)")
    return {"dp": data, "tp": tensor, "pp": pipeline}


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
    per_stage = hosts // training.pipeline
    if training.zero == 3:
        return "fsdp", _sharded(training)
    if training.pipeline == 1 and training.zero == 0 and training.micro_batches == 1:
        layers = training.model.layers
        forward_s = training.forward_s(layers) + training.tensor_s(layers)
        # The ranks of a tensor group have one part of the gradients each, and the host sends them all.
        gradient = training.summed_bytes(layers) * training.tensor
        buckets = min(-(-gradient // BUCKET_BYTES), _MOST_BUCKETS)
        backward_s = BACKWARD * training.forward_s(layers) + training.tensor_s(layers)
        times = {"forward": _seconds(forward_s), "backward": _seconds(backward_s)}
        return "data", {**times, "buckets": buckets, "gradient": size_text(gradient)}
    stages = training.stages
    # A host sends what all of its ranks send. The boundary of a single stage is not there, but has a size.
    ends = stages[:-1] or stages
    sent = [gpus_per_host * training.activation_bytes(layers[-1]) for layers in ends]
    section: dict[str, Any] = {
        "schedule": "1f1b",
        "micro_batches": training.micro_batches,
        "forward": [_seconds(training.forward_s(of) + training.tensor_s(of)) for of in stages],
        "backward": [_seconds(BACKWARD * training.forward_s(of) + training.tensor_s(of)) for of in stages],
        "activation": [size_text(size) for size in sent] if training.pipeline > 1 else size_text(sent[0]),
    }
    if per_stage == 1:
        return "pipeline", section
    gradients = [training.tensor * _as_all_reduce(training, layers) for layers in stages]
    mesh = {"data": per_stage, "pipeline": training.pipeline, "order": ["pipeline", "data"]}
    return "mesh", {**mesh, **section, "gradient": [size_text(size) for size in gradients]}


def _as_all_reduce(training: Training, layers: Sequence[Layer]) -> int:
    """Return the bytes of an all-reduce that sends as much as the sums of gradients do.

    A reduce-scatter and an all-gather send half as much as an all-reduce each.
    """
    summed = training.summed_bytes(layers)
    return summed if training.zero == 0 else (summed + training.gathered_bytes(layers)) // 2


def _sharded(training: Training) -> dict[str, Any]:
    layers = training.model.layers
    return {
        "layers": len(layers),
        "forward": [_seconds(training.forward_s([layer])) for layer in layers],
        "backward": [_seconds(BACKWARD * training.forward_s([layer])) for layer in layers],
        "parameters": [size_text(training.gathered_bytes([layer])) for layer in layers],
        "gradients": [size_text(training.summed_bytes([layer])) for layer in layers],
    }


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
    return duration_text(Fraction(round(value * 10**_DIGITS), 10**_DIGITS))


def _text(paradigm: str, section: dict[str, Any]) -> str:
    return yaml.safe_dump({paradigm: section}, sort_keys=False, default_flow_style=None, width=_WIDTH)
