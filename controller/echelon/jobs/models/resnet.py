"""ResNet (K. He et al., arXiv:1512.03385, table 1): 1x1, 3x3, 1x1 bottlenecks, images of 224 x 224."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.models.convolution import convolution, joined, linear
from echelon.jobs.models.model import Layer, Model

_EXPANSION = 4


def _layers(blocks: tuple[int, ...]) -> Iterator[Layer]:
    yield joined("conv1", convolution("conv1", 3, 64, 7, 112, norm=64), output=64 * 56 * 56)  # pooled
    inputs = 64
    for group, count in enumerate(blocks):
        width, side = 64 << group, 56 >> group
        for number in range(count):
            # The first block of a group halves the side in its 3x3 convolution.
            before = side << 1 if number == 0 and group else side
            parts = [
                convolution("", inputs, width, 1, before, norm=width),
                convolution("", width, width, 3, side, norm=width),
                convolution("", width, width * _EXPANSION, 1, side, norm=width * _EXPANSION),
            ]
            if number == 0:
                shortcut = convolution("", inputs, width * _EXPANSION, 1, side, norm=width * _EXPANSION)
                parts.insert(0, shortcut)
            inputs = width * _EXPANSION
            yield joined(f"conv{group + 2}-{number + 1}", *parts)
    yield linear("fc", inputs, 1000)


def _resnet(name: str, blocks: tuple[int, ...]) -> Model:
    return Model(name, "K. He et al., arXiv:1512.03385, table 1", tuple(_layers(blocks)), "an image", 4)


MODELS = (
    _resnet("resnet-50", (3, 4, 6, 3)),
    _resnet("resnet-101", (3, 4, 23, 3)),
    _resnet("resnet-152", (3, 8, 36, 3)),
)
