"""GPT-2 and GPT-3 (A. Radford et al., 2019; T. Brown et al., arXiv:2005.14165, table 2.1)."""

from __future__ import annotations

from echelon.jobs.models.model import Model
from echelon.jobs.models.transformer import Transformer

_GPT2 = "A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019"
_GPT3 = "T. Brown et al., arXiv:2005.14165, table 2.1"
_VOCABULARY = 50257


def _gpt(name: str, source: str, layers: int, hidden: int, heads: int, sequence: int) -> Model:
    return Transformer(name, source, layers, hidden, heads, 4 * hidden, _VOCABULARY, sequence, positions=sequence).model


MODELS = (
    _gpt("gpt2-small", _GPT2, 12, 768, 12, 1024),
    _gpt("gpt2-xl", _GPT2, 48, 1600, 25, 1024),
    _gpt("gpt-1.3b", _GPT3, 24, 2048, 32, 2048),
    _gpt("gpt-6.7b", _GPT3, 32, 4096, 32, 2048),
    # The paper prints a hidden size of 5140; 40 heads of 128 make 5120.
    _gpt("gpt-13b", _GPT3, 40, 5120, 40, 2048),
    _gpt("gpt-175b", _GPT3, 96, 12288, 96, 2048),
)
