"""Tensor parallelism: the matrices of every layer are divided over all ranks (`echelon.jobs.tensor_layers`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.documents import Duration, Size, problem
from echelon.jobs.collectives import ALL_REDUCES, AllReduceName
from echelon.jobs.combinators import Step, series
from echelon.jobs.ranked import RankedParadigm
from echelon.jobs.tensor_layers import BLOCKS, TensorLayers


class Tensor(RankedParadigm):
    """Tensor parallelism of a transformer as in Megatron-LM; all ranks are one group."""

    examples: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "tensor": {
            "job": "megatron",
            "parallelism": "tensor",
            "workers": ["h1", "h2", "h3", "h4"],
            "tensor": {"layers": 2, "forward": "10 ms", "backward": "20 ms", "activation": "4 MB"},
        }
    }
    compute_times: ClassVar[frozenset[str]] = frozenset({"forward", "backward"})

    layers: Annotated[int, Field(strict=True, ge=1, le=1000, description="how many layers, e.g. 24")]
    forward: Annotated[Duration, Field(description="the forward time of all layers on a rank, e.g. 100 ms")]
    backward: Annotated[Duration, Field(description="the backward time of all layers on a rank, e.g. 200 ms")]
    activation: Annotated[Size, Field(description="the activations of a layer, which are all-reduced, e.g. 4 MB")]
    sequence_parallel: bool = False
    """Whether an all-gather before each block and a reduce-scatter behind it take the place of the all-reduce."""
    collective: AllReduceName = "ring"
    """The algorithm of the all-reduces."""

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        layers = TensorLayers(ranks, self.layers, self.collective, self.sequence_parallel)
        return series(
            layers.one_pass("forward", "forward", self.forward, self.activation),
            layers.one_pass("backward", "backward", self.backward, self.activation),
        ).nodes()

    def step_count(self, ranks: int) -> int:
        return 2 * len(BLOCKS) * self.layers * (ranks + 2)

    def check_ranks(self, ranks: int) -> None:
        check_collective(self.collective, ranks, self.sequence_parallel)


def check_collective(name: AllReduceName, ranks: int, halves: bool) -> None:
    """Raise `problem` for the key `collective` if an algorithm does not suit the number of ranks, or has no halves."""
    if refusal := ALL_REDUCES[name].refusal(ranks):
        raise problem(f"'{name}' {refusal}", "collective", code="not-allowed")
    if halves and name == "tree":
        raise problem("'tree' gathers and scatters nothing (use 'ring')", "collective", code="not-allowed")
