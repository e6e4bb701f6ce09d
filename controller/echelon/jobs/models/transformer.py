"""Transformers: the sizes of their layers.

Per layer and sequence of s tokens, with hidden size h, k of it for keys and values, f in each of `matrices` - 1
projections up and one down, the operations are 2 s (2 h^2 + 2 h k + matrices h f) for the weights and 4 s^2 h for
attention scores and values; the output layer needs 2 s h V (Narayanan et al., Efficient Large-Scale Language Model
Training on GPU Clusters Using Megatron-LM, SC '21, appendix; theirs are 4 times as many, with the backward pass and
recomputation). Embedding is a look-up.
"""

from __future__ import annotations

from dataclasses import dataclass

from echelon.jobs.models.model import Layer, Model


@dataclass(frozen=True, slots=True)
class Transformer:
    """The shape of a transformer. `model` makes a `Model` of it."""

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    sequence: int
    """Tokens of a sample."""
    key_value_heads: int | None = None
    """Heads of keys and values (grouped-query attention); None: as many as queries have."""
    gated: bool = False
    """Whether the feed-forward layer has three matrices (SwiGLU) instead of two."""
    biases: bool = True
    """Whether projections and norms have biases."""
    positions: int = 0
    """Learned position embeddings."""
    tied: bool = True
    """Whether the output layer shares the weights of the embedding."""
    final_norm: bool = True
    extra_parameters: int = 0
    """Parameters of the embedding besides tokens and positions."""
    head_parameters: int = 0
    """Parameters after the last layer besides norm and output layer."""
    experts: int = 1
    """Feed-forward layers of each layer; more than one is a mixture of experts, with a router."""
    active_experts: int = 1
    """Experts that each token passes."""

    @property
    def model(self) -> Model:
        """Return the model: embedding, layers, output."""
        h, s, v = self.hidden, self.sequence, self.vocabulary
        norm = 2 * h if self.biases else h
        embedding = Layer("embedding", v * h + self.positions * h + self.extra_parameters, 0, s * h, 1)
        block = self._block(norm)
        blocks = tuple(Layer(f"layer{n}", block.parameters, block.forward_flops, s * h, 2) for n in self._numbers)
        end_norm = norm if self.final_norm else 0
        output = Layer("output", (0 if self.tied else v * h) + end_norm + self.head_parameters, 2 * s * h * v, s, 0)
        return Model(self.name, self.source, (embedding, *blocks, output), f"a sequence of {s} tokens")

    @property
    def _numbers(self) -> range:
        return range(1, self.layers + 1)

    def _block(self, norm: int) -> Layer:
        h, s, f = self.hidden, self.sequence, self.feed_forward
        kv = h // self.heads * (self.key_value_heads or self.heads)
        matrices = 3 if self.gated else 2
        attention, expert = 2 * h * h + 2 * h * kv, matrices * h * f
        biases = 2 * h + 2 * kv + self.experts * (f + h) if self.biases else 0
        router = h * self.experts if self.experts > 1 else 0
        parameters = attention + self.experts * expert + router + biases + 2 * norm
        flops = 2 * s * (attention + self.active_experts * expert + router) + 4 * s * s * h
        return Layer("layer", parameters, flops, s * h, 2)
