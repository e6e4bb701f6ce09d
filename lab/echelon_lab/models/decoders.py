"""Decoders as layers: attention and feed-forward layers of several kinds in one model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from echelon_lab.models.attentions import attention_with
from echelon_lab.models.layers import Layer
from echelon_lab.models.products import Product, feed_forward_products


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The feed-forward part of a layer."""

    passed: int
    """Elements of matrices that each token is multiplied with, without those of experts."""
    shared: int
    """Those of them that a tensor group cuts."""
    vectors: int = 0
    expert: int = 0
    """Elements of an expert's matrices."""
    expert_vectors: int = 0
    count: int = 0
    """The number of experts."""
    active: int = 0
    """The number of experts that a token goes to."""
    groups: int = 1
    chosen_groups: int = 1
    products: tuple[Product, ...] = ()

    @property
    def experts(self) -> int:
        """Return the parameters of all experts."""
        return self.count * (self.expert + self.expert_vectors)

    @property
    def idle(self) -> int:
        """Return the parameters of the experts that a token does not go to."""
        return (self.count - self.active) * (self.expert + self.expert_vectors)


def gated(hidden: int, width: int) -> int:
    """Return the elements of a gated feed-forward layer (N. Shazeer, arXiv:2002.05202)."""
    return 3 * hidden * width


def dense(hidden: int, width: int, sequence: int) -> FeedForward:
    """Return a gated layer that all tokens pass."""
    products = feed_forward_products(sequence, hidden, width, is_gated=True)
    passed = gated(hidden, width)
    return FeedForward(passed, shared=passed, products=products)


def mixture(
    hidden: int,
    sequence: int,
    *,
    count: int,
    active: int,
    width: int,
    shared: int = 0,
    groups: int = 1,
    chosen_groups: int = 1,
    shared_gate: bool = False,
    biases: bool = False,
) -> FeedForward:
    """Return experts of `width`, of which each token goes to `active` of `count`.

    All tokens pass the router and an expert of `shared` width, which may have a gate (D. Dai et
    al., DeepSeekMoE, arXiv:2401.06066, section 3). The router first takes `chosen_groups` of the
    `groups` of experts. `biases` are those of router and experts.
    """
    passed = hidden * count + gated(hidden, shared)
    if shared_gate:
        passed += hidden
    products = feed_forward_products(
        sequence, hidden, width, is_gated=True, experts=count, active=active
    )
    if shared:
        products += feed_forward_products(sequence, hidden, shared, is_gated=True)
    vectors = 0
    expert_vectors = 0
    if biases:
        vectors = count
        expert_vectors = 2 * width + hidden
    return FeedForward(
        passed,
        gated(hidden, shared),
        vectors,
        expert=gated(hidden, width),
        expert_vectors=expert_vectors,
        count=count,
        active=active,
        groups=groups,
        chosen_groups=chosen_groups,
        products=products,
    )


def decoder(
    layers: int,
    hidden: int,
    vocabulary: int,
    sequence: int,
    *,
    attention: Mapping[str, object],
    between: Mapping[str, object] | None = None,
    every: int = 1,
    feed_forward: int = 0,
    experts: Mapping[str, Any] | None = None,
    dense_layers: int = 0,
    experts_every: int = 1,
    tied: bool = False,
) -> Iterator[Layer]:
    """Yield embedding, layers and output of a decoder, for samples of `sequence` tokens.

    Each `every`-th layer has `attention`, the others that `between` these. Behind the first
    `dense_layers`, each `experts_every`-th layer has `experts`, the others a gated layer of
    `feed_forward`. Norms have one weight for each element, and no matrix has a bias that its sizes
    do not name. Operations are 2 for each weight and token, and those of attention. A `tied` output
    layer shares the weights of the embedding.
    """
    s = sequence
    yield Layer(
        "embedding",
        vocabulary * hidden,
        forward_flops=0,
        output=s * hidden,
        tensor_reduces=1,
    )
    plain = dense(hidden, feed_forward, s)
    mixed = plain
    if experts is not None:
        mixed = mixture(hidden, s, **experts)
    for number in range(1, layers + 1):
        sizes = attention
        if number % every and between is not None:
            sizes = between
        part = plain
        if number > dense_layers and number % experts_every == 0:
            part = mixed
        yield _layer(number, hidden, s, sizes, part)

    head = hidden
    if not tied:
        head += vocabulary * hidden
    yield Layer(
        "output",
        head,
        uncut=hidden,
        forward_flops=2 * s * hidden * vocabulary,
        output=s,
        products=(Product(s, vocabulary, hidden, cut="columns"),),
    )


def _layer(
    number: int,
    hidden: int,
    sequence: int,
    sizes: Mapping[str, object],
    part: FeedForward,
) -> Layer:
    looks = attention_with(sequence, hidden, sizes)
    norms = 2 * hidden
    multiplied = looks.weights + part.passed + part.active * part.expert
    weights = looks.weights + part.passed + part.experts
    return Layer(
        f"layer{number}",
        parameters=weights + looks.vectors + part.vectors + norms,
        uncut=looks.uncut + part.passed - part.shared + part.vectors + norms,
        forward_flops=2 * sequence * multiplied + looks.flops,
        output=sequence * hidden,
        tensor_reduces=1 + bool(part.shared),
        attention_flops=looks.flops,
        causal=looks.causal,
        heads=looks.heads,
        scores=looks.scores,
        key_values=looks.key_values,
        key_value_heads=looks.key_value_heads,
        experts=part.experts,
        routed=part.active * sequence * hidden,
        expert_count=part.count,
        active=part.active,
        groups=part.groups,
        chosen_groups=part.chosen_groups,
        idle=part.idle,
        products=(*looks.products, *part.products),
    )
