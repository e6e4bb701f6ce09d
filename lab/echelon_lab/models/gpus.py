"""GPUs by name, by data sheets and published measurements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

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
    """The part of the peak that large matrix multiplications were measured to reach.

    They were alone on the GPU.
    """
    measured: str = "given"
    """The source of that."""
    joined: int | None = 8
    """How many GPUs the local links join: the GPUs of a host, or of a rack.

    None: as many as one rents, such as the slices of a TPU.
    """


_MAMF = "S. Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS, BF16"
# No one has published how fast a TPU multiplies matrices alone. The best of these trainings reaches
# 328 of 459 TFLOP/s with all that it does besides, so that is a lower bound.
_MAXTEXT = "MaxText, configs/v5p, a whole training of 32B: a lower bound"


def _gpu(
    name: str,
    source: str,
    *,
    tflops: int,
    local: int,
    memory: int,
    size: int,
    efficiency: str | None = None,
    measured: str = _MAMF,
    joined: int | None = 8,
) -> Gpu:
    """Return a GPU. `local` and `memory` are GB/s, `size` is GB."""
    gpu = Gpu(
        name,
        peak_flops=tflops * 10**12,
        local_bytes_per_s=local * 10**9,
        memory_bytes_per_s=memory * 10**9,
        memory_bytes=size * 10**9,
        source=f"{source} data sheet",
        joined=joined,
    )
    if efficiency is None:
        return gpu
    return replace(
        gpu,
        efficiency=Fraction(efficiency),
        measured=measured,
    )


_V100 = _gpu(
    "V100",
    "NVIDIA V100 SXM2",
    tflops=125,
    local=150,
    memory=900,
    size=32,
    efficiency="0.74",
    measured="S. Markidis et al., arXiv:1803.04014",
)
_A100 = _gpu(
    "A100",
    "NVIDIA A100 SXM",
    tflops=312,
    local=300,
    memory=2039,
    size=80,
    efficiency="0.869",
)
_H100 = _gpu(
    "H100",
    "NVIDIA H100 SXM",
    tflops=989,
    local=450,
    memory=3350,
    size=80,
    efficiency="0.803",
)
_H200 = _gpu(
    "H200",
    "NVIDIA H200 SXM",
    tflops=989,
    local=450,
    memory=4800,
    size=141,
    efficiency="0.803",
    measured=f"{_MAMF}, of the H100, whose cores it has",
)
_B200 = _gpu(
    "B200",
    "NVIDIA HGX B200",
    tflops=2250,
    local=900,
    memory=8000,
    size=180,
    efficiency="0.776",
)
# A rack of 72: 180 PFLOP/s dense, 13.4 TB of memory and 130 TB/s of NVLink in both directions.
_GB200 = _gpu(
    "GB200",
    "NVIDIA GB200 NVL72",
    tflops=2500,
    local=900,
    memory=8000,
    size=186,
    efficiency="0.729",
    joined=72,
)
_MI300X = _gpu(
    "MI300X",
    "AMD MI300X",
    tflops=1307,
    local=448,
    memory=5300,
    size=192,
    # 668.4 TFLOP/s; the table has the part of 1300.
    efficiency="0.511",
)
_TPU_V5P = _gpu(
    "TPU-v5p",
    "Google Cloud TPU v5p",
    tflops=459,
    local=600,
    memory=2765,
    size=95,
    efficiency="0.715",
    measured=_MAXTEXT,
    joined=None,
)
_TPU_V6E = _gpu(
    "TPU-v6e",
    "Google Cloud TPU v6e",
    tflops=918,
    local=400,
    memory=1638,
    size=32,
    efficiency="0.715",
    measured=f"carried over from the v5p: {_MAXTEXT}",
    joined=None,
)
GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (_V100, _A100, _H100, _H200, _B200, _GB200, _MI300X, _TPU_V5P, _TPU_V6E)
}
"""The GPUs by name."""
_OWN_NUMBER = re.compile(r"(peak|local|memory)=([0-9]+(?:\.[0-9]+)?)")


def find_gpu(text: str) -> Gpu:
    """Return the GPU of that name, or one's own, as in ``peak=275,local=300,memory=1200``.

    These are TFLOP/s, and GB/s of links and memory. Raises `DocumentError`.
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
