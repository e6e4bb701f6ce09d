"""A job file from the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

from echelon.documents import DocumentError, suggestion
from echelon.jobs.models import find_model
from echelon.jobs.models.gpus import EFFICIENCY, GPUS
from echelon.jobs.models.job_file import job_file
from echelon.jobs.models.training import Training, Zero

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
