"""The training of a model on many GPUs: what each GPU computes and sends in an iteration.

The layout is Megatron-LM's (Narayanan et al., SC '21, section 2): consecutive ranks form a group of tensor parallelism,
these are repeated for data parallelism, and all that for each stage of the pipeline.

* **Tensor parallelism** cuts each layer. A layer sums its output over the group `Layer.tensor_reduces` times in the
  forward pass and as often in the backward pass (M. Shoeybi et al., arXiv:1909.08053, section 3).
* **A pipeline** sends the output of a stage for each micro-batch, whole from each rank of the tensor group, and its
  gradient back.
* **Data parallelism** sums gradients once in an iteration. With ZeRO stage 1 (S. Rajbhandari et al., arXiv:1910.02054)
  it is a reduce-scatter of gradients and an all-gather of parameters; with stage 3, each layer's parameters are
  gathered before the forward and before the backward pass, and its gradients are scattered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from echelon.documents import DocumentError
from echelon.jobs.models.models import Layer, Model

Zero = Literal[0, 1, 3]
SUMMED_BYTES = 4
"""Bytes of an element of a gradient that data parallelism sums: FP32, as Megatron-LM does. ZeRO stage 3 sums in the
precision of the parameters, as DeepSpeed does."""
BACKWARD = 2
"""Operations of the backward pass for each of the forward pass (J. Kaplan et al., arXiv:2001.08361, section 2.1)."""


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


@dataclass(frozen=True, slots=True)
class Training:
    """A model, the GPUs, and how they share the work."""

    model: Model
    gpu: Gpu
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    """Micro-batches of an iteration for each data-parallel replica."""
    micro_batch_samples: int = 1
    zero: Zero = 0
    efficiency: Fraction = EFFICIENCY
    """Part of the GPU's peak that computing reaches."""

    def __post_init__(self) -> None:
        if self.tensor > 1 and not any(layer.tensor_reduces for layer in self.model.layers):
            raise DocumentError("--parallel", "tp", f"{self.model.name} has no layers that are cut (give tp=1)")
        if self.pipeline > len(self.model.layers):
            reason = f"{self.model.name} has {len(self.model.layers)} layers (give at most as many stages)"
            raise DocumentError("--parallel", "pp", reason, code="too-large")
        if self.zero == 3 and (self.tensor, self.pipeline) != (1, 1):
            raise DocumentError("--zero", "", "3 goes with data parallelism alone (give tp=1 and pp=1)")
        if self.zero == 3 and self.micro_batches > 1:
            reason = "is 1 with --zero 3 (give a larger --micro-batch-size instead)"
            raise DocumentError("--micro-batches", "", reason)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs."""
        return self.data * self.tensor * self.pipeline

    @property
    def stages(self) -> list[tuple[Layer, ...]]:
        """Return the layers of each stage of the pipeline."""
        return self.model.stages(self.pipeline)

    def parameters(self, layers: Sequence[Layer]) -> int:
        """Return the parameters of these layers on one GPU, rounded up."""
        cut = max(1, self.tensor)
        return sum(-(-layer.parameters // cut) for layer in layers)

    def forward_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds of the forward pass of one micro-batch through these layers, without communication."""
        flops = self.micro_batch_samples * sum(layer.forward_flops for layer in layers)
        return Fraction(flops) / (self.tensor * self.gpu.peak_flops * self.efficiency)

    def activation_bytes(self, layer: Layer) -> int:
        """Return the bytes of the output of a layer for one micro-batch."""
        return self.model.parameter_bytes * self.micro_batch_samples * layer.output

    def tensor_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes that these layers sum over the tensor group in the forward pass of one micro-batch; the
        backward pass sums as many."""
        if self.tensor == 1:
            return 0
        return sum(layer.tensor_reduces * self.activation_bytes(layer) for layer in layers)

    def tensor_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds that a ring takes for `tensor_bytes` inside a host."""
        part = Fraction(2 * (self.tensor - 1), self.tensor)
        return part * self.tensor_bytes(layers) / self.gpu.local_bytes_per_s

    def summed_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of gradients of these layers on one GPU that data parallelism sums."""
        each = self.model.parameter_bytes if self.zero == 3 else SUMMED_BYTES
        return each * self.parameters(layers)

    def gathered_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of parameters of these layers on one GPU, as ZeRO gathers them."""
        return self.model.parameter_bytes * self.parameters(layers)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one GPU's collectives and sends in an iteration, by operation and group: sizes of tensors, as they
    are handed to the library."""

    stage: int
    tensor_all_reduce: int
    pipeline_send: int
    data_all_reduce: int
    data_reduce_scatter: int
    data_all_gather: int


def traffic(training: Training) -> list[Traffic]:
    """Return what a GPU of each stage hands to its collectives in an iteration."""
    stages = training.stages
    out = []
    for number, layers in enumerate(stages):
        summed, gathered = training.summed_bytes(layers), training.gathered_bytes(layers)
        shares = training.data > 1
        zero = training.zero
        sends = []
        if number < len(stages) - 1:
            sends.append(training.activation_bytes(layers[-1]))
        if number > 0:
            sends.append(training.activation_bytes(stages[number - 1][-1]))
        out.append(
            Traffic(
                number,
                2 * training.micro_batches * training.tensor_bytes(layers),
                training.micro_batches * sum(sends),
                summed if shares and zero == 0 else 0,
                summed if shares and zero else 0,
                gathered * (2 if zero == 3 else 1) if shares and zero else 0,
            )
        )
    return out
