"""What a GPU computes in the passes of a micro-batch, alone.

Products of matrices run in whole waves of tiles (`products`), at the part of the peak that large
ones were measured to reach (`Training.efficiency`). What a layer keeps for the backward pass is
written to memory once, and read once. Each kernel adds a constant (`launches.KERNEL_S`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon_lab.models.execution import execution
from echelon_lab.models.launches import BACKWARD_KERNELS, FORWARD_KERNELS, KERNEL_S
from echelon_lab.models.layers import Layer
from echelon_lab.models.products import Product
from echelon_lab.models.training import Training

BACKWARD = 2
"""Operations of the backward pass for each of the forward pass.

J. Kaplan et al., arXiv:2001.08361, section 2.1.
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What a GPU does in a pass."""

    flops: Fraction
    """Operations as they are executed, with those that tiles and waves waste."""
    moved_bytes: int
    kernels: int = 0

    def seconds(self, training: Training) -> Fraction:
        """Return how long that takes on a GPU of this training."""
        gpu = training.gpu
        computed_s = self.flops / (gpu.peak_flops * training.efficiency)
        moved_s = Fraction(self.moved_bytes, gpu.memory_bytes_per_s)
        return computed_s + moved_s + self.kernels * KERNEL_S


def forward_s(training: Training, layers: Sequence[Layer]) -> Fraction:
    """Return the seconds of a micro-batch's forward pass through these layers."""
    total = Fraction(0)
    for layer in layers:
        work = _forward(training, layer)
        total += work.seconds(training)
    return total


def backward_s(training: Training, layers: Sequence[Layer]) -> Fraction:
    """Return the seconds of the backward pass likewise, with what it recomputes."""
    total = Fraction(0)
    for layer in layers:
        work = _backward(training, layer)
        repeated = _recomputed(training, layer)
        total += work.seconds(training)
        total += repeated.seconds(training)
    return total


def _forward(training: Training, layer: Layer) -> Work:
    products = _products(training, layer)
    flops = _executed(training, products)
    flops += _other_flops(training, layer)
    kernels = FORWARD_KERNELS if layer.scores else 0
    return Work(flops, _kept_bytes(training, layer), kernels)


def _backward(training: Training, layer: Layer) -> Work:
    gradients: list[Product] = []
    for product in _products(training, layer):
        gradients += product.gradients()
    flops = _executed(training, gradients)
    flops += BACKWARD * _other_flops(training, layer)
    # Kernels were counted of transformers only.
    kernels = BACKWARD_KERNELS if layer.scores else 0
    moved_bytes = BACKWARD * _kept_bytes(training, layer)
    return Work(flops, moved_bytes, kernels)


def _recomputed(training: Training, layer: Layer) -> Work:
    if training.recompute == "full":
        return _forward(training, layer)
    if training.recompute == "none" or training.flash:
        return Work(Fraction(0), 0)
    # Selective: the scores of attention, without their kernels.
    attention = []
    for product in _products(training, layer):
        if product.is_attention:
            attention.append(product)
    flops = _executed(training, attention)
    if not attention:
        flops = _shared_flops(training, layer.attention_flops)
    return Work(flops, 2 * training.score_bytes(layer))


def _products(training: Training, layer: Layer) -> list[Product]:
    """Return the products of a layer on one GPU. FlashAttention has none of its own."""
    samples = training.micro_batch_samples
    products = []
    for product in layer.products:
        if training.flash and product.is_attention:
            continue
        tensor = training.tensor
        context = training.context
        if product.is_expert and training.folded:
            # A tensor group divides the tokens for whole experts, and no matrix.
            context *= tensor
            tensor = 1
        shared = product.on_gpu(samples, tensor, context, training.expert)
        products.append(shared)
    return products


def _executed(training: Training, products: Sequence[Product]) -> Fraction:
    """Return the operations that a GPU executes for its products."""
    multiprocessors = execution(training.gpu).multiprocessors
    total = Fraction(0)
    for product in products:
        total += product.executed_flops(multiprocessors)
    return total


def _other_flops(training: Training, layer: Layer) -> Fraction:
    """Return the operations of a layer on one GPU that are in no product."""
    flops = layer.forward_flops
    for product in layer.products:
        # FlashAttention computes what the products of attention do.
        if not (training.flash and product.is_attention):
            flops -= product.flops
    if training.flash and layer.causal:
        flops -= layer.attention_flops // 2
    # Rows of experts are rounded up, so that products may have a little more.
    return _shared_flops(training, max(0, flops))


def _shared_flops(training: Training, flops: int) -> Fraction:
    """Return what one GPU has of the operations of a sample, for a micro-batch."""
    cut = training.tensor * training.context
    return Fraction(training.micro_batch_samples * flops, cut)


def _kept_bytes(training: Training, layer: Layer) -> int:
    """Return the bytes that are written and read of what a layer keeps."""
    return 2 * training.kept_bytes(layer)
