"""Models by name, and the jobs that train them.

`models.yaml` has their sizes, as published. `Model` makes layers of them, `traffic` says what GPUs
compute and send to train one, and `new_job_file` writes that as a job file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast, get_args

import yaml

from echelon.model.documents import DocumentError, suggestion
from echelon.model.quantities import duration_text, size_bytes, size_text


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a model that is not cut by a pipeline.

    Operations and outputs are those of one sample.
    """

    name: str
    parameters: int
    forward_flops: int
    """Floating-point operations of the forward pass; a multiplication with an addition is two.

    The backward pass has twice as many (J. Kaplan et al., arXiv:2001.08361, section 2.1).
    """
    output: int
    """Elements that the next layer needs."""
    tensor_reduces: int = 0
    """All-reduces of the layer's output in each pass, if tensor parallelism cuts the layer.

    Megatron-LM, M. Shoeybi et al., arXiv:1909.08053, section 3.
    """
    attention_flops: int = 0
    """The part of `forward_flops` that is for scores and values of attention."""
    causal: bool = False
    """Whether a token sees only those before it.

    FlashAttention then leaves out half of `attention_flops`.
    """
    scores: int = 0
    """Elements of the scores of all heads."""
    key_values: int = 0
    """Elements of keys and values."""
    experts: int = 0
    """The part of `parameters` that are experts."""
    routed: int = 0
    """Elements that go to experts: the tokens, once for each active expert."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model to train."""

    name: str
    source: str
    """The publication that the numbers come from."""
    layers: tuple[Layer, ...]
    sample: str
    """The name of a sample, such as "a sequence of 2048 tokens"."""
    parameter_bytes: int = 2
    """Bytes of a parameter and of an element of an activation in training."""

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def forward_flops(self) -> int:
        """Return the floating-point operations of the forward pass of one sample."""
        return sum(layer.forward_flops for layer in self.layers)

    def stages(self, count: int) -> list[tuple[Layer, ...]]:
        """Return the layers in `count` consecutive stages of about equal operations.

        Raises `ValueError` for more stages than layers.
        """
        if count > len(self.layers):
            raise ValueError(
                f"{self.name} has {len(self.layers)} layers, which do not make {count} stages"
            )
        total = self.forward_flops
        done = 0
        stages: list[tuple[Layer, ...]] = []
        stage: list[Layer] = []
        for index, layer in enumerate(self.layers):
            stage.append(layer)
            done += layer.forward_flops
            layers_left = len(self.layers) - index - 1
            stages_left = count - len(stages) - 1
            if not stages_left:
                continue
            # A stage ends where the next layer would bring it further
            # from its part of the operations.
            following = 0
            if layers_left:
                following = self.layers[index + 1].forward_flops
            is_enough = done + following / 2 > total * (len(stages) + 1) / count
            if is_enough or layers_left == stages_left:
                stages.append(tuple(stage))
                stage = []
        return [*stages, tuple(stage)]


def transformer(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    sequence: int,
    *,
    feed_forward: int | None = None,
    key_value_heads: int | None = None,
    gated: bool = False,
    biases: bool = True,
    positions: int = 0,
    segments: int = 0,
    tied: bool = True,
    final_norm: bool = True,
    pooler: bool = False,
    experts: int = 1,
    active_experts: int = 1,
    causal: bool = True,
) -> Iterator[Layer]:
    """Yield embedding, layers and output of a transformer, for samples of `sequence` tokens.

    Per layer and sequence of s tokens, with hidden size h, k of it for keys and values (fewer heads
    of them: grouped queries), f in each of `matrices` - 1 projections up and one down (4 h unless
    given; two up if `gated`, SwiGLU), the operations are 2 s (2 h^2 + 2 h k + matrices h f) for the
    weights and 4 s^2 h for attention scores and values; the output layer needs 2 s h V (Narayanan
    et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC '21,
    appendix; theirs are 4 times as many, with the backward pass and recomputation). Embedding, of
    tokens, learned `positions` and `segments` with a norm, is a look-up. `biases` are those of
    projections and norms. A `tied` output layer shares the weights of the embedding. Each token
    passes `active_experts` of `experts` feed-forward layers, which have a router if they are
    several.
    """
    h = hidden
    s = sequence
    v = vocabulary
    f = feed_forward or 4 * hidden
    norm = h
    if biases:
        norm = 2 * h

    embedding = (v + positions) * h
    if segments:
        embedding += segments * h + 2 * h
    yield Layer(
        "embedding",
        embedding,
        forward_flops=0,
        output=s * h,
        tensor_reduces=1,
    )

    kv = h // heads * (key_value_heads or heads)
    attention = 2 * h * h + 2 * h * kv
    expert = (3 if gated else 2) * h * f
    router = 0
    if experts > 1:
        router = h * experts
    attention_bias = 0
    expert_bias = 0
    if biases:
        attention_bias = 2 * h + 2 * kv
        expert_bias = f + h
    all_experts = experts * (expert + expert_bias)
    scores_flops = 4 * s * s * h
    weights_flops = 2 * s * (attention + active_experts * expert + router)
    for number in range(1, layers + 1):
        yield Layer(
            f"layer{number}",
            parameters=attention + attention_bias + all_experts + router + 2 * norm,
            forward_flops=weights_flops + scores_flops,
            output=s * h,
            tensor_reduces=2,
            attention_flops=scores_flops,
            causal=causal,
            scores=heads * s * s,
            key_values=2 * s * kv,
            experts=all_experts if experts > 1 else 0,
            routed=active_experts * s * h if experts > 1 else 0,
        )

    head = 0
    if not tied:
        head += v * h
    if final_norm:
        head += norm
    if pooler:
        head += h * h + h
    yield Layer(
        "output",
        head,
        forward_flops=2 * s * h * v,
        output=s,
    )


# Convolutional networks on images of 224 x 224: layers one after another.


def _convolution(
    name: str,
    inputs: int,
    outputs: int,
    kernel: int,
    side: int,
    *,
    bias: bool = False,
    norm: int = 0,
) -> Layer:
    """Return a convolution with `outputs` maps of `side` x `side`.

    `norm` maps are normalised with two weights each.
    """
    weights = inputs * outputs * kernel * kernel
    parameters = weights + 2 * norm
    if bias:
        parameters += outputs
    return Layer(name, parameters, 2 * weights * side * side, outputs * side * side)


def _linear(
    name: str,
    inputs: int,
    outputs: int,
) -> Layer:
    """Return a fully connected layer with biases."""
    return Layer(name, inputs * outputs + outputs, 2 * inputs * outputs, outputs)


def _joined(
    name: str,
    *layers: Layer,
    output: int | None = None,
) -> Layer:
    """Return several layers as one that a pipeline does not cut."""
    if output is None:
        output = layers[-1].output
    parameters = sum(layer.parameters for layer in layers)
    forward_flops = sum(layer.forward_flops for layer in layers)
    return Layer(name, parameters, forward_flops, output)


def resnet(blocks: Sequence[int]) -> Iterator[Layer]:
    """Yield bottlenecks of 1x1, 3x3 and 1x1."""
    stem = _convolution("conv1", 3, 64, 7, 112, norm=64)
    yield _joined("conv1", stem, output=64 * 56 * 56)  # pooled
    inputs = 64
    expansion = 4
    for group, count in enumerate(blocks):
        width = 64 << group
        wide = width * expansion
        side = 56 >> group
        for number in range(count):
            # The first block of a group halves the side in its 3x3 convolution.
            if number == 0 and group:
                before = side << 1
            else:
                before = side
            parts = [
                _convolution("", inputs, width, 1, before, norm=width),
                _convolution("", width, width, 3, side, norm=width),
                _convolution("", width, wide, 1, side, norm=wide),
            ]
            if number == 0:
                shortcut = _convolution("", inputs, wide, 1, side, norm=wide)
                parts.insert(0, shortcut)
            inputs = wide
            yield _joined(f"conv{group + 2}-{number + 1}", *parts)
    yield _linear("fc", inputs, 1000)


def vgg(groups: Sequence[int]) -> Iterator[Layer]:
    """Yield 3x3 convolutions."""
    inputs = 3
    for group, (count, width) in enumerate(zip(groups, (64, 128, 256, 512, 512), strict=True)):
        side = 224 >> group
        for number in range(count):
            name = f"conv{group + 1}-{number + 1}"
            yield _convolution(name, inputs, width, 3, side, bias=True)
            inputs = width
    yield _linear("fc6", inputs * 7 * 7, 4096)
    yield _linear("fc7", 4096, 4096)
    yield _linear("fc8", 4096, 1000)


def densenet(
    blocks: Sequence[int],
    growth: int,
    first: int,
) -> Iterator[Layer]:
    """Yield layers each of which sees all maps before it."""
    stem = _convolution("", 3, first, 7, 112, norm=first)
    yield _joined("conv0", stem, output=first * 56 * 56)  # pooled
    maps = first
    side = 56
    for block, count in enumerate(blocks):
        for number in range(count):
            narrow = _convolution("", maps, 4 * growth, 1, side, norm=maps)
            wide = _convolution("", 4 * growth, growth, 3, side, norm=4 * growth)
            maps += growth
            yield _joined(f"dense{block + 1}-{number + 1}", narrow, wide, output=maps * side * side)
        if block < len(blocks) - 1:
            transition = _convolution("", maps, maps // 2, 1, side, norm=maps)
            maps = maps // 2
            side = side // 2
            yield _joined(f"transition{block + 1}", transition, output=maps * side * side)
    last = _linear("fc", maps, 1000)
    yield Layer("fc", last.parameters + 2 * maps, last.forward_flops, last.output)


_KINDS: Mapping[str, Callable[..., Iterator[Layer]]] = {
    "transformer": transformer,
    "resnet": resnet,
    "vgg": vgg,
    "densenet": densenet,
}


def _models() -> Iterator[Model]:
    file = Path(__file__).with_suffix(".yaml")
    families: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    for family in families:
        for name, own_sizes in family["models"].items():
            sizes = {**family.get("all", {}), **own_sizes}
            layers = tuple(_KINDS[family["kind"]](**sizes))
            if "sequence" in sizes:
                sample = f"a sequence of {sizes['sequence']} tokens"
                parameter_bytes = 2
            else:
                sample = "an image"
                parameter_bytes = 4
            yield Model(name, family["source"], layers, sample, parameter_bytes)


MODELS: Mapping[str, Model] = {model.name: model for model in _models()}
"""All models by name, family by family."""


def find_model(name: str) -> Model:
    """Return the model of that name. Raises `DocumentError`."""
    if name not in MODELS:
        raise DocumentError(
            "MODEL", "", f"unknown model '{name}' ({suggestion(name, MODELS)})", code="unknown-name"
        )
    return MODELS[name]


Zero = Literal[0, 1, 2, 3]
Recompute = Literal["none", "selective", "full"]
SUMMED_BYTES = 4
"""Bytes of an element of a gradient that data parallelism sums: FP32, as Megatron-LM does.

ZeRO stages 2 and 3 sum in the precision of the parameters, as DeepSpeed does, without a pipeline.
"""
BACKWARD = 2
"""Operations of the backward pass for each of the forward pass.

J. Kaplan et al., arXiv:2001.08361, section 2.1.
"""
STATE_BYTES = (2, 2, 12)
"""Bytes of a parameter, its gradient, and what Adam keeps of it.

S. Rajbhandari et al., arXiv:1910.02054, section 3.1.
"""
MICRO_BATCHES = 8
"""Micro-batches of a pipeline.

They are `local_batch_size` 8 by `pipeline_parallel_microbatch_size` 1, torchtitan's defaults
(torchtitan/config/job_config.py).
"""


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


_MAMF = "S. Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS, BF16"


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
) -> Gpu:
    """Return a GPU. `local` and `memory` are GB/s, `size` is GB."""
    gpu = Gpu(
        name,
        peak_flops=tflops * 10**12,
        local_bytes_per_s=local * 10**9,
        memory_bytes_per_s=memory * 10**9,
        memory_bytes=size * 10**9,
        source=f"{source} data sheet",
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
_MI300X = _gpu(
    "MI300X",
    "AMD MI300X",
    tflops=1307,
    local=448,
    memory=5300,
    size=192,
    efficiency="0.514",
)
_TPU_V5P = _gpu(
    "TPU-v5p",
    "Google Cloud TPU v5p",
    tflops=459,
    local=600,
    memory=2765,
    size=95,
)
GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu for gpu in (_V100, _A100, _H100, _H200, _B200, _MI300X, _TPU_V5P)
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
      arXiv:2407.21783, section 3.3.2).
    * **Expert parallelism** puts experts on different replicas. Tokens go to them and back by two
      all-to-alls forward and two backward (D. Lepikhin et al., ICLR '21, section 3.1), here in
      equal parts.
    * **Data parallelism** sums gradients once in an iteration. With ZeRO stage 1 or 2 (S.
      Rajbhandari et al., arXiv:1910.02054) it is a reduce-scatter of gradients and an all-gather of
      parameters; with stage 3, each layer's parameters are gathered before the forward and before
      the backward pass, and its gradients are scattered. Stages 2 and 3 scatter the gradients of
      each micro-batch, except in a pipeline, where they add up (torchtitan).

    A pass takes the time of its operations at `efficiency`, and of the memory traffic between
    matrix multiplications: what the layer keeps for the backward pass (Korthikanti et al.,
    equations 1 to 4; those of GPT for all models), written once and read once. FlashAttention keeps
    no scores, and computes only the half of them that is seen.
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
    sequence_parallel: bool = False
    overlap: bool = True
    """Whether sums of gradients overlap with the backward pass."""
    chunks: int = 1
    """Parts of the model that each stage has, taken in turn (interleaved 1F1B)."""
    recompute: Recompute = "none"
    """The part of the forward pass that is computed again: attention's scores, or all of it."""
    flash: bool = True

    def __post_init__(self) -> None:
        self._check_degrees()
        self._check_pipeline()
        self._check_zero()

    def _check_degrees(self) -> None:
        layers = self.model.layers
        is_cut = any(layer.tensor_reduces for layer in layers)
        for key, degree in (("tp", self.tensor), ("cp", self.context)):
            if degree > 1 and not is_cut:
                reason = f"{self.model.name} has no layers that are cut (give {key}=1)"
                raise DocumentError("--parallel", key, reason)
        if self.expert > 1 and not any(layer.experts for layer in layers):
            raise DocumentError("--parallel", "ep", f"{self.model.name} has no experts (give ep=1)")
        if self.data % self.expert:
            reason = f"{self.expert} does not divide dp={self.data} (give a divisor)"
            raise DocumentError("--parallel", "ep", reason)

    def _check_pipeline(self) -> None:
        layers = len(self.model.layers)
        if self.pipeline * self.chunks > layers:
            if self.pipeline > layers:
                place = ("--parallel", "pp")
            else:
                place = ("--interleave", "")
            reason = f"{self.model.name} has {layers} layers (give at most as many stages in all)"
            raise DocumentError(*place, reason, code="too-large")
        if self.sequence_parallel and self.tensor == 1:
            raise DocumentError(
                "--sequence-parallel", "", "needs a tensor group (give tp=2 or more)"
            )
        if self.chunks > 1 and self.pipeline == 1:
            raise DocumentError("--interleave", "", "needs a pipeline (give pp=2 or more)")
        if self.chunks > 1 and self.micro_batches % self.pipeline:
            reason = (
                f"needs micro-batches in multiples of pp={self.pipeline}, not {self.micro_batches}"
                " (change --global-batch or --micro-batches)"
            )
            raise DocumentError("--interleave", "", reason)

    def _check_zero(self) -> None:
        if self.zero == 3 and self.pipeline > 1:
            reason = (
                "3 does not go with a pipeline, which keeps gathered parameters (give 2, as"
                " torchtitan does)"
            )
            raise DocumentError("--zero", "", reason)
        if not self.is_sharded:
            return
        if max(self.expert, self.context) > 1:
            reason = f"{self.zero} does not go with cp or ep here (give 0 or 1)"
            raise DocumentError("--zero", "", reason)
        if not self.overlap:
            reason = "does not go with --zero 2 or 3, which scatter as they compute"
            raise DocumentError("--no-overlap", "", reason)

    @property
    def is_sharded(self) -> bool:
        """Return whether gradients are scattered as they are computed.

        ZeRO 2 and 3 do so without a pipeline.

        """
        return self.zero >= 2 and self.pipeline == 1

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
        """Return the parameters on one GPU that are no experts."""
        return sum(-(-(layer.parameters - layer.experts) // self.tensor) for layer in layers)

    def routed_to(self, layers: Sequence[Layer]) -> int:
        """Return the parameters of experts on one GPU."""
        return sum(-(-layer.experts // (self.tensor * self.expert)) for layer in layers)

    def _compute_s(self, flops: int) -> Fraction:
        cut = self.tensor * self.context
        flops_per_s = cut * self.gpu.peak_flops * self.efficiency
        return Fraction(self.micro_batch_samples * flops) / flops_per_s

    def forward_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds of a micro-batch's forward pass through these layers.

        They are without communication.
        """
        flops = sum(layer.forward_flops for layer in layers)
        if self.flash:
            flops -= sum(layer.attention_flops // 2 for layer in layers if layer.causal)
        # What a layer keeps is written once and read once.
        moved = 2 * sum(self.kept_bytes(layer) for layer in layers)
        return self._compute_s(flops) + Fraction(moved, self.gpu.memory_bytes_per_s)

    def backward_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds of the backward pass likewise, with what it recomputes."""
        recomputed_s = Fraction(0)
        if self.recompute == "full":
            recomputed_s = self.forward_s(layers)
        elif self.recompute == "selective" and not self.flash:
            scores = 2 * sum(self._score_bytes(layer) for layer in layers)
            recomputed_s = self._compute_s(sum(layer.attention_flops for layer in layers))
            recomputed_s += Fraction(scores, self.gpu.memory_bytes_per_s)
        return BACKWARD * self.forward_s(layers) + recomputed_s

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
        return int(elements * element_bytes / self.context) + self._score_bytes(layer)

    def _score_bytes(self, layer: Layer) -> int:
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
        """Return the bytes of keys and values of a layer on one GPU, of a sequence's all parts."""
        if self.context == 1:
            return 0
        elements = self.micro_batch_samples * layer.key_values
        return self.model.parameter_bytes * elements // self.tensor

    def tensor_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes that these layers sum over the tensor group in one forward pass.

        That is one of a micro-batch. The backward pass sums as many.
        """
        if self.tensor == 1:
            return 0
        return sum(layer.tensor_reduces * self.activation_bytes(layer) for layer in layers)

    def local_s(
        self,
        layers: Sequence[Layer],
        gpus_per_host: int,
        *,
        backward: bool = False,
    ) -> Fraction:
        """Return the seconds that these layers communicate inside a host in one pass.

        A micro-batch has rings of the tensor group, and of the context's and experts' groups that
        fit into the host.
        """
        passes = 1
        if backward and self.recompute == "full":
            passes = 2
        cut = self.tensor * self.context
        moved = 2 * passes * _ring_part(self.tensor) * self.tensor_bytes(layers)
        if cut <= gpus_per_host:
            key_values = sum(self.context_bytes(layer) for layer in layers)
            moved += (passes + backward) * _ring_part(self.context) * key_values
        if cut * self.expert <= gpus_per_host:
            routed = sum(self.routed_bytes(layer) for layer in layers)
            moved += 2 * passes * _ring_part(self.expert) * routed
        return moved / self.gpu.local_bytes_per_s

    def pass_s(self, layers: Sequence[Layer], gpus_per_host: int) -> tuple[Fraction, Fraction]:
        """Return what a host spends on the forward and on the backward pass of one micro-batch."""
        forward_s = self.forward_s(layers) + self.local_s(layers, gpus_per_host)
        backward_s = self.backward_s(layers) + self.local_s(layers, gpus_per_host, backward=True)
        return forward_s, backward_s

    @property
    def state_bytes(self) -> Fraction:
        """Return the bytes of parameters, gradients and Adam's state on the fullest GPU."""
        replicas = self.data * self.context
        dense = self._parameter_state_bytes(replicas)
        expert = self._parameter_state_bytes(replicas // self.expert)
        sizes = []
        for layers in self.stages:
            sizes.append(dense * self.dense(layers) + expert * self.routed_to(layers))
        return max(sizes)

    def _parameter_state_bytes(self, shards: int) -> Fraction:
        """Return the bytes of a parameter's state on one of so many GPUs that may share it."""
        total = Fraction(0)
        # From these stages of ZeRO on, each part of the state is cut.
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


def _ring_part(size: int) -> Fraction:
    """Return the part of a tensor that each rank of a ring sends in a reduce-scatter."""
    return Fraction(size - 1, size)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one GPU's collectives and sends in an iteration, by operation and group.

    They are sizes of tensors, as they are handed to the library.
    """

    stage: int
    tensor_all_reduce: int
    """The bytes of an all-reduce.

    With sequence parallelism, they are those of a reduce-scatter and of an all-gather.
    """
    pipeline_send: int
    data_all_reduce: int
    data_reduce_scatter: int
    data_all_gather: int
    context_all_gather: int = 0
    context_reduce_scatter: int = 0
    expert_all_to_all: int = 0


def traffic(training: Training) -> list[Traffic]:
    """Return what a GPU of each stage hands to its collectives in an iteration."""
    by_stage = []
    for number, layers in enumerate(training.stages):
        by_stage.append(_stage_traffic(training, number, layers))
    return by_stage


def _stage_traffic(
    training: Training,
    number: int,
    layers: Sequence[Layer],
) -> Traffic:
    micro_batches = training.micro_batches
    passes = 2
    if training.recompute == "full":
        passes = 3
    key_values = micro_batches * sum(training.context_bytes(layer) for layer in layers)
    routed = micro_batches * sum(training.routed_bytes(layer) for layer in layers)

    summed = training.summed_bytes(layers)
    gathered = training.gathered_bytes(layers)
    all_reduce = reduce_scatter = all_gather = 0
    if training.data * training.context > 1:
        if training.zero == 0:
            all_reduce = summed
        else:
            reduce_scatter = summed
            if training.is_sharded:
                reduce_scatter = summed * micro_batches
            all_gather = gathered
            if training.zero == 3:
                all_gather = gathered * 2 * micro_batches
    return Traffic(
        number,
        tensor_all_reduce=passes * micro_batches * training.tensor_bytes(layers),
        pipeline_send=micro_batches * _pipeline_sends(training, number),
        data_all_reduce=all_reduce,
        data_reduce_scatter=reduce_scatter,
        data_all_gather=all_gather,
        context_all_gather=passes * key_values,
        context_reduce_scatter=key_values,
        expert_all_to_all=2 * passes * routed,
    )


def _pipeline_sends(training: Training, number: int) -> int:
    """Return the bytes that a GPU of this stage sends to other stages for one micro-batch."""
    ends = []
    for layers in training.stages[:-1]:
        ends.append(training.sent_bytes(layers[-1]))
    if not ends:
        return 0
    # Nothing leaves the last chunk of the last stage, or goes back from the first one of the first.
    last = len(ends)
    forward = training.chunks - (number == last)
    backward = training.chunks - (number == 0)
    return forward * ends[min(number, last - 1)] + backward * ends[number - 1]


BUCKET_PARAMETERS = 40_000_000
"""Parameters in one sum of a mesh: `bucket_size` of Megatron-LM.

It is a million for each replica if that is more
(megatron/core/distributed/distributed_data_parallel.py).
"""
BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default.

S. Li et al., PyTorch Distributed, VLDB '20, section 3.2.3.
"""
_MOST_BUCKETS = 1000
_WIDTH = 110
_DIGITS = 9
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_DEGREE = re.compile(r"(dp|tp|pp|cp|ep)=([1-9][0-9]{0,5})")


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
    gpus_per_host: int = 8,
    hosts: Sequence[str] | None = None,
    efficiency: Fraction | None = None,
    name: str | None = None,
    recompute: str = "none",
    warn: Callable[[str], object] = lambda _: None,
    **choices: Any,
) -> str:
    """Return the text of the job file that trains `model` on `gpus` GPUs.

    `parallel` is as in ``dp=8,tp=4,pp=2``; a missing dp is what remains. `choices` are those of
    `Training`. Calls `warn` with each of `warnings`. Raises `DocumentError`, which names the option
    at fault.
    """
    described_model = find_model(model)
    described_gpu = find_gpu(gpu)
    if zero not in get_args(Zero):
        reason = f"{zero} is not a stage of ZeRO (give 0, 1, 2 or 3)"
        raise DocumentError("--zero", "", reason, code="not-allowed")
    if recompute not in get_args(Recompute):
        reason = f"unknown way '{recompute}' ({suggestion(recompute, get_args(Recompute))})"
        raise DocumentError("--recompute", "", reason, code="unknown-name")
    efficiency = _efficiency(described_gpu, efficiency)
    if name is None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", model)
    if not _NAME.fullmatch(name):
        reason = f"'{name}' is not a name (up to 32 letters, digits, '-', '_'; a letter first)"
        raise DocumentError("--name", "", reason, code="not-a-name")

    degrees = _degrees(parallel, gpus)
    if global_batch is not None:
        if micro_batches is not None:
            reason = "follow from --global-batch (give one of them)"
            raise DocumentError("--micro-batches", "", reason)
        micro_batches = _micro_batches(global_batch, degrees["dp"], micro_batch_samples)
    elif micro_batches is None:
        micro_batches = _default_micro_batches(degrees["pp"], choices.get("chunks", 1))
    training = Training(
        described_model,
        described_gpu,
        data=degrees["dp"],
        tensor=degrees["tp"],
        pipeline=degrees["pp"],
        context=degrees["cp"],
        expert=degrees["ep"],
        micro_batches=micro_batches,
        micro_batch_samples=micro_batch_samples,
        zero=cast("Zero", zero),
        efficiency=efficiency,
        recompute=cast("Recompute", recompute),
        **choices,
    )
    text = job_file(training, name, min(gpus_per_host, gpus), hosts)
    for warning in warnings(training):
        warn(warning)
    return text


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


def _degrees(parallel: str, gpus: int) -> dict[str, int]:
    degrees: dict[str, int] = {}
    for word in parallel.split(","):
        part = word.strip()
        if not part:
            continue
        match = _DEGREE.fullmatch(part)
        if match is None or match[1] in degrees:
            reason = (
                f"'{part}' is not a degree of parallelism, or is given twice (write dp=8,tp=4,pp=2)"
            )
            raise DocumentError("--parallel", "", reason)
        degrees[match[1]] = int(match[2])
    for key in ("tp", "pp", "cp", "ep"):
        degrees.setdefault(key, 1)

    replica = degrees["tp"] * degrees["pp"] * degrees["cp"]
    data = degrees.setdefault("dp", max(1, gpus // replica))
    if data * replica != gpus:
        keys = ["dp", "tp", "pp"]
        if degrees["cp"] > 1:
            keys.append("cp")
        text = ", ".join(f"{key}={degrees[key]}" for key in keys)
        reason = f"{text} are {data * replica} GPUs, not {gpus} (correct one of them)"
        raise DocumentError("--parallel", "", reason)
    return degrees


def warnings(training: Training) -> Iterator[str]:
    """Yield what no one trains like, in a sentence each."""
    stages = training.pipeline * training.chunks
    micro_batches = training.micro_batches
    if training.pipeline > 1 and micro_batches < stages:
        bubbles = training.pipeline - 1
        idle = bubbles / (training.chunks * micro_batches + bubbles)
        plural = ""
        if micro_batches > 1:
            plural = "es"
        yield (
            f"{stages} stages with {micro_batches} micro-batch{plural}"
            f" leave GPUs idle for {idle:.0%} of the time (give a larger --global-batch)."
        )
    state = float(training.state_bytes)
    size = training.gpu.memory_bytes
    if size is not None and state > size:
        yield (
            f"Parameters, gradients and Adam's state take {state / 1e9:.0f} GB of each GPU, which"
            f" has {size / 1e9:.0f} GB (give a higher tp, pp or --zero)."
        )
    if training.zero and training.data * training.context == 1:
        yield (
            f"--zero {training.zero} shards over replicas,"
            " of which there is one (give dp=2 or more)."
        )


def job_file(
    training: Training,
    name: str,
    gpus_per_host: int,
    hosts: Sequence[str] | None = None,
) -> str:
    """Return the text of the job file, YAML with comments.

    `hosts` are h1, h2... if they are not given. Raises `DocumentError` for groups that do not fit
    `gpus_per_host` or `hosts`.

    The file describes hosts, since the network sees nothing else: `GPUs per host` consecutive ranks
    are one worker. Inside a host, groups of tensor, context and expert parallelism take the time of
    rings over NVLink, which is added to the computing; data-parallel sums are left out. Between
    hosts there are the sends of the pipeline, the exchanges of a context or experts whose groups
    are larger than a host, and the collectives of data parallelism, with the bytes that all GPUs of
    a host send together.
    """
    count = _hosts(training, gpus_per_host)
    if hosts is not None:
        workers = list(hosts)
    else:
        workers = [f"h{number}" for number in range(1, count + 1)]
    if len(workers) != count:
        reason = (
            f"{len(workers)} hosts are given, but {training.gpus} GPUs at {gpus_per_host} a host"
            f" need {count}"
        )
        raise DocumentError("--hosts", "", reason, code="wrong-length")
    paradigm, section = _section(training, gpus_per_host, count)
    lines = []
    for text in _comments(training, gpus_per_host, count):
        lines += [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]
    lines += [f"job: {name}", f"parallelism: {paradigm}", f"workers: [{', '.join(workers)}]"]
    return "\n".join(lines) + "\n" + _text(paradigm, section)


def _hosts(training: Training, gpus_per_host: int) -> int:
    cut = training.tensor * training.context
    spans = [("cp", training.context, cut), ("ep", training.expert, cut * training.expert)]
    fits = gpus_per_host % training.tensor == 0 and cut * training.data % gpus_per_host == 0
    for _, _, size in spans:
        # A group is a part of a host, or several hosts.
        if size % gpus_per_host and gpus_per_host % size:
            fits = False
    if not fits:
        reason = (
            f"{gpus_per_host} a host do not hold whole groups of tp={training.tensor}, or do not"
            f" divide dp={training.data} (give a multiple of tp that divides tp x dp, and tp x cp"
            " or tp x cp x ep, or is one)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    between = [key for key, degree, size in spans if degree > 1 and size > gpus_per_host]
    if len(between) > 1:
        reason = "and cp are both larger than a host (give a smaller one of them)"
        raise DocumentError("--parallel", "ep", reason)
    hosts = training.gpus // gpus_per_host
    if hosts < 2:
        reason = f"{training.gpus} are on one host, which needs no network (give more)"
        raise DocumentError("--gpus", "", reason)
    return hosts


def _section(
    training: Training,
    gpus_per_host: int,
    hosts: int,
) -> tuple[str, dict[str, Any]]:
    """Return the paradigm of the job file, and its section."""
    if training.is_sharded:
        return "fsdp", _sharded(training, gpus_per_host)

    # Hosts that share the layers of a replica, or of several that share experts.
    cut = training.tensor * training.context
    context_hosts = -(-cut // gpus_per_host)
    expert_hosts = -(-cut * training.expert // gpus_per_host)
    has_context = context_hosts > 1
    group = 1
    if has_context or training.expert > 1:
        group = max(context_hosts, expert_hosts)

    stage_hosts = hosts // training.pipeline
    sums: dict[str, list[str]] = {}
    if stage_hosts > 1:
        for key, sizes in _sums(training, group, has_context):
            sums[key] = [size_text(size) for size in sizes]
    times = _times(training, training.stages, gpus_per_host)
    is_plain = training.pipeline == training.micro_batches == group == 1 and training.zero == 0
    if is_plain and training.overlap:
        (forward,), (backward,) = times["forward"], times["backward"]
        (gradient,) = sums["gradient"]
        buckets = min(-(-size_bytes(gradient) // BUCKET_BYTES), _MOST_BUCKETS)
        passes = {"forward": forward, "backward": backward}
        return "data", {**passes, "buckets": buckets, "gradient": gradient}

    # A host sends what all of its ranks send. The boundary of a single stage is not there, but has
    # a size.
    ends = training.stages[:-1] or training.stages
    sent = []
    for stage in ends:
        sent.append(size_text(gpus_per_host * training.sent_bytes(stage[-1])))
    section: dict[str, Any] = {
        "schedule": "interleaved" if training.chunks > 1 else "1f1b",
        "micro_batches": training.micro_batches,
        **times,
        "activation": sent if training.pipeline > 1 else sent[0],
    }
    if training.chunks > 1:
        section["chunks"] = training.chunks
    elif stage_hosts == 1:
        return "pipeline", section

    mesh: dict[str, Any] = {
        "data": stage_hosts // group,
        "pipeline": training.pipeline,
        "order": ["pipeline", "data", "tensor"] if group > 1 else ["pipeline", "data"],
    }
    layers = -(-len(training.model.layers) // (training.pipeline * training.chunks))
    if group > 1:
        exchanged = _exchanged_bytes(training, layers, gpus_per_host, has_context)
        mesh["tensor"] = group
        mesh["layers"] = layers
        if has_context:
            mesh["exchange"] = "context"
        else:
            mesh["exchange"] = "experts"
        mesh["exchanged"] = size_text(exchanged)
    if training.overlap and sums:
        mesh["buckets"] = _buckets(training, layers, group)
    return "mesh", {**mesh, **section, **sums}


def _times(
    training: Training,
    stages: Sequence[Sequence[Layer]],
    gpus_per_host: int,
) -> dict[str, list[str]]:
    forward = []
    backward = []
    for layers in stages:
        forward_s, backward_s = training.pass_s(layers, gpus_per_host)
        forward.append(_seconds(forward_s))
        backward.append(_seconds(backward_s))
    return {"forward": forward, "backward": backward}


def _exchanged_bytes(
    training: Training,
    layers: int,
    gpus_per_host: int,
    has_context: bool,
) -> int:
    """Return what a host exchanges with its group for each of so many layers of a stage."""
    if has_context:
        total = training.tensor * sum(map(training.context_bytes, training.model.layers))
    else:
        total = gpus_per_host * sum(map(training.routed_bytes, training.model.layers))
    # Layers without an exchange, and stages with a layer less, count as a part of one.
    exchanged = total // (layers * training.pipeline * training.chunks)
    if training.recompute != "full":
        return exchanged
    # The backward pass repeats what the forward pass exchanges: one of three times, or of two.
    if has_context:
        return exchanged * 4 // 3
    return exchanged * 3 // 2


def _buckets(
    training: Training,
    layers: int,
    group: int,
) -> int:
    """Return in how many parts a chunk's gradients are summed, which divide its exchanges."""
    parameters = max(map(training.parameters, training.stages)) // training.chunks
    bucket = max(BUCKET_PARAMETERS, 10**6 * training.data)
    most = min(layers, -(-parameters // bucket))
    if group == 1:
        return max(1, most)
    return max(number for number in range(1, most + 1) if layers % number == 0)


def _sums(
    training: Training,
    group: int,
    has_context: bool,
) -> Iterator[tuple[str, list[int]]]:
    """Yield the sizes of a host's sums of gradients in each stage, by key of a mesh.

    With ZeRO, the parameters that it gathers then follow. Of `group` hosts that share layers, each
    has all parameters of a context, and its part of the experts.
    """
    if group == 1 or has_context:
        host_experts = training.expert
    else:
        host_experts = training.expert // group
    dense = []
    experts = []
    for layers in training.stages:
        dense.append(training.tensor * training.dense(layers))
        experts.append(host_experts * training.tensor * training.routed_to(layers))
    everything = [sum(sizes) for sizes in zip(dense, experts, strict=True)]

    # Parameters that replicas sum among themselves, and those that all hosts of a stage sum.
    if group == 1:
        by_replicas = everything
        by_all = []
    elif has_context:
        by_replicas = []
        by_all = everything
    else:
        by_replicas = experts
        by_all = dense
    summed = training.summed_element_bytes
    gathered = training.model.parameter_bytes
    if any(by_replicas):
        yield "gradient", [summed * size for size in by_replicas]
        if training.zero:
            yield "parameters", [gathered * size for size in by_replicas]
    if any(by_all):
        if training.zero:
            # A reduce-scatter and an all-gather send half as much as an all-reduce each.
            yield "shared_gradient", [size * (summed + gathered) // 2 for size in by_all]
        else:
            yield "shared_gradient", [size * summed for size in by_all]


def _sharded(training: Training, gpus_per_host: int) -> dict[str, Any]:
    layers = [(layer,) for layer in training.model.layers]
    gathered = [training.tensor * training.gathered_bytes(layer) for layer in layers]
    summed = [training.tensor * training.summed_bytes(layer) for layer in layers]
    return {
        "zero": training.zero,
        "layers": len(layers),
        "micro_batches": training.micro_batches,
        **_times(training, layers, gpus_per_host),
        "parameters": [size_text(size) for size in gathered],
        "gradients": [size_text(size) for size in summed],
    }


def _comments(
    training: Training,
    gpus_per_host: int,
    hosts: int,
) -> Iterator[str]:
    model = training.model
    gpu = training.gpu
    yield f"{model.name}: {model.parameters:,} parameters ({model.source})."

    degrees = [f"dp={training.data}", f"tp={training.tensor}", f"pp={training.pipeline}"]
    if training.context > 1:
        degrees.append(f"cp={training.context}")
    if training.expert > 1:
        degrees.append(f"ep={training.expert}")
    ways = [f"recomputation: {training.recompute}"]
    if training.sequence_parallel:
        ways.append("sequence parallelism")
    if training.chunks > 1:
        ways.append(f"{training.chunks} chunks of each stage")
    machines = f"{training.gpus} {gpu.name} on {hosts} hosts of {gpus_per_host}"
    yield f"{machines}: {', '.join(degrees)}, ZeRO {training.zero}; {', '.join(ways)}."

    samples = training.data * training.micro_batches * training.micro_batch_samples
    yield (
        f"Micro-batches of an iteration: {training.micro_batches} for each replica. Samples of a"
        f" micro-batch: {training.micro_batch_samples}, each {model.sample}; of an iteration:"
        f" {samples}."
    )
    measured = "given"
    if training.efficiency == gpu.efficiency:
        measured = gpu.measured
    yield (
        f"Computing: {model.forward_flops / 1e12:.4g} TFLOP a sample forward, {BACKWARD} times that"
        f" backward, at {float(training.efficiency):.1%} ({measured}) of"
        f" {gpu.peak_flops / 1e12:g} TFLOP/s ({gpu.source}); memory at"
        f" {gpu.memory_bytes_per_s / 1e9:g} GB/s."
    )
    for warning in warnings(training):
        yield f"Warning: {warning}"
    for sent, layers in zip(traffic(training), training.stages, strict=True):
        yield f"{layers[0].name} to {layers[-1].name}: {_traffic_line(sent)}"


def _traffic_line(sent: Traffic) -> str:
    """Return the bytes of a GPU of one stage in an iteration, by operation."""
    operations = [
        (sent.tensor_all_reduce, "all-reduced in its tensor group (inside the host)"),
        (sent.context_all_gather, "of keys and values all-gathered in its context's group"),
        (sent.context_reduce_scatter, "of their gradients reduce-scattered"),
        (sent.expert_all_to_all, "of tokens in all-to-alls of its experts' group"),
        (sent.pipeline_send, "sent to other stages"),
        (sent.data_all_reduce, "all-reduced over replicas"),
        (sent.data_reduce_scatter, "reduce-scattered over replicas"),
        (sent.data_all_gather, "all-gathered over replicas"),
    ]
    parts = [f"{size / 1e9:.4g} GB {operation}" for size, operation in operations if size]
    return f"{', '.join(parts) or 'nothing sent'}, by each GPU in an iteration."


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
