"""The execution of a training on GPUs, beyond the rates of their data sheets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from echelon_lab.models.gpus import Gpu

A100_RING_SHARE = Fraction(230, 300)
"""What rings of 8 A100 reach of their links: 230 of 300 GB/s.

NVIDIA/nccl-tests, issue 175 (232.5); VIA-Research/vTrain, trace/a100 (229).
"""
H100_RING_SHARE = Fraction(370, 450)
"""Likewise of 8 H100, without SHARP: 370 of 450 GB/s (S. Jeaugey, NVIDIA/nccl-tests, issue 212)."""
CARRIED = "carried over from A100"


@dataclass(frozen=True, slots=True)
class Execution:
    """The part of a GPU's rates that a training gets."""

    multiprocessors: int | None = None
    """The number of parts that each compute a tile, by the data sheet; None: none, or unknown."""
    ring_share: Fraction = A100_RING_SHARE
    """The part of the links inside a host that rings of collectives reach."""
    ring_source: str = CARRIED
    is_compiled: bool = False
    """Whether its programs are compiled whole, and no host launches their kernels."""

    def ring_bytes_per_s(self, gpu: Gpu) -> Fraction:
        """Return the bandwidth of rings inside a host, which NCCL calls that of the bus."""
        return gpu.local_bytes_per_s * self.ring_share


_H100 = Execution(132, H100_RING_SHARE, "NVIDIA/nccl-tests, issue 212")
_TPU = Execution(is_compiled=True)
_BY_NAME: Mapping[str, Execution] = {
    "V100": Execution(80),
    "A100": Execution(108, ring_source="NVIDIA/nccl-tests, issue 175"),
    "H100": _H100,
    "H200": Execution(132, H100_RING_SHARE, "carried over from H100, whose links it has"),
    "B200": Execution(148),
    "GB200": Execution(152),
    "MI300X": Execution(304),
    # XLA compiles whole programs, and a TPU's few matrix units have no waves of tiles.
    "TPU-v5p": _TPU,
    "TPU-v6e": _TPU,
}


def execution(gpu: Gpu) -> Execution:
    """Return the execution on that GPU, with A100's where nothing is published of it."""
    return _BY_NAME.get(gpu.name, Execution())
