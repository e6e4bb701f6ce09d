"""Models by name, and the jobs that train them.

`models.yaml` has their sizes, as published. `Model` makes layers of them, `traffic` says what GPUs compute and send to
train one, and `new_job_file` writes that as a job file.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from echelon.documents import DocumentError, suggestion
from echelon.quantities import duration_text, size_text


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a model that is not cut by a pipeline. Operations and outputs are those of one sample."""

    name: str
    parameters: int
    forward_flops: int
    """Floating-point operations of the forward pass; a multiplication with an addition is two. The backward pass has
    twice as many (J. Kaplan et al., arXiv:2001.08361, section 2.1)."""
    output: int
    """Elements that the next layer needs."""
    tensor_reduces: int = 0
    """All-reduces of the layer's output in the forward pass, and again in the backward pass, if tensor parallelism cuts
    the layer (Megatron-LM, M. Shoeybi et al., arXiv:1909.08053, section 3)."""
    attention_flops: int = 0
    """The part of `forward_flops` that is for scores and values of attention."""
    causal: bool = False
    """Whether a token sees only those before it: FlashAttention then leaves out half of `attention_flops`."""
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
            raise ValueError(f"{self.name} has {len(self.layers)} layers, which do not make {count} stages")
        total, done = self.forward_flops, 0
        stages: list[tuple[Layer, ...]] = []
        stage: list[Layer] = []
        for at, layer in enumerate(self.layers):
            stage.append(layer)
            done += layer.forward_flops
            layers_left, stages_left = len(self.layers) - at - 1, count - len(stages) - 1
            # A stage ends where the next layer would bring it further from its part of the operations.
            following = self.layers[at + 1].forward_flops if layers_left else 0
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

    Per layer and sequence of s tokens, with hidden size h, k of it for keys and values (fewer heads of them: grouped
    queries), f in each of `matrices` - 1 projections up and one down (4 h unless given; two up if `gated`, SwiGLU), the
    operations are 2 s (2 h^2 + 2 h k + matrices h f) for the weights and 4 s^2 h for attention scores and values; the
    output layer needs 2 s h V (Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
    Megatron-LM, SC '21, appendix; theirs are 4 times as many, with the backward pass and recomputation). Embedding, of
    tokens, learned `positions` and `segments` with a norm, is a look-up. `biases` are those of projections and norms. A
    `tied` output layer shares the weights of the embedding. Each token passes `active_experts` of `experts`
    feed-forward layers, which have a router if they are several.
    """
    h, s, v, f = hidden, sequence, vocabulary, feed_forward or 4 * hidden
    norm = 2 * h if biases else h
    segment_parameters = segments * h + 2 * h if segments else 0
    yield Layer("embedding", (v + positions) * h + segment_parameters, 0, s * h, 1)
    kv = h // heads * (key_value_heads or heads)
    attention, expert = 2 * h * h + 2 * h * kv, (3 if gated else 2) * h * f
    bias = 2 * h + 2 * kv + experts * (f + h) if biases else 0
    router = h * experts if experts > 1 else 0
    parameters = attention + experts * expert + router + bias + 2 * norm
    scores_flops = 4 * s * s * h
    flops = 2 * s * (attention + active_experts * expert + router) + scores_flops
    moe = (experts * (expert + (f + h if biases else 0)), active_experts * s * h) if experts > 1 else (0, 0)
    for number in range(1, layers + 1):
        yield Layer(
            f"layer{number}", parameters, flops, s * h, 2, scores_flops, causal, heads * s * s, 2 * s * kv, *moe
        )
    head = h * h + h if pooler else 0
    yield Layer("output", (0 if tied else v * h) + (norm if final_norm else 0) + head, 2 * s * h * v, s, 0)


# Convolutional networks on images of 224 x 224: layers one after another.


def _convolution(
    name: str, inputs: int, outputs: int, kernel: int, side: int, *, bias: bool = False, norm: int = 0
) -> Layer:
    """Return a convolution with `outputs` maps of `side` x `side`; `norm` maps are normalised with two weights each."""
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
    yield _joined("conv1", _convolution("conv1", 3, 64, 7, 112, norm=64), output=64 * 56 * 56)  # pooled
    inputs, expansion = 64, 4
    for group, count in enumerate(blocks):
        width, side = 64 << group, 56 >> group
        for number in range(count):
            # The first block of a group halves the side in its 3x3 convolution.
            before = side << 1 if number == 0 and group else side
            parts = [
                _convolution("", inputs, width, 1, before, norm=width),
                _convolution("", width, width, 3, side, norm=width),
                _convolution("", width, width * expansion, 1, side, norm=width * expansion),
            ]
            if number == 0:
                shortcut = _convolution("", inputs, width * expansion, 1, side, norm=width * expansion)
                parts.insert(0, shortcut)
            inputs = width * expansion
            yield _joined(f"conv{group + 2}-{number + 1}", *parts)
    yield _linear("fc", inputs, 1000)


def vgg(groups: Sequence[int]) -> Iterator[Layer]:
    """Yield 3x3 convolutions."""
    inputs = 3
    for group, (count, width) in enumerate(zip(groups, (64, 128, 256, 512, 512), strict=True)):
        for number in range(count):
            yield _convolution(f"conv{group + 1}-{number + 1}", inputs, width, 3, 224 >> group, bias=True)
            inputs = width
    yield _linear("fc6", inputs * 7 * 7, 4096)
    yield _linear("fc7", 4096, 4096)
    yield _linear("fc8", 4096, 1000)


def densenet(blocks: Sequence[int], growth: int, first: int) -> Iterator[Layer]:
    """Yield layers each of which sees all maps before it."""
    yield _joined("conv0", _convolution("", 3, first, 7, 112, norm=first), output=first * 56 * 56)  # pooled
    maps, side = first, 56
    for block, count in enumerate(blocks):
        for number in range(count):
            narrow = _convolution("", maps, 4 * growth, 1, side, norm=maps)
            wide = _convolution("", 4 * growth, growth, 3, side, norm=4 * growth)
            maps += growth
            yield _joined(f"dense{block + 1}-{number + 1}", narrow, wide, output=maps * side * side)
        if block < len(blocks) - 1:
            transition = _convolution("", maps, maps // 2, 1, side, norm=maps)
            maps, side = maps // 2, side // 2
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
    families: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for family in families:
        for name, own in family["models"].items():
            sizes = {**family.get("all", {}), **own}
            layers = tuple(_KINDS[family["kind"]](**sizes))
            text = "sequence" in sizes
            sample = f"a sequence of {sizes['sequence']} tokens" if text else "an image"
            yield Model(name, family["source"], layers, sample, 2 if text else 4)


MODELS: Mapping[str, Model] = {model.name: model for model in _models()}
"""All models by name, family by family."""


def find_model(name: str) -> Model:
    """Return the model of that name. Raises `DocumentError`."""
    if name not in MODELS:
        raise DocumentError("MODEL", "", f"unknown model '{name}' ({suggestion(name, MODELS)})", code="unknown-name")
    return MODELS[name]


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
    """A model, the GPUs, and how they share the work.

    The layout is Megatron-LM's (Narayanan et al., SC '21, section 2): consecutive ranks form a group of tensor
    parallelism, these are repeated for data parallelism, and all that for each stage of the pipeline.

    * **Tensor parallelism** cuts each layer. A layer sums its output over the group `Layer.tensor_reduces` times in the
      forward pass and as often in the backward pass (M. Shoeybi et al., arXiv:1909.08053, section 3).
    * **A pipeline** sends the output of a stage for each micro-batch, whole from each rank of the tensor group, and its
      gradient back.
    * **Data parallelism** sums gradients once in an iteration. With ZeRO stage 1 (S. Rajbhandari et al.,
      arXiv:1910.02054) it is a reduce-scatter of gradients and an all-gather of parameters; with stage 3, each layer's
      parameters are gathered before the forward and before the backward pass, and its gradients are scattered.
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


BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one all-reduce: PyTorch's default (S. Li et al., PyTorch Distributed, VLDB '20, section
3.2.3)."""
_MOST_BUCKETS = 1000
_WIDTH = 110
_DIGITS = 9
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


def job_file(training: Training, name: str, gpus_per_host: int, hosts: Sequence[str] | None = None) -> str:
    """Return the text of the job file, YAML with comments. `hosts` are h1, h2... if they are not given.

    Raises `DocumentError` for groups that do not fit `gpus_per_host` or `hosts`.

    The file describes hosts, since the network sees nothing else: `GPUs per host` consecutive ranks are one worker.
    Inside a host, tensor parallelism takes the time of a ring over NVLink, which is added to the computing; its
    data-parallel sums are left out. Between hosts there are the sends of the pipeline and the collectives of data
    parallelism, with the bytes that all GPUs of a host send together. With ZeRO stage 1, gradients are summed by an
    all-reduce of as many bytes as the reduce-scatter and the all-gather send.
    """
    count = _hosts(training, gpus_per_host)
    workers = list(hosts) if hosts is not None else [f"h{number}" for number in range(1, count + 1)]
    if len(workers) != count:
        reason = f"{len(workers)} hosts are given, but {training.gpus} GPUs at {gpus_per_host} a host need {count}"
        raise DocumentError("--hosts", "", reason, code="wrong-length")
    paradigm, section = _section(training, gpus_per_host, count)
    lines = (line for text in _comments(training, gpus_per_host, count) for line in textwrap.wrap(text, _WIDTH))
    comments = "".join(f"# {line}\n" for line in lines)
    head = f"job: {name}\nparallelism: {paradigm}\nworkers: [{', '.join(workers)}]\n"
    return comments + head + _text(paradigm, section)


def _hosts(training: Training, gpus_per_host: int) -> int:
    replicas = gpus_per_host // training.tensor
    if training.tensor > gpus_per_host or gpus_per_host % training.tensor or training.data % replicas:
        reason = (
            f"{gpus_per_host} a host do not hold whole groups of tp={training.tensor}, or do not divide "
            f"dp={training.data} (give a multiple of tp that divides tp x dp)"
        )
        raise DocumentError("--gpus-per-host", "", reason)
    hosts = training.gpus // gpus_per_host
    if hosts < 2:
        raise DocumentError("--gpus", "", f"{training.gpus} are on one host, which needs no network (give more)")
    return hosts


def _section(training: Training, gpus_per_host: int, hosts: int) -> tuple[str, dict[str, Any]]:
    per_stage = hosts // training.pipeline
    if training.zero == 3:
        return "fsdp", _sharded(training)
    if training.pipeline == 1 and training.zero == 0 and training.micro_batches == 1:
        layers = training.model.layers
        forward_s = training.forward_s(layers) + training.tensor_s(layers)
        # The ranks of a tensor group have one part of the gradients each, and the host sends them all.
        gradient = training.summed_bytes(layers) * training.tensor
        buckets = min(-(-gradient // BUCKET_BYTES), _MOST_BUCKETS)
        backward_s = BACKWARD * training.forward_s(layers) + training.tensor_s(layers)
        times = {"forward": _seconds(forward_s), "backward": _seconds(backward_s)}
        return "data", {**times, "buckets": buckets, "gradient": size_text(gradient)}
    stages = training.stages
    # A host sends what all of its ranks send. The boundary of a single stage is not there, but has a size.
    ends = stages[:-1] or stages
    sent = [gpus_per_host * training.activation_bytes(layers[-1]) for layers in ends]
    section: dict[str, Any] = {
        "schedule": "1f1b",
        "micro_batches": training.micro_batches,
        "forward": [_seconds(training.forward_s(of) + training.tensor_s(of)) for of in stages],
        "backward": [_seconds(BACKWARD * training.forward_s(of) + training.tensor_s(of)) for of in stages],
        "activation": [size_text(size) for size in sent] if training.pipeline > 1 else size_text(sent[0]),
    }
    if per_stage == 1:
        return "pipeline", section
    gradients = [training.tensor * _as_all_reduce(training, layers) for layers in stages]
    mesh = {"data": per_stage, "pipeline": training.pipeline, "order": ["pipeline", "data"]}
    return "mesh", {**mesh, **section, "gradient": [size_text(size) for size in gradients]}


def _as_all_reduce(training: Training, layers: Sequence[Layer]) -> int:
    """Return the bytes of an all-reduce that sends as much as the sums of gradients do.

    A reduce-scatter and an all-gather send half as much as an all-reduce each.
    """
    summed = training.summed_bytes(layers)
    return summed if training.zero == 0 else (summed + training.gathered_bytes(layers)) // 2


def _sharded(training: Training) -> dict[str, Any]:
    layers = training.model.layers
    return {
        "layers": len(layers),
        "forward": [_seconds(training.forward_s([layer])) for layer in layers],
        "backward": [_seconds(BACKWARD * training.forward_s([layer])) for layer in layers],
        "parameters": [size_text(training.gathered_bytes([layer])) for layer in layers],
        "gradients": [size_text(training.summed_bytes([layer])) for layer in layers],
    }


def _comments(training: Training, gpus_per_host: int, hosts: int) -> Iterator[str]:
    model, gpu = training.model, training.gpu
    yield f"{model.name}: {model.parameters:,} parameters ({model.source})."
    yield (
        f"{training.gpus} {gpu.name} on {hosts} hosts of {gpus_per_host}: dp={training.data}, tp={training.tensor}, "
        f"pp={training.pipeline}, ZeRO {training.zero}."
    )
    yield (
        f"Micro-batches of an iteration: {training.micro_batches} for each replica. Samples of a micro-batch: "
        f"{training.micro_batch_samples}, each {model.sample}."
    )
    yield (
        f"Computing: {model.forward_flops / 1e12:.4g} TFLOP a sample forward, {BACKWARD} times that backward, at "
        f"{float(training.efficiency):.0%} of {gpu.peak_flops / 1e12:g} TFLOP/s "
        f"({gpu.source})."
    )
    for of, layers in zip(_traffic_lines(training), training.stages, strict=True):
        yield f"{layers[0].name} to {layers[-1].name}: {of}"


def _traffic_lines(training: Training) -> list[str]:
    """Return one line for each stage: the bytes of a GPU in an iteration, by operation."""
    lines = []
    for of in traffic(training):
        parts = [
            (of.tensor_all_reduce, "all-reduced in its tensor group (inside the host)"),
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
    return yaml.safe_dump({paradigm: section}, sort_keys=False, default_flow_style=None, width=_WIDTH)
