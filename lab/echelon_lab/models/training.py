"""A training: a model, GPUs, and how they share the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from echelon_lab.models.dispatching import Dispatch
from echelon_lab.models.gpus import Gpu
from echelon_lab.models.layers import Layer, Model

Zero = Literal[0, 1, 2, 3]
Recompute = Literal["none", "selective", "full"]
SUMMED_BYTES = 4
"""Bytes of an element of a gradient that data parallelism sums: FP32, as Megatron-LM does.

ZeRO stages 2 and 3 sum in the precision of the parameters, as DeepSpeed does, without a pipeline.
"""
STATE_BYTES = (2, 2, 12)
"""Bytes of a parameter, its gradient, and what Adam keeps of it.

S. Rajbhandari et al., arXiv:1910.02054, section 3.1.
"""


@dataclass(frozen=True, slots=True)
class Training:
    """A model, the GPUs, and how they share the work.

    The layout is Megatron-LM's (Narayanan et al., SC '21, section 2): consecutive ranks form a
    group of tensor parallelism, these are repeated for context parallelism, then for data
    parallelism, and all that for each stage of the pipeline.

    * **Tensor parallelism** cuts each layer. A layer sums its output over the group
      `Layer.tensor_reduces` times in the forward pass and as often in the backward pass (M. Shoeybi
      et al., arXiv:1909.08053, section 3). With sequence parallelism, each sum is a reduce-scatter
      and an all-gather (V. Korthikanti et al., MLSys '23, section 4.2.2).
    * **A pipeline** sends the output of a stage for each micro-batch, whole from each rank of the
      tensor group (its part with sequence parallelism), and its gradient back.
    * **Context parallelism** cuts sequences. Keys and values of a layer are all-gathered in the
      forward and in the backward pass, and their gradients reduce-scattered (A. Grattafiori et al.,
      arXiv:2407.21783, section 3.3.2). Ring attention (H. Liu et al., arXiv:2310.01889) sends as
      many bytes, in steps that overlap with computing.
    * **Expert parallelism** puts experts on different replicas. Tokens go to them and back by two
      all-to-alls forward and two backward (D. Lepikhin et al., ICLR '21, section 3.1), here in
      equal parts, with a copy for each active expert. A tensor group cuts its experts, and gathers
      and scatters their tokens; or experts are whole and `folded`: their groups are consecutive
      ranks of a stage, whatever these share besides (D. Liu et al., MoE Parallel Folding,
      arXiv:2504.14960).
    * **Data parallelism** sums gradients once in an iteration. With ZeRO stage 1 or 2 (S.
      Rajbhandari et al., arXiv:1910.02054) it is a reduce-scatter of gradients and an all-gather of
      parameters; with stage 3, each layer's parameters are gathered before the forward and before
      the backward pass, and its gradients are scattered. Stages 2 and 3 scatter the gradients of
      each micro-batch, except in a pipeline, where they add up (torchtitan). They may do so in
      groups of `shard` replicas, which then all-reduce what they have of each layer across groups
      (HSDP; Y. Zhao et al., PyTorch FSDP, VLDB '23, section 3.2.2).

    `times` and `iteration` say how long that takes. The memory traffic between matrix
    multiplications is what a layer keeps for the backward pass (Korthikanti et al., equations 1 to
    4; those of GPT for all models). FlashAttention keeps no scores, and computes only the half of
    them that is seen.
    """

    model: Model
    gpu: Gpu
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    """Micro-batches of an iteration for each data-parallel replica."""
    micro_batch_samples: int = 1
    zero: Zero = 0
    efficiency: Fraction = Fraction(1)
    """Part of the GPU's peak that matrix multiplications reach."""
    context: int = 1
    expert: int = 1
    folded: bool = False
    """Whether experts are whole, on groups of consecutive ranks of a stage."""
    dispatch: Dispatch = "each"
    """Whether a copy of a token leaves its host for each expert, or for each host with some."""
    shard: int | None = None
    """The replicas among which ZeRO stages 2 and 3 shard. None: all."""
    sequence_parallel: bool = False
    overlap: bool = True
    """Whether sums of gradients overlap with the backward pass."""
    chunks: int = 1
    """Parts of the model that each stage has, taken in turn (interleaved 1F1B)."""
    blocking: bool = False
    """Whether a stage waits for what it sends before its next pass.

    Megatron-LM without interleaving and DeepSpeed do so, PyTorch's schedules do not.
    """
    recompute: Recompute = "none"
    """The part of the forward pass that is computed again: attention's scores, or all of it."""
    flash: bool = True
    host_time: Fraction = Fraction(1)
    """What hosts need to launch kernels, as a part of what PyTorch needs without graphs.

    It is 0 for graphs that are compiled or captured whole.
    """

    @property
    def is_sharded(self) -> bool:
        """Return whether gradients are scattered as they are computed.

        ZeRO 2 and 3 do so without a pipeline.
        """
        return self.zero >= 2 and self.pipeline == 1

    @property
    def shards(self) -> int:
        """Return the number of GPUs that shard the state of a layer."""
        return self.shard or self.data * self.context

    @property
    def expert_span(self) -> int:
        """Return the number of consecutive ranks within which a group of experts lies."""
        if self.folded:
            return self.expert
        return self.tensor * self.context * self.expert

    @property
    def gpus(self) -> int:
        """Return the number of GPUs."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def stages(self) -> list[tuple[Layer, ...]]:
        """Return the layers of each stage of the pipeline."""
        return self.model.stages(self.pipeline)

    def parameters(self, layers: Sequence[Layer]) -> int:
        """Return the parameters of these layers on one GPU, rounded up."""
        return self.dense(layers) + self.routed_to(layers)

    def dense(self, layers: Sequence[Layer]) -> int:
        """Return the parameters on one GPU that are no experts, and in no tables."""
        total = 0
        for layer in layers:
            cut = layer.parameters - layer.experts - layer.tables.parameters - layer.uncut
            total += layer.uncut - (-cut // self.tensor)
        return total

    def routed_to(self, layers: Sequence[Layer]) -> int:
        """Return the parameters of experts on one GPU."""
        parts = self.expert
        if not self.folded:
            parts *= self.tensor
        return sum(-(-layer.experts // parts) for layer in layers)

    def host_parameters(self, layers: Sequence[Layer], gpus_per_host: int) -> int:
        """Return the parameters of these layers that the GPUs of a host have, counted once."""
        return self.tensor * self.dense(layers) + self.host_experts(layers, gpus_per_host)

    def host_experts(self, layers: Sequence[Layer], gpus_per_host: int) -> int:
        """Return the parameters of experts that the GPUs of a host have, counted once."""
        if self.folded:
            parts = min(self.expert, gpus_per_host)
        else:
            in_host = max(1, gpus_per_host // (self.tensor * self.context))
            parts = self.tensor * min(self.expert, in_host)
        return parts * self.routed_to(layers)

    def kept_bytes(self, layer: Layer) -> int:
        """Return the bytes that a layer keeps for the backward pass of one micro-batch.

        Only layers of transformers keep any.
        """
        if not layer.scores:
            return 0
        # Of the 34 bytes of an element, sequence parallelism cuts also those 10 that a tensor group
        # has in each rank (Korthikanti et al., equations 2 and 4).
        uncut = 10
        if self.sequence_parallel:
            uncut = 0
        element_bytes = uncut + Fraction(34 - uncut, self.tensor)
        elements = self.micro_batch_samples * layer.output
        return int(elements * element_bytes / self.context) + self.score_bytes(layer)

    def score_bytes(self, layer: Layer) -> int:
        """Return the bytes of attention's scores that a layer keeps of one micro-batch."""
        scores = layer.scores
        if self.flash:
            scores = 0
        return 5 * self.micro_batch_samples * scores // (self.tensor * self.context)

    def activation_bytes(self, layer: Layer) -> int:
        """Return the bytes of the output of a layer for one micro-batch."""
        return self.model.parameter_bytes * self.micro_batch_samples * layer.output // self.context

    def sent_bytes(self, layer: Layer) -> int:
        """Return the bytes that one GPU sends to the next stage behind a layer."""
        size = self.activation_bytes(layer)
        if self.sequence_parallel:
            return size // self.tensor
        return size

    def routed_bytes(self, layer: Layer) -> int:
        """Return the bytes of tokens that one GPU has for one all-to-all of a layer."""
        if self.expert == 1:
            return 0
        cut = self.tensor * self.context
        return self.model.parameter_bytes * self.micro_batch_samples * layer.routed // cut

    def context_bytes(self, layer: Layer) -> int:
        """Return the bytes of a layer's keys and values on one GPU, gathered from all parts."""
        if self.context == 1:
            return 0
        elements = self.micro_batch_samples * layer.key_values
        parts = self.tensor
        if layer.key_value_heads:
            parts = min(parts, layer.key_value_heads)
        return self.model.parameter_bytes * elements // parts

    def tensor_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes that these layers sum over the tensor group in one forward pass.

        That is one of a micro-batch. The backward pass sums as many.
        """
        if self.tensor == 1:
            return 0
        total = 0
        for layer in layers:
            total += layer.tensor_reduces * self.activation_bytes(layer)
            total += self.expert_tokens_bytes(layer)
        return total

    def expert_tokens_bytes(self, layer: Layer) -> int:
        """Return the bytes of tokens that a tensor group gathers before experts that it cuts.

        It scatters as many behind them (Megatron-LM, core/transformer/moe/token_dispatcher.py).
        """
        if self.folded or self.tensor == 1:
            return 0
        elements = self.micro_batch_samples * layer.routed
        return self.model.parameter_bytes * elements // self.context

    @property
    def state_bytes(self) -> Fraction:
        """Return the bytes of parameters, gradients and Adam's state on the fullest GPU."""
        copies = self.data * self.context
        if self.folded:
            copies *= self.tensor
        dense = self._parameter_state_bytes(self.shards)
        expert = self._parameter_state_bytes(copies // self.expert)
        sizes = []
        for layers in self.stages:
            size = dense * self.dense(layers) + expert * self.routed_to(layers)
            # A row of a table has one number besides, which does not count.
            tables = sum(layer.tables.parameters for layer in layers)
            sizes.append(size + Fraction(tables * self.model.parameter_bytes, self.data))
        return max(sizes)

    def _parameter_state_bytes(self, shards: int) -> Fraction:
        """Return the bytes of a parameter's state on each of so many GPUs that may shard it."""
        total = Fraction(0)
        # ZeRO cuts each part of the state from its stage on.
        for size, stage in zip(STATE_BYTES, (3, 2, 1), strict=True):
            total += Fraction(size, shards if self.zero >= stage else 1)
        return total

    def summed_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of gradients of these layers on one GPU that data parallelism sums."""
        return self.summed_element_bytes * self.parameters(layers)

    @property
    def summed_element_bytes(self) -> int:
        """Return the bytes of an element of a gradient that is summed."""
        if self.is_sharded:
            return self.model.parameter_bytes
        return SUMMED_BYTES

    def gathered_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of parameters of these layers on one GPU, as ZeRO gathers them."""
        return self.model.parameter_bytes * self.parameters(layers)
