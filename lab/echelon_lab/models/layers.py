"""A model as layers one after another.

`transformers`, `decoders`, `convolutions` and `recommenders` yield them.
"""

from __future__ import annotations

from dataclasses import dataclass

from echelon_lab.models.products import Product


@dataclass(frozen=True, slots=True)
class Tables:
    """Tables of embeddings, which all GPUs share. Numbers are of a sample, except `parameters`."""

    parameters: int = 0
    indices: int = 0
    """The number of rows that a sample looks up."""
    looked_up: int = 0
    """Elements of these rows."""
    pooled: int = 0
    """Elements that leave the tables: the rows of each, added up."""


NO_TABLES = Tables()


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a model that is not cut by a pipeline.

    Operations and outputs are those of one sample.
    """

    name: str
    parameters: int
    forward_flops: int
    """Floating-point operations of the forward pass; a multiplication with an addition is two.

    The backward pass has twice as many (J. Kaplan et al., arXiv:2001.08361, section 2.1).
    """
    output: int
    """Elements that the next layer needs."""
    tensor_reduces: int = 0
    """All-reduces of the layer's output in each pass, if tensor parallelism cuts the layer.

    Megatron-LM, M. Shoeybi et al., arXiv:1909.08053, section 3. Those of experts are not counted.
    """
    attention_flops: int = 0
    """The part of `forward_flops` that is for scores and values of attention."""
    causal: bool = False
    """Whether a token sees only those before it.

    FlashAttention then leaves out half of `attention_flops`.
    """
    heads: int = 0
    """Heads of attention, which tensor parallelism divides."""
    scores: int = 0
    """Elements of the scores of all heads."""
    key_values: int = 0
    """Elements of keys and values."""
    key_value_heads: int = 0
    """Heads of these. A larger tensor group has each of them several times."""
    uncut: int = 0
    """The part of `parameters` that each rank of a tensor group has.

    These are routers, norms, and the matrices to latent vectors (Megatron-LM,
    `parallel_mode="duplicated"`). Layers of `transformers` have none: a tensor group is taken to
    cut their norms and routers, too.
    """
    experts: int = 0
    """The part of `parameters` that are experts."""
    routed: int = 0
    """Elements that go to experts: the tokens, once for each active expert."""
    expert_count: int = 0
    active: int = 0
    """The number of experts that a token goes to."""
    groups: int = 1
    """The groups of experts of which a router first chooses some."""
    chosen_groups: int = 1
    idle: int = 0
    """The part of `experts` that a token does not go to."""
    tables: Tables = NO_TABLES
    products: tuple[Product, ...] = ()
    """The products of its matrices, uncut; other operations run as fast as the largest products."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model to train."""

    name: str
    source: str
    """The publication that the numbers come from."""
    layers: tuple[Layer, ...]
    sample: str
    """The name of a sample, such as "a sequence of 2048 tokens"."""
    parameter_bytes: int = 2
    """Bytes of a parameter and of an element of an activation in training."""

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def active_parameters(self) -> int:
        """Return the number of parameters that a token passes, embedding and output included."""
        return self.parameters - sum(layer.idle for layer in self.layers)

    @property
    def tables(self) -> int:
        """Return the number of parameters in tables of embeddings."""
        return sum(layer.tables.parameters for layer in self.layers)

    @property
    def forward_flops(self) -> int:
        """Return the floating-point operations of the forward pass of one sample."""
        return sum(layer.forward_flops for layer in self.layers)

    def stages(self, count: int) -> list[tuple[Layer, ...]]:
        """Return the layers in `count` consecutive stages of about equal operations.

        Raises `ValueError` for more stages than layers.
        """
        if count > len(self.layers):
            raise ValueError(
                f"{self.name} has {len(self.layers)} layers, which do not make {count} stages"
            )
        total = self.forward_flops
        done = 0
        stages: list[tuple[Layer, ...]] = []
        stage: list[Layer] = []
        for index, layer in enumerate(self.layers):
            stage.append(layer)
            done += layer.forward_flops
            layers_left = len(self.layers) - index - 1
            stages_left = count - len(stages) - 1
            if not stages_left:
                continue
            # A stage ends where the next layer would bring it further
            # from its part of the operations.
            following = 0
            if layers_left:
                following = self.layers[index + 1].forward_flops
            is_enough = done + following / 2 > total * (len(stages) + 1) / count
            if is_enough or layers_left == stages_left:
                stages.append(tuple(stage))
                stage = []
        return [*stages, tuple(stage)]
