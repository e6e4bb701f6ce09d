"""Mixtures of experts: Mixtral (A. Jiang et al., arXiv:2401.04088, table 1).

Layers are those of Llama, but each token passes 2 of 8 feed-forward layers. All experts are on every GPU of a
data-parallel group here: there is no expert parallelism, so no all-to-all.
"""

from __future__ import annotations

from echelon.jobs.models.llama import llama

MODELS = (
    llama(
        "mixtral-8x7b",
        "A. Jiang et al., arXiv:2401.04088, table 1",
        *(32, 4096, 32, 14336, 4096, 32000, 8),
        experts=8,
        active_experts=2,
    ),
    llama(
        "mixtral-8x22b",
        "Mistral AI, Mixtral-8x22B-v0.1, model card, 2024",
        *(56, 6144, 48, 16384, 4096, 32000, 8),
        experts=8,
        active_experts=2,
    ),
)
