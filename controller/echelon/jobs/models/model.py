"""A model: layers with parameters, operations and outputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a model that is not cut by a pipeline. Operations and outputs are those of one sample."""

    name: str
    parameters: int
    forward_flops: int
    """Floating-point operations of the forward pass; a multiplication with an addition is two. The backward pass has
    twice as many (J. Kaplan et al., arXiv:2001.08361, section 2.1)."""
    output: int
    """Elements that the next layer needs."""
    tensor_reduces: int = 0
    """All-reduces of the layer's output in the forward pass, and again in the backward pass, if tensor parallelism cuts
    the layer (Megatron-LM, M. Shoeybi et al., arXiv:1909.08053, section 3)."""


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
    def forward_flops(self) -> int:
        """Return the floating-point operations of the forward pass of one sample."""
        return sum(layer.forward_flops for layer in self.layers)

    def stages(self, count: int) -> list[tuple[Layer, ...]]:
        """Return the layers in `count` consecutive stages of about equal operations.

        Raises `ValueError` for more stages than layers.
        """
        if count > len(self.layers):
            raise ValueError(f"{self.name} has {len(self.layers)} layers, which do not make {count} stages")
        total, done = self.forward_flops, 0
        stages: list[tuple[Layer, ...]] = []
        stage: list[Layer] = []
        for at, layer in enumerate(self.layers):
            stage.append(layer)
            done += layer.forward_flops
            layers_left, stages_left = len(self.layers) - at - 1, count - len(stages) - 1
            # A stage ends where the next layer would bring it further from its part of the operations.
            following = self.layers[at + 1].forward_flops if layers_left else 0
            enough = done + following / 2 > total * (len(stages) + 1) / count
            if stages_left and (enough or layers_left == stages_left):
                stages.append(tuple(stage))
                stage = []
        return [*stages, tuple(stage)]
