"""Mixtures of experts: Mixtral (A. Jiang et al., arXiv:2401.04088, table 1).

Each token passes 2 of 8 gated feed-forward layers. All experts are on every GPU of a data-parallel group here: there
is no expert parallelism, so no all-to-all.
"""

from __future__ import annotations

from echelon.jobs.models.model import Model
from echelon.jobs.models.transformer import Transformer


def _mixtral(name: str, source: str, layers: int, hidden: int, heads: int, feed_forward: int, vocabulary: int) -> Model:
    return Transformer(
        name,
        source,
        layers,
        hidden,
        heads,
        feed_forward,
        vocabulary,
        4096,
        8,
        gated=True,
        biases=False,
        tied=False,
        experts=8,
        active_experts=2,
    ).model


MODELS = (
    _mixtral("mixtral-8x7b", "A. Jiang et al., arXiv:2401.04088, table 1", 32, 4096, 32, 14336, 32000),
    _mixtral("mixtral-8x22b", "Mistral AI, Mixtral-8x22B-v0.1, model card, 2024", 56, 6144, 48, 16384, 32000),
)
