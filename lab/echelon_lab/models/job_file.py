"""The job file of a training, with comments."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import yaml

from echelon.model.documents import DocumentError
from echelon.model.quantities import duration_text, size_bytes, size_text
from echelon_lab.models.buckets import mesh_buckets, plain_buckets, sums
from echelon_lab.models.comments import comments
from echelon_lab.models.dispatching import copies
from echelon_lab.models.hosts import Host
from echelon_lab.models.placement import Placement, placement
from echelon_lab.models.recommending import recommending
from echelon_lab.models.sharded import layer_pass_s, sharded
from echelon_lab.models.times import pass_s
from echelon_lab.models.training import Training

_WIDTH = 110
_DIGITS = 9


def job_file(
    training: Training,
    name: str,
    host: Host,
    hosts: Sequence[str] | None = None,
) -> str:
    """Return the text of the job file, YAML with comments.

    `hosts` are h1, h2... by default. Raises `DocumentError` for groups that do not fit a `host`,
    and for a wrong number of `hosts`.

    The file describes hosts, since the network sees nothing else: the ranks of a host are one
    worker. Inside a host, groups of tensor, context and expert parallelism take the time of
    rings over NVLink, which is added to the computing; data-parallel sums are left out. Between
    hosts there are the sends of the pipeline, the exchanges of a context or experts whose groups
    are larger than a host, and the collectives of data parallelism, with the bytes that all GPUs of
    a host send together.
    """
    placed = placement(training, host.gpus)
    count = placed.hosts
    if hosts is not None:
        workers = list(hosts)
    else:
        workers = [f"h{number}" for number in range(1, count + 1)]
    if len(workers) != count:
        reason = (
            f"{len(workers)} hosts are given, but {training.gpus} GPUs at {host.gpus} a host"
            f" need {count} (give as many)"
        )
        raise DocumentError("--hosts", "", reason, code="wrong-length")
    paradigm, section = _section(training, placed)
    lines = []
    for text in comments(training, host, count):
        lines += [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
    lines.append(f"job: {name}")
    lines.append(f"parallelism: {paradigm}")
    lines.append(f"workers: [{', '.join(workers)}]")
    return "\n".join(lines) + "\n" + _text(paradigm, section)


def _section(
    training: Training,
    placed: Placement,
) -> tuple[str, dict[str, Any]]:
    """Return the paradigm of the job file, and its section."""
    gpus_per_host = placed.gpus_per_host
    if training.model.tables:
        return "graph", recommending(training, placed)
    if training.is_sharded:
        by_layer = [layer_pass_s(training, layer, placed) for layer in training.model.layers]
        return "fsdp", sharded(training, placed, _times(by_layer))

    group = placed.group
    stage_hosts = placed.hosts // training.pipeline
    summed: dict[str, list[str]] = {}
    if stage_hosts > 1:
        for key, sizes in sums(training, placed):
            summed[key] = [size_text(size) for size in sizes]
    times = _times([pass_s(training, layers, placed.host) for layers in training.stages])
    is_plain = training.pipeline == training.micro_batches == group == 1 and training.zero == 0
    if is_plain and training.overlap:
        (forward,), (backward,) = times["forward"], times["backward"]
        (gradient,) = summed["gradient"]
        buckets = plain_buckets(size_bytes(gradient))
        passes = {"forward": forward, "backward": backward}
        return "data", {**passes, "buckets": buckets, "gradient": gradient}

    # A host sends what all of its ranks send. The boundary of a single stage is not there, but has
    # a size.
    ends = training.stages[:-1] or training.stages
    sent = []
    for stage in ends:
        sent.append(size_text(gpus_per_host * training.sent_bytes(stage[-1])))
    schedule = "1f1b"
    if training.chunks > 1:
        schedule = "interleaved"
    section: dict[str, Any] = {
        "schedule": schedule,
        "micro_batches": training.micro_batches,
        **times,
        "activation": sent,
    }
    if training.pipeline == 1:
        section["activation"] = sent[0]
    if training.blocking and training.pipeline > 1:
        section["blocking"] = True
    if training.chunks > 1:
        section["chunks"] = training.chunks
    elif stage_hosts == 1 and not training.blocking:
        return "pipeline", section

    order = ["pipeline", "data"]
    if group > 1:
        order.append("tensor")
    mesh: dict[str, Any] = {
        "data": stage_hosts // group,
        "pipeline": training.pipeline,
        "order": order,
    }
    layer_count = -(-len(training.model.layers) // (training.pipeline * training.chunks))
    if group > 1:
        exchanged = _exchanged_bytes(training, layer_count, placed)
        mesh["tensor"] = group
        mesh["layers"] = layer_count
        if placed.has_context:
            mesh["exchange"] = "context"
        else:
            mesh["exchange"] = "experts"
        mesh["exchanged"] = size_text(exchanged)
    if training.overlap and summed:
        mesh["buckets"] = mesh_buckets(training, layer_count, group)
    return "mesh", {**mesh, **section, **summed}


def _times(passes_s: Sequence[tuple[Fraction, Fraction]]) -> dict[str, list[str]]:
    forward = []
    backward = []
    for forward_s, backward_s in passes_s:
        forward.append(_seconds(forward_s))
        backward.append(_seconds(backward_s))
    return {"forward": forward, "backward": backward}


def _exchanged_bytes(
    training: Training,
    layers: int,
    placed: Placement,
) -> int:
    """Return what a host exchanges with its group for each of so many layers of a stage."""
    if placed.has_context:
        total = training.tensor * sum(map(training.context_bytes, training.model.layers))
    else:
        total = 0
        for layer in training.model.layers:
            if layer.active:
                sent = copies(layer, placed.group, training.dispatch)
                routed = placed.gpus_per_host * training.routed_bytes(layer)
                total += int(routed * sent / layer.active)
    # Layers without an exchange, and stages with a layer less, count as a part of one.
    exchanged = total // (layers * training.pipeline * training.chunks)
    if training.recompute != "full":
        return exchanged
    # The backward pass repeats what the forward pass exchanges: one of three times, or of two.
    if placed.has_context:
        return exchanged * 4 // 3
    return exchanged * 3 // 2


def _seconds(value: Fraction) -> str:
    """Return a duration as text, rounded to nanoseconds."""
    rounded = round(value * 10**_DIGITS)
    return duration_text(Fraction(rounded, 10**_DIGITS))


def _text(paradigm: str, section: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {paradigm: section},
        sort_keys=False,
        default_flow_style=None,
        width=_WIDTH,
    )
