"""Models by name: `models.yaml` has their sizes, as published, and this module makes layers of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from echelon.documents import DocumentError, suggestion


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
    flops = 2 * s * (attention + active_experts * expert + router) + 4 * s * s * h
    for number in range(1, layers + 1):
        yield Layer(f"layer{number}", parameters, flops, s * h, 2)
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
