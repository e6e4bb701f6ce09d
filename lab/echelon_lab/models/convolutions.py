"""Convolutional networks on images of 224 x 224: layers one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from echelon_lab.models.layers import Layer


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
