"""GPUs by name: data sheets and published measurements (`gpus.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from echelon.model.documents import DocumentError, suggestion


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, by its vendor's data sheet."""

    name: str
    peak_flops: int
    """Dense floating-point operations a second of the tensor cores, FP16 or BF16."""
    local_bytes_per_s: int
    """The bandwidth between the GPUs of a host, in each direction."""
    memory_bytes_per_s: int
    memory_bytes: int | None
    source: str
    efficiency: Fraction | None = None
    """The part of the peak that large matrix multiplications reach, alone on the GPU."""
    measured: str = "given"
    """The source of `efficiency`."""
    joined: int | None = 8
    """How many GPUs the local links join: the GPUs of a host, or of a rack.

    None: as many as one rents, such as the slices of a TPU.
    """


def _read_gpus() -> dict[str, Gpu]:
    file = Path(__file__).with_name("gpus.yaml")
    rows: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {name: _gpu(name, **row) for name, row in rows.items()}


def _gpu(
    name: str,
    *,
    data_sheet: str,
    tflops: int,
    links: int,
    memory: int,
    size: int,
    efficiency: str,
    measured: str,
    joined: int | None = 8,
) -> Gpu:
    """Return a GPU of the file."""
    return Gpu(
        name,
        peak_flops=tflops * 10**12,
        local_bytes_per_s=links * 10**9,
        memory_bytes_per_s=memory * 10**9,
        memory_bytes=size * 10**9,
        source=f"{data_sheet} data sheet",
        efficiency=Fraction(efficiency),
        measured=measured,
        joined=joined,
    )


GPUS: Mapping[str, Gpu] = _read_gpus()
"""The GPUs by name."""
_OWN_NUMBER = re.compile(r"(peak|local|memory)=([0-9]+(?:\.[0-9]+)?)")


def find_gpu(text: str) -> Gpu:
    """Return the GPU of that name, or the one that the text describes.

    ``peak=275,local=300,memory=1200`` are TFLOP/s, and GB/s of links and memory. Raises
    `DocumentError`.
    """
    if "=" in text:
        return _described_gpu(text)
    if text not in GPUS:
        reason = (
            f"unknown GPU '{text}' ({suggestion(text, GPUS)};"
            " your own is peak=TFLOP/s,local=GB/s,memory=GB/s)"
        )
        raise DocumentError("--gpu", "", reason, code="unknown-name")
    return GPUS[text]


def _described_gpu(text: str) -> Gpu:
    parts = text.split(",")
    numbers: dict[str, Fraction] = {}
    for part in parts:
        match = _OWN_NUMBER.fullmatch(part.strip())
        if match is not None:
            numbers[match[1]] = Fraction(match[2])
    if len(parts) != 3 or len(numbers) != 3 or not all(numbers.values()):
        reason = (
            f"'{text}' is not a GPU (write peak=275,local=300,memory=1200: TFLOP/s, and GB/s of"
            " links and memory)"
        )
        raise DocumentError("--gpu", "", reason)
    return Gpu(
        "GPU of your own",
        peak_flops=1000 * int(numbers["peak"] * 10**9),
        local_bytes_per_s=int(numbers["local"] * 10**9),
        memory_bytes_per_s=int(numbers["memory"] * 10**9),
        memory_bytes=None,
        source=f"given: {text}",
    )
