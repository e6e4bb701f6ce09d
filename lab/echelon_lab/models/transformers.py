"""Transformers as layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from echelon_lab.models.attentions import grouped
from echelon_lab.models.layers import Layer
from echelon_lab.models.products import Product, feed_forward_products


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
    norm = h
    if biases:
        norm = 2 * h

    embedding = (v + positions) * h
    if segments:
        embedding += segments * h + 2 * h
    yield Layer(
        "embedding",
        embedding,
        forward_flops=0,
        output=s * h,
        tensor_reduces=1,
    )

    attention = grouped(
        s,
        h,
        heads=heads,
        head=h // heads,
        key_value_heads=key_value_heads or heads,
        biases=biases,
    )
    expert = (3 if gated else 2) * h * f
    expert_bias = 0
    if biases:
        expert_bias = f + h
    all_experts = experts * (expert + expert_bias)
    router = 0
    expert_sizes: dict[str, Any] = {}
    if experts > 1:
        router = h * experts
        expert_sizes = {
            "experts": all_experts,
            "routed": active_experts * s * h,
            "expert_count": experts,
            "idle": (experts - active_experts) * (expert + expert_bias),
        }
    weights_flops = 2 * s * (attention.weights + active_experts * expert + router)
    products = (
        *attention.products,
        *feed_forward_products(s, h, f, is_gated=gated, experts=experts, active=active_experts),
    )
    for number in range(1, layers + 1):
        yield Layer(
            f"layer{number}",
            parameters=attention.weights + attention.vectors + all_experts + router + 2 * norm,
            forward_flops=weights_flops + attention.flops,
            output=s * h,
            tensor_reduces=1 if experts > 1 else 2,
            attention_flops=attention.flops,
            causal=causal,
            heads=heads,
            scores=attention.scores,
            key_values=attention.key_values,
            key_value_heads=attention.key_value_heads,
            active=active_experts,
            products=products,
            **expert_sizes,
        )

    head = 0
    if not tied:
        head += v * h
    if final_norm:
        head += norm
    if pooler:
        head += h * h + h
    yield Layer(
        "output",
        head,
        forward_flops=2 * s * h * v,
        output=s,
        products=(Product(s, v, h, cut="columns"),),
    )
