"""Llama (H. Touvron et al., arXiv:2302.13971, table 2), Llama 2 (arXiv:2307.09288) and Llama 3 (arXiv:2407.21783).

Feed-forward layers are gated (SwiGLU): 2/3 of 4 h, rounded up to a multiple of 256, in the first two; no biases, norms
of one weight for each element, and an output layer of its own.
"""

from __future__ import annotations

from echelon.jobs.models.model import Model
from echelon.jobs.models.transformer import Transformer

_LLAMA = "H. Touvron et al., arXiv:2302.13971, table 2"
_LLAMA2 = "H. Touvron et al., arXiv:2307.09288"
_LLAMA3 = "A. Grattafiori et al., arXiv:2407.21783, table 3"


def llama(
    name: str,
    source: str,
    layers: int,
    hidden: int,
    heads: int,
    feed_forward: int,
    sequence: int = 2048,
    vocabulary: int = 32000,
    key_value_heads: int | None = None,
    experts: int = 1,
    active_experts: int = 1,
) -> Model:
    """Return a model with Llama's layers; `Transformer` explains the arguments."""
    return Transformer(
        name,
        source,
        layers,
        hidden,
        heads,
        feed_forward,
        vocabulary,
        sequence,
        key_value_heads,
        gated=True,
        biases=False,
        tied=False,
        experts=experts,
        active_experts=active_experts,
    ).model


MODELS = (
    llama("llama-7b", _LLAMA, 32, 4096, 32, 11008),
    llama("llama-13b", _LLAMA, 40, 5120, 40, 13824),
    llama("llama-33b", _LLAMA, 60, 6656, 52, 17920),
    llama("llama-65b", _LLAMA, 80, 8192, 64, 22016),
    llama("llama2-70b", _LLAMA2, 80, 8192, 64, 28672, 4096, key_value_heads=8),
    llama("llama3-8b", _LLAMA3, 32, 4096, 32, 14336, 8192, 128256, 8),
    llama("llama3-70b", _LLAMA3, 80, 8192, 64, 28672, 8192, 128256, 8),
    llama("llama3-405b", _LLAMA3, 126, 16384, 128, 53248, 8192, 128256, 8),
)
