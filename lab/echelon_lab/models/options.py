"""The options of `echelon job new`, and the job file that follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, cast, get_args

import yaml

from echelon.model.documents import NAME, DocumentError, parse_document, suggestion
from echelon.model.jobs.spec import JobSpec
from echelon_lab.models.catalogue import find_model
from echelon_lab.models.checks import check, check_heads
from echelon_lab.models.comments import warnings
from echelon_lab.models.degrees import degrees
from echelon_lab.models.dispatching import Dispatch
from echelon_lab.models.gpus import Gpu, find_gpu
from echelon_lab.models.hosts import Host
from echelon_lab.models.job_file import job_file
from echelon_lab.models.training import Recompute, Training, Zero

MICRO_BATCHES = 8
"""Micro-batches of a pipeline.

They are `local_batch_size` 8 by `pipeline_parallel_microbatch_size` 1, torchtitan's defaults
(torchtitan/config/job_config.py).
"""


def new_job_file(
    model: str,
    *,
    gpus: int,
    parallel: str = "",
    gpu: str = "A100",
    micro_batches: int | None = None,
    micro_batch_samples: int = 1,
    global_batch: int | None = None,
    zero: int = 0,
    gpus_per_host: int | None = None,
    nic_bps: int | None = None,
    hosts: Sequence[str] | None = None,
    efficiency: Fraction | None = None,
    name: str | None = None,
    sequence: int | None = None,
    recompute: str = "none",
    dispatch: str = "each",
    warn: Callable[[str], object] = lambda _: None,
    **choices: Any,
) -> str:
    """Return the text of the job file that trains `model` on `gpus` GPUs.

    `parallel` is as in ``dp=8,tp=4,pp=2``; a missing dp is what remains. By default, a host has as
    many GPUs as their links join, and samples are as long as in the model's pre-training. With
    `nic_bps`, the rate of each GPU's NIC, an iteration is predicted. `choices` are other keys of
    `Training`. Calls `warn` with each of `warnings`. Raises `DocumentError`, which names the option
    at fault.
    """
    described_model = find_model(model, sequence)
    described_gpu = find_gpu(gpu)
    if zero not in get_args(Zero):
        reason = f"{zero} is not a stage of ZeRO (give 0, 1, 2 or 3)"
        raise DocumentError("--zero", "", reason, code="not-allowed")
    if recompute not in get_args(Recompute):
        reason = f"unknown way '{recompute}' ({suggestion(recompute, get_args(Recompute))})"
        raise DocumentError("--recompute", "", reason, code="unknown-name")
    if dispatch not in get_args(Dispatch):
        reason = f"unknown way '{dispatch}' ({suggestion(dispatch, get_args(Dispatch))})"
        raise DocumentError("--dispatch", "", reason, code="unknown-name")
    efficiency = _efficiency(described_gpu, efficiency)
    if choices.get("host_time", 1) < 0:
        reason = f"{choices['host_time']} is below 0 (give 0 for captured graphs, or e.g. 50%)"
        raise DocumentError("--host-time", "", reason)
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", described_model.name)
    _check_name("--name", name)
    for host in hosts or ():
        _check_name("--hosts", host)

    layout = degrees(parallel, gpus)
    if choices.get("blocking") and layout.pipeline == 1:
        raise DocumentError("--blocking", "", "needs a pipeline (give pp=2 or more)")
    if global_batch is not None:
        if micro_batches is not None:
            reason = "follow from --global-batch (give one of them)"
            raise DocumentError("--micro-batches", "", reason)
        micro_batches = _micro_batches(global_batch, layout.data, micro_batch_samples)
    elif micro_batches is None:
        micro_batches = _default_micro_batches(layout.pipeline, choices.get("chunks", 1))
    training = Training(
        described_model,
        described_gpu,
        **asdict(layout),
        micro_batches=micro_batches,
        micro_batch_samples=micro_batch_samples,
        zero=cast("Zero", zero),
        efficiency=efficiency,
        recompute=cast("Recompute", recompute),
        dispatch=cast("Dispatch", dispatch),
        **choices,
    )
    check(training)
    check_heads(training)
    if gpus_per_host is None:
        gpus_per_host = _joined_gpus(described_gpu)
    host_gpus = min(gpus_per_host, gpus)
    line_bps = None
    if nic_bps is not None:
        line_bps = nic_bps * host_gpus
    text = job_file(training, name, Host(host_gpus, line_bps), hosts)
    _check_text(text, training)
    for warning in warnings(training):
        warn(warning)
    return text


def _check_name(option: str, name: str) -> None:
    if not NAME.fullmatch(name):
        reason = f"'{name}' is not a name (up to 32 letters, digits, '-', '_'; a letter first)"
        raise DocumentError(option, "", reason, code="not-a-name")


def _check_text(text: str, training: Training) -> None:
    """Raise `DocumentError` for a job that is refused, such as one that is too large."""
    try:
        parse_document(JobSpec, yaml.load(text, yaml.CSafeLoader), "the job")
    except DocumentError as error:
        if error.code != "too-large":
            raise
        fault, _, _ = error.reason.partition(" (")
        reason = (
            f"{training.micro_batches} are too many here: the job {fault} (give fewer, or a smaller"
            " --global-batch)"
        )
        raise DocumentError("--micro-batches", "", reason, code="too-large") from error


def _joined_gpus(gpu: Gpu) -> int:
    if gpu.joined is None:
        reason = (
            f"is missing: a slice of {gpu.name} has links of its own, and only slices meet in the"
            " network (give the chips of a slice, e.g. 64)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    return gpu.joined


def _efficiency(gpu: Gpu, part: Fraction | None) -> Fraction:
    if part is None:
        part = gpu.efficiency
    if part is None:
        reason = (
            f"is missing: no measurement of the {gpu.name} is known here (give the part of its"
            " peak, e.g. 70%)"
        )
        raise DocumentError("--efficiency", "", reason)
    if not 0 < part <= 1:
        reason = f"{part} is not above 0 and at most 1 (give a part of the peak)"
        raise DocumentError("--efficiency", "", reason)
    return part


def _micro_batches(
    global_batch: int,
    data: int,
    micro_batch_samples: int,
) -> int:
    micro_batches, left_over = divmod(global_batch, data * micro_batch_samples)
    if left_over or not micro_batches:
        reason = f"{global_batch} is no multiple of dp={data} times --micro-batch-size (change one)"
        raise DocumentError("--global-batch", "", reason)
    return micro_batches


def _default_micro_batches(stages: int, chunks: int) -> int:
    if stages == 1:
        return 1
    if chunks == 1:
        return MICRO_BATCHES
    # Interleaved stages take them in multiples of the stages.
    return -(-MICRO_BATCHES // stages) * stages
