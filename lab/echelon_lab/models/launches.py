"""The host's time to launch the kernels of a layer, and what each kernel adds on the GPU.

A GPU that is faster than its host waits for it, so the host's time is a floor under that of the
GPU: their maximum counts, not their sum.

**Operators** of a layer of GPT in Megatron-DeepSpeed, without FlashAttention, were counted with
PyTorch's profiler (VIA-Research/vTrain, src/model). **Times** are means that Z. Lin et al.,
arXiv:2201.07821, measured of PyTorch (owensgroup/ml_perf_model at 5b2522a0,
analysis/notebooks/overheads_study.ipynb, read off figures, +-1 to 2 us): T1 between operators, T2
before the first launch of an operator, T3 behind the last, T5 between two, and of operators that
launch nothing. A launch, T4, takes 10 us less 2 and 4 of the profiler (analysis/utils.py,
trace_utils.py).

These are of other hosts and GPUs than those that jobs have: host times do not depend on the GPU,
and are carried over to all, and from GPT to all transformers, with FlashAttention and experts too.
Graphs that are compiled or captured launch no operators: then the host needs nothing. Convolutional
networks were not counted, and have no floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

US = Fraction(1, 10**6)
BETWEEN_US = Fraction("7.6")
LAUNCH_US = 4
KERNEL_S = 5 * US
"""What a kernel adds on the GPU: `GPU_KERNEL_OVERHEAD` of ml_perf_model, analysis/utils.py.

It was measured on V100, and is carried over to all GPUs.
"""
FORWARD_KERNELS = 15
"""Kernels of a layer forward, and `BACKWARD_KERNELS` backward: own counts, of vTrain's model."""
BACKWARD_KERNELS = 34


@dataclass(frozen=True, slots=True)
class Operators:
    """Operators of a kind in a pass of a layer, and the host's microseconds for each."""

    count: int
    launches: int
    before_us: int = 0
    """Before the first launch, T2."""
    behind_us: int = 0
    """Behind the last launch, T3."""
    between_us: Fraction = Fraction(0)
    """Between two launches, or for an operator without any, T5."""

    @property
    def host_s(self) -> Fraction:
        """Return the host's seconds for all of them."""
        total_us = BETWEEN_US + self.before_us + self.behind_us
        total_us += self.launches * LAUNCH_US
        # A single launch has no other to wait for.
        if self.launches != 1:
            total_us += self.between_us
        return self.count * total_us * US


FORWARD = (
    Operators(4, 1, 33, 11),  # linear
    Operators(2, 1, 33, 11),  # products of batches, as linear ones
    Operators(8, 1, 21, 9),  # other kernels, as relu
    Operators(30, 0, between_us=Fraction("4.5")),  # views
)
BACKWARD = (
    Operators(4, 2, 34, 29, Fraction(30)),  # linear: addmm
    Operators(2, 2, 34, 33, Fraction(19)),  # products of batches
    Operators(11, 1, 16, 9),  # other kernels, as relu
    Operators(29, 0, between_us=Fraction(3)),  # views
    Operators(12, 1, 9, 6),  # gradients that are added up
)
FORWARD_HOST_S = sum((operators.host_s for operators in FORWARD), Fraction(0))
"""The host's seconds for the forward pass of a layer, 1.03 ms."""
BACKWARD_HOST_S = sum((operators.host_s for operators in BACKWARD), Fraction(0))
"""The host's seconds for the backward pass of a layer, 1.67 ms."""
