"""GPUs: dense tensor operations, links inside a host, and the efficiency that training reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

EFFICIENCY = Fraction(45, 100)
"""Part of the peak that training reaches: 44 % to 52 % on A100 for models of 1.7 to 1008 billion parameters (Narayanan
et al., Megatron-LM, SC '21, table 1)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, by its vendor's data sheet."""

    name: str
    peak_flops: int
    """Dense floating-point operations a second of the tensor cores, FP16 or BF16."""
    local_bytes_per_s: int
    """NVLink, in each direction."""
    source: str


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("V100", 125 * 10**12, 150 * 10**9, "NVIDIA V100 data sheet, SXM2: 125 TFLOPS, NVLink 300 GB/s"),
        Gpu("A100", 312 * 10**12, 300 * 10**9, "NVIDIA A100 data sheet, SXM: 312 TFLOPS, NVLink 600 GB/s"),
        Gpu("H100", 989 * 10**12, 450 * 10**9, "NVIDIA H100 data sheet, SXM: 989 TFLOPS dense, NVLink 900 GB/s"),
    )
}
"""The GPUs by name."""
