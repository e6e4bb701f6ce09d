"""VGG (K. Simonyan and A. Zisserman, arXiv:1409.1556, table 1): 3x3 convolutions, images of 224 x 224."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.jobs.models.convolution import convolution, linear
from echelon.jobs.models.model import Layer, Model

_WIDTHS = (64, 128, 256, 512, 512)


def _layers(groups: tuple[int, ...]) -> Iterator[Layer]:
    inputs = 3
    for group, (count, width) in enumerate(zip(groups, _WIDTHS, strict=True)):
        for number in range(count):
            yield convolution(f"conv{group + 1}-{number + 1}", inputs, width, 3, 224 >> group, bias=True)
            inputs = width
    yield linear("fc6", inputs * 7 * 7, 4096)
    yield linear("fc7", 4096, 4096)
    yield linear("fc8", 4096, 1000)


def _vgg(name: str, groups: tuple[int, ...]) -> Model:
    return Model(name, "K. Simonyan and A. Zisserman, arXiv:1409.1556, table 1", tuple(_layers(groups)), "an image", 4)


MODELS = (_vgg("vgg-16", (2, 2, 3, 3, 3)), _vgg("vgg-19", (2, 2, 4, 4, 4)))
