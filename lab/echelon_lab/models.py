"""Models by name, and the jobs that train them.

`models.yaml` has their sizes, as published. `Model` makes layers of them, `traffic` says what GPUs
compute and send to train one, and `new_job_file` writes that as a job file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """Floating-point operations of the forward pass; a multiplication with an addition is two. The
    backward pass has twice as many (J. Kaplan et al., arXiv:2001.08361, section 2.1)."""
    output: int
    """Elements that the next layer needs."""
    tensor_reduces: int = 0
    """All-reduces of the layer's output in the forward pass, and again in the backward pass, if
    tensor parallelism cuts the layer (Megatron-LM, M. Shoeybi et al., arXiv:1909.08053, section 3).
    """
    attention_flops: int = 0
    """The part of `forward_flops` that is for scores and values of attention."""
    causal: bool = False
    """Whether a token sees only those before it: FlashAttention then leaves out half of
    `attention_flops`.
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
        for at, layer in enumerate(self.layers):
            stage.append(layer)
            done += layer.forward_flops
            layers_left = len(self.layers) - at - 1
            stages_left = count - len(stages) - 1
            # A stage ends where the next layer would bring it further from its part of the
            # operations.
            if layers_left:
                following = self.layers[at + 1].forward_flops
            else:
                following = 0
            enough = done + following / 2 > total * (len(stages) + 1) / count
            if stages_left and (enough or layers_left == stages_left):
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
    norm = 2 * h if biases else h
    segment_parameters = segments * h + 2 * h if segments else 0
    yield Layer("embedding", (v + positions) * h + segment_parameters, 0, s * h, 1)
    kv = h // heads * (key_value_heads or heads)
    attention = 2 * h * h + 2 * h * kv
    expert = (3 if gated else 2) * h * f
    bias = 2 * h + 2 * kv + experts * (f + h) if biases else 0
    router = h * experts if experts > 1 else 0
    parameters = attention + experts * expert + router + bias + 2 * norm
    scores_flops = 4 * s * s * h
    flops = 2 * s * (attention + active_experts * expert + router) + scores_flops
    if experts > 1:
        moe = (experts * (expert + (f + h if biases else 0)), active_experts * s * h)
    else:
        moe = (0, 0)
    for number in range(1, layers + 1):
        yield Layer(
            f"layer{number}",
            parameters,
            flops,
            s * h,
            2,
            scores_flops,
            causal,
            heads * s * s,
            2 * s * kv,
            *moe,
        )
    head = h * h + h if pooler else 0
    yield Layer(
        "output", (0 if tied else v * h) + (norm if final_norm else 0) + head, 2 * s * h * v, s, 0
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
    """Return a convolution with `outputs` maps of `side` x `side`; `norm` maps are normalised with
    two weights each.
    """
    weights = inputs * outputs * kernel * kernel
    parameters = weights + (outputs if bias else 0) + 2 * norm
    return Layer(name, parameters, 2 * weights * side * side, outputs * side * side)


def _linear(name: str, inputs: int, outputs: int) -> Layer:
    """Return a fully connected layer with biases."""
    return Layer(name, inputs * outputs + outputs, 2 * inputs * outputs, outputs)


def _joined(name: str, *layers: Layer, output: int | None = None) -> Layer:
    """Return several layers as one that a pipeline does not cut."""
    return Layer(
        name,
        sum(layer.parameters for layer in layers),
        sum(layer.forward_flops for layer in layers),
        layers[-1].output if output is None else output,
    )


def resnet(blocks: Sequence[int]) -> Iterator[Layer]:
    """Yield bottlenecks of 1x1, 3x3 and 1x1."""
    yield _joined(
        "conv1", _convolution("conv1", 3, 64, 7, 112, norm=64), output=64 * 56 * 56
    )  # pooled
    inputs = 64
    expansion = 4
    for group, count in enumerate(blocks):
        width = 64 << group
        side = 56 >> group
        for number in range(count):
            # The first block of a group halves the side in its 3x3 convolution.
            before = side << 1 if number == 0 and group else side
            parts = [
                _convolution("", inputs, width, 1, before, norm=width),
                _convolution("", width, width, 3, side, norm=width),
                _convolution("", width, width * expansion, 1, side, norm=width * expansion),
            ]
            if number == 0:
                shortcut = _convolution(
                    "", inputs, width * expansion, 1, side, norm=width * expansion
                )
                parts.insert(0, shortcut)
            inputs = width * expansion
            yield _joined(f"conv{group + 2}-{number + 1}", *parts)
    yield _linear("fc", inputs, 1000)


def vgg(groups: Sequence[int]) -> Iterator[Layer]:
    """Yield 3x3 convolutions."""
    inputs = 3
    for group, (count, width) in enumerate(zip(groups, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            yield _convolution(
                f"conv{group + 1}-{number + 1}", inputs, width, 3, 224 >> group, bias=True
            )
            inputs = width
    yield _linear("fc6", inputs * 7 * 7, 4096)
    yield _linear("fc7", 4096, 4096)
    yield _linear("fc8", 4096, 1000)


def densenet(blocks: Sequence[int], growth: int, first: int) -> Iterator[Layer]:
    """Yield layers each of which sees all maps before it."""
    yield _joined(
        "conv0", _convolution("", 3, first, 7, 112, norm=first), output=first * 56 * 56
    )  # pooled
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
    families: list[dict[str, Any]] = yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    )
    for family in families:
        for name, own in family["models"].items():
            sizes = {**family.get("all", {}), **own}
            layers = tuple(_KINDS[family["kind"]](**sizes))
            text = "sequence" in sizes
            if text:
                sample = f"a sequence of {sizes['sequence']} tokens"
            else:
                sample = "an image"
            yield Model(name, family["source"], layers, sample, 2 if text else 4)


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
"""Bytes of an element of a gradient that data parallelism sums: FP32, as Megatron-LM does. ZeRO
stages 2 and 3 sum in the precision of the parameters, as DeepSpeed does, without a pipeline."""
BACKWARD = 2
"""Operations of the backward pass for each of the forward pass (J. Kaplan et al., arXiv:2001.08361,
section 2.1).
"""
STATE_BYTES = (2, 2, 12)
"""Bytes of a parameter, its gradient, and what Adam keeps of it (S. Rajbhandari et al.,
arXiv:1910.02054, section 3.1)."""
MICRO_BATCHES = 8
"""Micro-batches of a pipeline: `local_batch_size` 8 by `pipeline_parallel_microbatch_size` 1,
torchtitan's defaults (torchtitan/config/job_config.py)."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, by its vendor's data sheet."""

    name: str
    peak_flops: int
    """Dense floating-point operations a second of the tensor cores, FP16 or BF16."""
    local_bytes_per_s: int
    """Between the GPUs of a host, in each direction."""
    memory_bytes_per_s: int
    memory_bytes: int | None
    source: str
    efficiency: Fraction | None = None
    """The part of the peak that large matrix multiplications were measured to reach, alone on the
    GPU.
    """
    measured: str = "given"
    """The source of that."""


_MAMF = "S. Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS, BF16"


def _gpu(
    name: str, source: str, tflops: int, local: int, memory: int, size: int, *measured: str
) -> Gpu:
    """Return a GPU; the numbers are TFLOP/s, GB/s twice, and GB."""
    sizes = (tflops * 10**12, local * 10**9, memory * 10**9, size * 10**9)
    return Gpu(
        name,
        *sizes,
        f"{source} data sheet",
        *((Fraction(measured[0]), measured[1]) if measured else ()),
    )


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu(
            "V100",
            "NVIDIA V100 SXM2",
            125,
            150,
            900,
            32,
            "0.74",
            "S. Markidis et al., arXiv:1803.04014",
        ),
        _gpu("A100", "NVIDIA A100 SXM", 312, 300, 2039, 80, "0.869", _MAMF),
        _gpu("H100", "NVIDIA H100 SXM", 989, 450, 3350, 80, "0.803", _MAMF),
        _gpu(
            "H200",
            "NVIDIA H200 SXM",
            989,
            450,
            4800,
            141,
            "0.803",
            f"{_MAMF}, of the H100, whose cores it has",
        ),
        _gpu("B200", "NVIDIA HGX B200", 2250, 900, 8000, 180, "0.776", _MAMF),
        _gpu("MI300X", "AMD MI300X", 1307, 448, 5300, 192, "0.514", _MAMF),
        _gpu("TPU-v5p", "Google Cloud TPU v5p", 459, 600, 2765, 95),
    )
}
"""The GPUs by name."""
_OWN = re.compile(r"(peak|local|memory)=([0-9]+(?:\.[0-9]+)?)")


def find_gpu(text: str) -> Gpu:
    """Return the GPU of that name, or one's own, as in ``peak=275,local=300,memory=1200``: TFLOP/s,
    and GB/s of links and memory. Raises `DocumentError`."""
    if "=" not in text:
        if text not in GPUS:
            reason = (
                f"unknown GPU '{text}' ({suggestion(text, GPUS)}; your own is"
                " peak=TFLOP/s,local=GB/s,memory=GB/s)"
            )
            raise DocumentError("--gpu", "", reason, code="unknown-name")
        return GPUS[text]
    parts = [_OWN.fullmatch(part.strip()) for part in text.split(",")]
    given = {match[1]: Fraction(match[2]) for match in parts if match is not None}
    if len(given) != 3 or len(parts) != 3 or not all(given.values()):
        reason = (
            f"'{text}' is not a GPU (write peak=275,local=300,memory=1200: TFLOP/s, and GB/s of"
            " links and memory)"
        )
        raise DocumentError("--gpu", "", reason)
    peak, local, memory = (int(given[key] * 10**9) for key in ("peak", "local", "memory"))
    return Gpu("GPU of your own", 1000 * peak, local, memory, None, f"given: {text}")


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
    """What the backward pass computes once more: attention's scores, or all of the forward pass."""
    flash: bool = True

    def __post_init__(self) -> None:
        layers = self.model.layers
        cut = any(layer.tensor_reduces for layer in layers)
        for key, degree in (("tp", self.tensor), ("cp", self.context)):
            if degree > 1 and not cut:
                raise DocumentError(
                    "--parallel",
                    key,
                    f"{self.model.name} has no layers that are cut (give {key}=1)",
                )
        if self.expert > 1 and not any(layer.experts for layer in layers):
            raise DocumentError("--parallel", "ep", f"{self.model.name} has no experts (give ep=1)")
        if self.data % self.expert:
            raise DocumentError(
                "--parallel", "ep", f"{self.expert} does not divide dp={self.data} (give a divisor)"
            )
        if self.pipeline * self.chunks > len(layers):
            if self.pipeline > len(layers):
                where = ("--parallel", "pp")
            else:
                where = ("--interleave", "")
            reason = (
                f"{self.model.name} has {len(layers)} layers (give at most as many stages in all)"
            )
            raise DocumentError(*where, reason, code="too-large")
        if self.sequence_parallel and self.tensor == 1:
            raise DocumentError(
                "--sequence-parallel", "", "needs a tensor group (give tp=2 or more)"
            )
        if self.chunks > 1 and self.pipeline == 1:
            raise DocumentError("--interleave", "", "needs a pipeline (give pp=2 or more)")
        if self.chunks > 1 and self.micro_batches % self.pipeline:
            reason = (
                f"needs micro-batches in multiples of pp={self.pipeline}, not {self.micro_batches}"
            )
            raise DocumentError(
                "--interleave", "", f"{reason} (change --global-batch or --micro-batches)"
            )
        if self.zero == 3 and self.pipeline > 1:
            reason = (
                "3 does not go with a pipeline, which keeps gathered parameters (give 2, as"
                " torchtitan does)"
            )
            raise DocumentError("--zero", "", reason)
        if self.zero >= 2 and self.pipeline == 1 and max(self.expert, self.context) > 1:
            raise DocumentError(
                "--zero", "", f"{self.zero} does not go with cp or ep here (give 0 or 1)"
            )
        if self.zero >= 2 and self.pipeline == 1 and not self.overlap:
            raise DocumentError(
                "--no-overlap", "", "does not go with --zero 2 or 3, which scatter as they compute"
            )

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
        return Fraction(self.micro_batch_samples * flops) / (
            cut * self.gpu.peak_flops * self.efficiency
        )

    def forward_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds of the forward pass of one micro-batch through these layers, without
        communication.
        """
        unseen = sum(layer.attention_flops // 2 for layer in layers if self.flash and layer.causal)
        memory_s = Fraction(2 * sum(map(self.kept_bytes, layers)), self.gpu.memory_bytes_per_s)
        return self._compute_s(sum(layer.forward_flops for layer in layers) - unseen) + memory_s

    def backward_s(self, layers: Sequence[Layer]) -> Fraction:
        """Return the seconds of the backward pass likewise, with what it recomputes."""
        again = Fraction(0)
        if self.recompute == "full":
            again = self.forward_s(layers)
        elif self.recompute == "selective" and not self.flash:
            scores = 2 * sum(map(self._score_bytes, layers))
            again = self._compute_s(sum(layer.attention_flops for layer in layers))
            again += Fraction(scores, self.gpu.memory_bytes_per_s)
        return BACKWARD * self.forward_s(layers) + again

    def kept_bytes(self, layer: Layer) -> int:
        """Return the bytes that a layer of a transformer keeps for the backward pass of one
        micro-batch.
        """
        if not layer.scores:
            return 0
        whole = 0 if self.sequence_parallel else 10
        each = whole + Fraction(34 - whole, self.tensor)
        return int(
            self.micro_batch_samples * layer.output * each / self.context
        ) + self._score_bytes(layer)

    def _score_bytes(self, layer: Layer) -> int:
        scores = 0 if self.flash else layer.scores
        return 5 * self.micro_batch_samples * scores // (self.tensor * self.context)

    def activation_bytes(self, layer: Layer) -> int:
        """Return the bytes of the output of a layer for one micro-batch."""
        return self.model.parameter_bytes * self.micro_batch_samples * layer.output // self.context

    def sent_bytes(self, layer: Layer) -> int:
        """Return the bytes that one GPU sends to the next stage behind a layer."""
        return self.activation_bytes(layer) // (self.tensor if self.sequence_parallel else 1)

    def routed_bytes(self, layer: Layer) -> int:
        """Return the bytes of tokens that one GPU has for one all-to-all of a layer."""
        if self.expert == 1:
            return 0
        cut = self.tensor * self.context
        return self.model.parameter_bytes * self.micro_batch_samples * layer.routed // cut

    def context_bytes(self, layer: Layer) -> int:
        """Return the bytes of keys and values of a layer on one GPU, gathered from all parts of a
        sequence.
        """
        if self.context == 1:
            return 0
        return (
            self.model.parameter_bytes * self.micro_batch_samples * layer.key_values // self.tensor
        )

    def tensor_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes that these layers sum over the tensor group in the forward pass of one
        micro-batch; the backward pass sums as many."""
        if self.tensor == 1:
            return 0
        return sum(layer.tensor_reduces * self.activation_bytes(layer) for layer in layers)

    def local_s(
        self, layers: Sequence[Layer], gpus_per_host: int, *, backward: bool = False
    ) -> Fraction:
        """Return the seconds that these layers communicate inside a host in one pass of a
        micro-batch: rings of the tensor group, and of the context's and experts' groups that fit
        into the host."""

        def parts(size: int) -> Fraction:
            return Fraction(size - 1, size)

        again = 2 if backward and self.recompute == "full" else 1
        moved = again * 2 * parts(self.tensor) * self.tensor_bytes(layers)
        cut = self.tensor * self.context
        if cut <= gpus_per_host:
            moved += (again + backward) * parts(self.context) * sum(map(self.context_bytes, layers))
        if cut * self.expert <= gpus_per_host:
            moved += again * 2 * parts(self.expert) * sum(map(self.routed_bytes, layers))
        return moved / self.gpu.local_bytes_per_s

    def pass_s(self, layers: Sequence[Layer], gpus_per_host: int) -> tuple[Fraction, Fraction]:
        """Return the seconds of the forward and the backward pass of one micro-batch, as a host
        spends them.
        """
        backward_s = self.backward_s(layers) + self.local_s(layers, gpus_per_host, backward=True)
        return self.forward_s(layers) + self.local_s(layers, gpus_per_host), backward_s

    @property
    def state_bytes(self) -> Fraction:
        """Return the bytes of parameters, gradients and Adam's state on the fullest GPU."""

        def each(shards: int) -> Fraction:
            kept = zip(STATE_BYTES, (3, 2, 1), strict=True)
            return sum(
                (Fraction(size, shards if self.zero >= stage else 1) for size, stage in kept),
                Fraction(0),
            )

        replicas = self.data * self.context
        dense = each(replicas)
        experts = each(replicas // self.expert)
        return max(
            dense * self.dense(layers) + experts * self.routed_to(layers) for layers in self.stages
        )

    def summed_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of gradients of these layers on one GPU that data parallelism sums."""
        return self.summed_element_bytes * self.parameters(layers)

    @property
    def summed_element_bytes(self) -> int:
        """Return the bytes of an element of a gradient that is summed."""
        if self.zero >= 2 and self.pipeline == 1:
            return self.model.parameter_bytes
        return SUMMED_BYTES

    def gathered_bytes(self, layers: Sequence[Layer]) -> int:
        """Return the bytes of parameters of these layers on one GPU, as ZeRO gathers them."""
        return self.model.parameter_bytes * self.parameters(layers)


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes of one GPU's collectives and sends in an iteration, by operation and group: sizes
    of tensors, as they are handed to the library."""

    stage: int
    tensor_all_reduce: int
    """The bytes of an all-reduce; with sequence parallelism, those of a reduce-scatter and of an
    all-gather.
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
    stages = training.stages
    zero = training.zero
    many = training.micro_batches
    shares = training.data * training.context > 1
    times = many if zero >= 2 and training.pipeline == 1 else 1
    again = 3 if training.recompute == "full" else 2
    ends = [training.sent_bytes(layers[-1]) for layers in stages[:-1]]
    out = []
    for number, layers in enumerate(stages):
        summed = training.summed_bytes(layers)
        gathered = training.gathered_bytes(layers)
        sends = 0
        if ends:
            # Nothing leaves the last chunk of the last stage, or goes back from the first one of
            # the first.
            sends = (training.chunks - (number == len(ends))) * ends[min(number, len(ends) - 1)]
            sends += (training.chunks - (number == 0)) * ends[number - 1]
        context = many * sum(map(training.context_bytes, layers))
        out.append(
            Traffic(
                number,
                again * many * training.tensor_bytes(layers),
                many * sends,
                summed if shares and zero == 0 else 0,
                times * summed if shares and zero else 0,
                gathered * (2 * many if zero == 3 else 1) if shares and zero else 0,
                again * context,
                context,
                2 * again * many * sum(map(training.routed_bytes, layers)),
            )
        )
    return out


BUCKET_PARAMETERS = 40_000_000
"""Parameters in one sum of a mesh: `bucket_size` of Megatron-LM, which is a million for each
replica if that is more (megatron/core/distributed/distributed_data_parallel.py)."""
BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default (S. Li et al., PyTorch Distributed, VLDB
'20, section 3.2.3)."""
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
    of = find_model(model)
    unit = find_gpu(gpu)
    if zero not in get_args(Zero):
        raise DocumentError(
            "--zero", "", f"{zero} is not a stage of ZeRO (give 0, 1, 2 or 3)", code="not-allowed"
        )
    if recompute not in get_args(Recompute):
        reason = f"unknown way '{recompute}' ({suggestion(recompute, get_args(Recompute))})"
        raise DocumentError("--recompute", "", reason, code="unknown-name")
    if (part := unit.efficiency if efficiency is None else efficiency) is None:
        reason = (
            f"is missing: no measurement of the {unit.name} is known here (give the part of its"
            " peak, e.g. 70%)"
        )
        raise DocumentError("--efficiency", "", reason)
    if not 0 < part <= 1:
        raise DocumentError(
            "--efficiency", "", f"{part} is not above 0 and at most 1 (give a part of the peak)"
        )
    if name is None:
        title = re.sub(r"[^A-Za-z0-9_-]", "_", model)
    else:
        title = name
    if not _NAME.fullmatch(title):
        reason = f"'{title}' is not a name (up to 32 letters, digits, '-', '_'; a letter first)"
        raise DocumentError("--name", "", reason, code="not-a-name")
    degrees = _degrees(parallel, gpus)
    if global_batch is not None:
        if micro_batches is not None:
            raise DocumentError(
                "--micro-batches", "", "follow from --global-batch (give one of them)"
            )
        micro_batches, left_over = divmod(global_batch, degrees["dp"] * micro_batch_samples)
        if left_over or not micro_batches:
            reason = (
                f"{global_batch} is no multiple of dp={degrees['dp']} times --micro-batch-size"
                " (change one)"
            )
            raise DocumentError("--global-batch", "", reason)
    elif micro_batches is None:
        stages = degrees["pp"]
        # Interleaved stages take them in multiples of the stages.
        multiple = stages if choices.get("chunks", 1) > 1 else 1
        if stages == 1:
            micro_batches = 1
        else:
            micro_batches = -(-MICRO_BATCHES // multiple) * multiple
    training = Training(
        of,
        unit,
        data=degrees["dp"],
        tensor=degrees["tp"],
        pipeline=degrees["pp"],
        context=degrees["cp"],
        expert=degrees["ep"],
        micro_batches=micro_batches,
        micro_batch_samples=micro_batch_samples,
        zero=cast("Zero", zero),
        efficiency=part,
        recompute=cast("Recompute", recompute),
        **choices,
    )
    text = job_file(training, title, min(gpus_per_host, gpus), hosts)
    for warning in warnings(training):
        warn(warning)
    return text


def _degrees(parallel: str, gpus: int) -> dict[str, int]:
    degrees: dict[str, int] = {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
    given: set[str] = set()
    for part in filter(None, (part.strip() for part in parallel.split(","))):
        match = _DEGREE.fullmatch(part)
        if match is None or match[1] in given:
            reason = (
                f"'{part}' is not a degree of parallelism, or is given twice (write dp=8,tp=4,pp=2)"
            )
            raise DocumentError("--parallel", "", reason)
        given.add(match[1])
        degrees[match[1]] = int(match[2])
    others = degrees["tp"] * degrees["pp"] * degrees["cp"]
    data = degrees.setdefault("dp", max(1, gpus // others))
    if data * others != gpus:
        said = ", ".join(
            f"{key}={degrees[key]}"
            for key in ("dp", "tp", "pp", "cp")
            if key != "cp" or degrees[key] > 1
        )
        raise DocumentError(
            "--parallel", "", f"{said} are {data * others} GPUs, not {gpus} (correct one of them)"
        )
    return degrees


def warnings(training: Training) -> Iterator[str]:
    """Yield what no one trains like, in a sentence each."""
    stages = training.pipeline
    many = training.micro_batches
    if stages > 1 and many < stages * training.chunks:
        idle = Fraction(stages - 1, training.chunks * many + stages - 1)
        yield (
            f"{stages * training.chunks} stages with {many} micro-batch{'es' if many > 1 else ''}"
            f" leave GPUs idle for {float(idle):.0%} of the time (give a larger --global-batch)."
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
            f"--zero {training.zero} shards over replicas, of which there is one (give dp=2 or"
            " more)."
        )


def job_file(
    training: Training, name: str, gpus_per_host: int, hosts: Sequence[str] | None = None
) -> str:
    """Return the text of the job file, YAML with comments. `hosts` are h1, h2... if they are not
    given.

    Raises `DocumentError` for groups that do not fit `gpus_per_host` or `hosts`.

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
    lines = (
        line
        for text in _comments(training, gpus_per_host, count)
        for line in textwrap.wrap(text, _WIDTH)
    )
    comments = "".join(f"# {line}\n" for line in lines)
    head = f"job: {name}\nparallelism: {paradigm}\nworkers: [{', '.join(workers)}]\n"
    return comments + head + _text(paradigm, section)


def _hosts(training: Training, gpus_per_host: int) -> int:
    cut = training.tensor * training.context
    spans = [("cp", training.context, cut), ("ep", training.expert, cut * training.expert)]
    whole = gpus_per_host % training.tensor == 0 and cut * training.data % gpus_per_host == 0
    if not whole or any(size % gpus_per_host and gpus_per_host % size for _, _, size in spans):
        reason = (
            f"{gpus_per_host} a host do not hold whole groups of tp={training.tensor}, or do not"
            f" divide dp={training.data} (give a multiple of tp that divides tp x dp, and tp x cp"
            " or tp x cp x ep, or is one)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    between = [key for key, degree, size in spans if degree > 1 and size > gpus_per_host]
    if len(between) > 1:
        raise DocumentError(
            "--parallel", "ep", "and cp are both larger than a host (give a smaller one of them)"
        )
    hosts = training.gpus // gpus_per_host
    if hosts < 2:
        raise DocumentError(
            "--gpus", "", f"{training.gpus} are on one host, which needs no network (give more)"
        )
    return hosts


def _section(training: Training, gpus_per_host: int, hosts: int) -> tuple[str, dict[str, Any]]:
    per_stage = hosts // training.pipeline
    stages = training.stages

    def times(of: Sequence[tuple[Layer, ...]]) -> dict[str, list[str]]:
        both = [training.pass_s(each, gpus_per_host) for each in of]
        return {
            "forward": [_seconds(each) for each, _ in both],
            "backward": [_seconds(each) for _, each in both],
        }

    if training.zero >= 2 and training.pipeline == 1:
        return "fsdp", _sharded(training, times([(layer,) for layer in training.model.layers]))
    # Hosts that share the layers of a replica, or of several that share experts.
    cut = training.tensor * training.context
    shared = [-(-size // gpus_per_host) for size in (cut, cut * training.expert)]
    if shared[0] > 1 or training.expert > 1:
        group = max(shared)
    else:
        group = 1
    sums = {}
    if per_stage > 1:
        sums = {
            key: [size_text(size) for size in sizes]
            for key, sizes in _sums(training, group, shared[0] > 1)
        }
    plain = training.pipeline == training.micro_batches == group == 1 and training.zero == 0
    if plain and training.overlap:
        (gradient,) = sums["gradient"]
        buckets = min(-(-size_bytes(gradient) // BUCKET_BYTES), _MOST_BUCKETS)
        passes = {key: value for key, (value,) in times(stages).items()}
        return "data", {**passes, "buckets": buckets, "gradient": gradient}
    # A host sends what all of its ranks send. The boundary of a single stage is not there, but has
    # a size.
    ends = stages[:-1] or stages
    sent = [size_text(gpus_per_host * training.sent_bytes(layers[-1])) for layers in ends]
    section: dict[str, Any] = {
        "schedule": "interleaved" if training.chunks > 1 else "1f1b",
        "micro_batches": training.micro_batches,
        **times(stages),
        "activation": sent if training.pipeline > 1 else sent[0],
    }
    if training.chunks > 1:
        section["chunks"] = training.chunks
    elif per_stage == 1:
        return "pipeline", section
    order = ["pipeline", "data", "tensor"][: 3 if group > 1 else 2]
    mesh: dict[str, Any] = {
        "data": per_stage // group,
        "pipeline": training.pipeline,
        "order": order,
    }
    layers = -(-len(training.model.layers) // (training.pipeline * training.chunks))
    if group > 1:
        if shared[0] > 1:
            of = training.context_bytes
        else:
            of = training.routed_bytes
        each = training.tensor if shared[0] > 1 else gpus_per_host
        # Layers without an exchange, and stages with a layer less, count as a part of one.
        places = layers * training.pipeline * training.chunks
        exchanged = each * sum(map(of, training.model.layers)) // places
        if training.recompute == "full":
            # The backward pass repeats what the forward pass exchanges: one of three times, or of
            # two.
            if shared[0] > 1:
                exchanged = exchanged * 4 // 3
            else:
                exchanged = exchanged * 3 // 2
        exchange = {
            "exchange": "context" if shared[0] > 1 else "experts",
            "exchanged": size_text(exchanged),
        }
        mesh |= {"tensor": group, "layers": layers, **exchange}
    if training.overlap and sums:
        parameters = max(map(training.parameters, stages)) // training.chunks
        buckets = min(layers, -(-parameters // max(BUCKET_PARAMETERS, 10**6 * training.data)))
        mesh["buckets"] = max(n for n in range(1, buckets + 1) if group == 1 or layers % n == 0)
    return "mesh", {**mesh, **section, **sums}


def _sums(training: Training, group: int, context: bool) -> Iterator[tuple[str, list[int]]]:
    """Yield the sizes of a host's sums of gradients in each stage, and of the parameters that it
    gathers then, by key of a mesh. Of `group` hosts that share layers, each has all parameters of a
    context, and its part of the experts."""
    dense, experts = (
        [training.tensor * of(layers) for layers in training.stages]
        for of in (training.dense, training.routed_to)
    )
    if group == 1 or context:
        inside = training.expert
    else:
        inside = training.expert // group
    experts = [inside * size for size in experts]
    summed = training.summed_element_bytes
    gathered = training.model.parameter_bytes
    whole = [sum(sizes) for sizes in zip(dense, experts, strict=True)]
    if group == 1:
        replicas = whole
        every = []
    elif context:
        replicas = []
        every = whole
    else:
        replicas = experts
        every = dense
    if any(replicas):
        yield "gradient", [summed * size for size in replicas]
        if training.zero:
            yield "parameters", [gathered * size for size in replicas]
    if any(every):
        # A reduce-scatter and an all-gather send half as much as an all-reduce each.
        yield (
            "shared_gradient",
            [size * (summed + gathered) // 2 if training.zero else size * summed for size in every],
        )


def _sharded(training: Training, times: dict[str, list[str]]) -> dict[str, Any]:
    layers = training.model.layers

    def sizes(of: Callable[[Sequence[Layer]], int]) -> list[str]:
        return [size_text(training.tensor * of([layer])) for layer in layers]

    shape = {"zero": training.zero, "layers": len(layers), "micro_batches": training.micro_batches}
    return {
        **shape,
        **times,
        "parameters": sizes(training.gathered_bytes),
        "gradients": sizes(training.summed_bytes),
    }


def _comments(training: Training, gpus_per_host: int, hosts: int) -> Iterator[str]:
    model = training.model
    gpu = training.gpu
    yield f"{model.name}: {model.parameters:,} parameters ({model.source})."
    degrees = {"dp": training.data, "tp": training.tensor, "pp": training.pipeline}
    degrees |= {
        key: of for key, of in (("cp", training.context), ("ep", training.expert)) if of > 1
    }
    said = ", ".join(f"{key}={degree}" for key, degree in degrees.items())
    ways = [
        f"recomputation: {training.recompute}",
        *(["sequence parallelism"] if training.sequence_parallel else []),
        *([f"{training.chunks} chunks of each stage"] if training.chunks > 1 else []),
    ]
    where = f"{training.gpus} {gpu.name} on {hosts} hosts of {gpus_per_host}"
    yield f"{where}: {said}, ZeRO {training.zero}; {', '.join(ways)}."
    samples = training.data * training.micro_batches * training.micro_batch_samples
    yield (
        f"Micro-batches of an iteration: {training.micro_batches} for each replica. Samples of a"
        f" micro-batch: {training.micro_batch_samples}, each {model.sample}; of an iteration:"
        f" {samples}."
    )
    yield (
        f"Computing: {model.forward_flops / 1e12:.4g} TFLOP a sample forward, {BACKWARD} times that"
        f" backward, at {float(training.efficiency):.1%}"
        f" ({gpu.measured if training.efficiency == gpu.efficiency else 'given'}) of"
        f" {gpu.peak_flops / 1e12:g} TFLOP/s ({gpu.source}); memory at"
        f" {gpu.memory_bytes_per_s / 1e9:g} GB/s."
    )
    for warning in warnings(training):
        yield f"Warning: {warning}"
    for of, layers in zip(_traffic_lines(training), training.stages, strict=True):
        yield f"{layers[0].name} to {layers[-1].name}: {of}"


def _traffic_lines(training: Training) -> list[str]:
    """Return one line for each stage: the bytes of a GPU in an iteration, by operation."""
    lines = []
    for of in traffic(training):
        parts = [
            (of.tensor_all_reduce, "all-reduced in its tensor group (inside the host)"),
            (of.context_all_gather, "of keys and values all-gathered in its context's group"),
            (of.context_reduce_scatter, "of their gradients reduce-scattered"),
            (of.expert_all_to_all, "of tokens in all-to-alls of its experts' group"),
            (of.pipeline_send, "sent to other stages"),
            (of.data_all_reduce, "all-reduced over replicas"),
            (of.data_reduce_scatter, "reduce-scattered over replicas"),
            (of.data_all_gather, "all-gathered over replicas"),
        ]
        said = ", ".join(f"{size / 1e9:.4g} GB {what}" for size, what in parts if size)
        lines.append(f"{said or 'nothing sent'}, by each GPU in an iteration.")
    return lines


def _seconds(value: Fraction) -> str:
    """Return a duration as text, rounded to nanoseconds."""
    return duration_text(Fraction(round(value * 10**_DIGITS), 10**_DIGITS))


def _text(paradigm: str, section: dict[str, Any]) -> str:
    return yaml.safe_dump(
        {paradigm: section}, sort_keys=False, default_flow_style=None, width=_WIDTH
    )
