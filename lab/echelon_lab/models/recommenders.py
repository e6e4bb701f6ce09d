"""Recommendation models as layers: tables of embeddings, and small layers behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from echelon_lab.models.layers import Layer, Tables


def dlrm(
    rows: Sequence[int],
    hotness: Sequence[int],
    width: int,
    features: int,
    bottom: Sequence[int],
    top: Sequence[int],
    *,
    cross_layers: int = 0,
    cross_rank: int = 0,
) -> Iterator[Layer]:
    """Yield the layers of a DLRM (M. Naumov et al., arXiv:1906.00091).

    A sample looks up `hotness` rows of each table, which has `rows` of `width` elements, and adds
    them up. `features` pass the layers at the `bottom`. Their output and that of each table are
    multiplied with each other, or pass `cross_layers` of `cross_rank` (DCN-v2; R. Wang et al.,
    arXiv:2008.13535, section 3.2), and then the layers at the `top`.
    """
    parameters = width * sum(rows)
    tables = Tables(
        parameters,
        indices=sum(hotness),
        looked_up=width * sum(hotness),
        pooled=width * len(rows),
    )
    yield Layer(
        "tables",
        parameters,
        forward_flops=tables.looked_up,
        output=tables.pooled,
        tables=tables,
    )
    yield _linear("bottom", [features, *bottom])

    vectors = len(rows) + 1
    joined = vectors * width
    if cross_layers:
        yield Layer(
            "cross",
            cross_layers * (2 * joined * cross_rank + joined),
            forward_flops=cross_layers * 4 * joined * cross_rank,
            output=joined,
        )
    else:
        pairs = vectors * (vectors - 1) // 2
        joined = pairs + width
        yield Layer(
            "interaction",
            0,
            forward_flops=2 * pairs * width,
            output=joined,
        )
    yield _linear("top", [joined, *top])


def _linear(name: str, sizes: Sequence[int]) -> Layer:
    """Return fully connected layers with biases, as one."""
    weights = sum(inputs * outputs for inputs, outputs in pairwise(sizes))
    return Layer(
        name,
        weights + sum(sizes[1:]),
        forward_flops=2 * weights,
        output=sizes[-1],
    )
