"""Attention in the layers of decoders: its weights, operations, and what a context exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from echelon_lab.models.products import Product


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer. Operations and elements are those of one sequence."""

    weights: int
    """Elements of its matrices, which each token is multiplied with."""
    vectors: int
    """Elements of biases, norms and the like."""
    uncut: int
    """The weights and vectors that each rank of a tensor group has."""
    flops: int
    """Operations of scores and values, twice those of the pairs of tokens that are seen.

    Without FlashAttention, all pairs of a sequence are computed; with it, half of these operations
    (`Layer.attention_flops`).
    """
    heads: int
    scores: int
    """The elements of the scores of all heads, for the same pairs as `flops`."""
    key_values: int
    """The elements of keys and values; 0 for a layer that keeps a state instead."""
    key_value_heads: int
    products: tuple[Product, ...]
    causal: bool = True
    """Whether half of `flops` is left out where only what is seen is computed."""


def grouped(
    sequence: int,
    hidden: int,
    *,
    heads: int,
    head: int,
    key_value_heads: int,
    window: int | None = None,
    chunk: int | None = None,
    biases: bool = False,
    input_biases: bool = False,
    head_norms: bool = False,
    sinks: bool = False,
    gate: bool = False,
) -> Attention:
    """Return attention with `key_value_heads` for keys and values (J. Ainslie, arXiv:2305.13245).

    Heads have `head` elements, however large `hidden` is. A token sees the `window` before it, or
    its `chunk` of the sequence. `input_biases` are those of queries, keys and values alone (Qwen2),
    `biases` those of the output, too. `head_norms` are those of queries and keys (Qwen3). `sinks`
    are a score for each head that belongs to no token (gpt-oss). A `gate` for each element of the
    output is computed with the queries (Qwen3-Next).
    """
    queries = heads * head
    keys = key_value_heads * head
    projected = queries + 2 * keys
    if gate:
        projected += queries

    vectors = uncut = 0
    if biases:
        vectors += projected + hidden
        uncut += hidden
    if input_biases:
        vectors += projected
    if head_norms:
        vectors += 2 * head
        uncut += 2 * head
    if sinks:
        vectors += heads
    pairs = _doubled_pairs(sequence, window, chunk)
    return Attention(
        weights=hidden * (projected + queries),
        vectors=vectors,
        uncut=uncut,
        flops=4 * queries * pairs,
        heads=heads,
        scores=heads * pairs,
        key_values=2 * sequence * keys,
        key_value_heads=key_value_heads,
        products=(
            Product(sequence, projected, hidden, cut="columns"),
            *_head_products(sequence, pairs, heads, head, head),
            Product(sequence, hidden, queries, cut="inner"),
        ),
    )


def latent(
    sequence: int,
    hidden: int,
    *,
    heads: int,
    query_rank: int,
    key_value_rank: int,
    head: int,
    rotary: int,
    value: int,
) -> Attention:
    """Return multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Queries, and keys with values, come from vectors of a lower rank. In training keys and values
    are computed for all heads, of `head` and `rotary` elements and of `value`: that is what a
    context exchanges.
    """
    key = head + rotary
    to_latent = hidden * (query_rank + key_value_rank + rotary)
    from_latent = query_rank * heads * key + key_value_rank * heads * (head + value)
    pairs = sequence * sequence
    return Attention(
        weights=to_latent + from_latent + heads * value * hidden,
        vectors=query_rank + key_value_rank,
        uncut=to_latent + query_rank + key_value_rank,
        flops=2 * pairs * heads * (key + value),
        heads=heads,
        scores=heads * pairs,
        key_values=sequence * heads * (key + value),
        key_value_heads=heads,
        products=(
            Product(sequence, query_rank, hidden),
            Product(sequence, key_value_rank + rotary, hidden),
            Product(sequence, heads * key, query_rank, cut="columns"),
            Product(sequence, heads * (head + value), key_value_rank, cut="columns"),
            *_head_products(sequence, pairs, heads, key, value),
            Product(sequence, hidden, heads * value, cut="inner"),
        ),
    )


DELTA_CHUNK = 64
"""Tokens whose scores the chunked form computes at once (S. Yang, arXiv:2406.06484, section 3)."""


def delta(
    sequence: int,
    hidden: int,
    *,
    key_heads: int,
    value_heads: int,
    head: int,
    convolution: int,
) -> Attention:
    """Return a gated delta rule, linear in the sequence (S. Yang et al., arXiv:2412.06464).

    Each value head has a state of `head` x `head`. A token multiplies it with its key, adds an
    outer product to it, and multiplies it with its query: three products of 2 `head`^2 operations
    (equation 10 there).
    """
    keys = key_heads * head
    values = value_heads * head
    # Queries and keys, values and their gate, and two numbers for each head: decay and rate.
    projected = 2 * keys + 2 * values + 2 * value_heads
    convolved = convolution * (2 * keys + values)
    return Attention(
        weights=hidden * projected + values * hidden,
        vectors=convolved + 2 * value_heads + head,
        uncut=head,
        flops=6 * sequence * values * head,
        heads=key_heads,
        scores=value_heads * sequence * DELTA_CHUNK,
        key_values=0,
        key_value_heads=0,
        products=(
            Product(sequence, projected, hidden, cut="columns"),
            Product(sequence, hidden, values, cut="inner"),
        ),
        causal=False,
    )


def _head_products(
    sequence: int,
    pairs: int,
    heads: int,
    key: int,
    value: int,
) -> tuple[Product, Product]:
    """Return the products of scores and values, for `pairs` of tokens."""
    seen = pairs // sequence
    return (
        Product(sequence, seen, key, batch=heads, cut="batch"),
        Product(sequence, value, seen, batch=heads, cut="batch"),
    )


def _doubled_pairs(sequence: int, window: int | None, chunk: int | None) -> int:
    """Return twice the pairs of tokens of which the second sees the first."""
    if chunk is not None:
        return sequence * min(sequence, chunk)
    if window is None or window >= sequence:
        return sequence * sequence
    # The first tokens of a sequence see less than the window.
    return 2 * sequence * window - window * window


_KINDS: Mapping[str, Callable[..., Attention]] = {
    "grouped": grouped,
    "latent": latent,
    "delta": delta,
}


def attention_with(sequence: int, hidden: int, sizes: Mapping[str, object]) -> Attention:
    """Return the attention of those sizes; their `kind` is grouped unless given."""
    named = dict(sizes)
    kind = str(named.pop("kind", "grouped"))
    return _KINDS[kind](sequence, hidden, **named)
