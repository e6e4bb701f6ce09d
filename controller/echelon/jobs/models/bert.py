"""BERT (J. Devlin et al., arXiv:1810.04805, section 3): encoder and pooler, without the heads of pre-training."""

from __future__ import annotations

from echelon.jobs.models.model import Model
from echelon.jobs.models.transformer import Transformer

_SOURCE = "J. Devlin et al., arXiv:1810.04805, section 3"
_TYPES = 2
_POSITIONS = 512


def _bert(name: str, layers: int, hidden: int, heads: int) -> Model:
    embedding = _TYPES * hidden + 2 * hidden  # of segments, and a norm behind the embedding
    pooler = hidden * hidden + hidden
    return Transformer(
        name,
        _SOURCE,
        layers,
        hidden,
        heads,
        4 * hidden,
        30522,
        _POSITIONS,
        positions=_POSITIONS,
        final_norm=False,
        extra_parameters=embedding,
        head_parameters=pooler,
    ).model


MODELS = (_bert("bert-base", 12, 768, 12), _bert("bert-large", 24, 1024, 16))
