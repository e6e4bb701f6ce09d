"""Convolutional networks on square images: layers one after another."""

from __future__ import annotations

from echelon.jobs.models.model import Layer


def convolution(
    name: str, inputs: int, outputs: int, kernel: int, side: int, *, bias: bool = False, norm: int = 0
) -> Layer:
    """Return a convolution with `outputs` maps of `side` x `side`; `norm` maps are normalised with two weights each."""
    weights = inputs * outputs * kernel * kernel
    parameters = weights + (outputs if bias else 0) + 2 * norm
    return Layer(name, parameters, 2 * weights * side * side, outputs * side * side)


def linear(name: str, inputs: int, outputs: int) -> Layer:
    """Return a fully connected layer with biases."""
    return Layer(name, inputs * outputs + outputs, 2 * inputs * outputs, outputs)


def joined(name: str, *layers: Layer, output: int | None = None) -> Layer:
    """Return several layers as one that a pipeline does not cut."""
    return Layer(
        name,
        sum(layer.parameters for layer in layers),
        sum(layer.forward_flops for layer in layers),
        layers[-1].output if output is None else output,
    )
