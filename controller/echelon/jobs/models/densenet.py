"""DenseNet (G. Huang et al., arXiv:1608.06993, table 1): every layer sees all maps before it; images of 224 x 224."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.models.convolution import convolution, joined, linear
from echelon.jobs.models.model import Layer, Model


def _layers(blocks: tuple[int, ...], growth: int, first: int) -> Iterator[Layer]:
    yield joined("conv0", convolution("", 3, first, 7, 112, norm=first), output=first * 56 * 56)  # pooled
    maps, side = first, 56
    for block, count in enumerate(blocks):
        for number in range(count):
            narrow = convolution("", maps, 4 * growth, 1, side, norm=maps)
            wide = convolution("", 4 * growth, growth, 3, side, norm=4 * growth)
            maps += growth
            yield joined(f"dense{block + 1}-{number + 1}", narrow, wide, output=maps * side * side)
        if block < len(blocks) - 1:
            transition = convolution("", maps, maps // 2, 1, side, norm=maps)
            maps, side = maps // 2, side // 2
            yield joined(f"transition{block + 1}", transition, output=maps * side * side)
    last = linear("fc", maps, 1000)
    yield Layer("fc", last.parameters + 2 * maps, last.forward_flops, last.output)


def _densenet(name: str, blocks: tuple[int, ...], growth: int, first: int) -> Model:
    layers = tuple(_layers(blocks, growth, first))
    return Model(name, "G. Huang et al., arXiv:1608.06993, table 1", layers, "an image", 4)


MODELS = (_densenet("densenet-121", (6, 12, 24, 16), 32, 64), _densenet("densenet-161", (6, 12, 36, 24), 48, 96))
