"""Layers of a transformer whose matrices are divided over a group of ranks.

Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3. A layer is two blocks, attention and MLP. Every rank
computes its part of a block, and an all-reduce sums the parts: two all-reduces in the forward pass of a layer and two
in its backward pass, each of the activations of all tokens.

With sequence parallelism (Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys '23,
section 4.2.2), the tokens are divided where matrices are not. An all-gather before a block and a reduce-scatter behind
it take the place of the all-reduce, and send as many bytes. The paper also gathers the input of a block once more in
the backward pass while that computes; this is left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.jobs.combinators import Block, collective, compute, replicate, series

BLOCKS = ("attention", "mlp")


@dataclass(frozen=True, slots=True)
class TensorLayers:
    """Consecutive layers on a group of ranks."""

    group: Sequence[str]
    layers: int
    algorithm: str
    sequence_parallel: bool = False

    def steps(self) -> int:
        """Return how many steps a pass has."""
        ranks = len(self.group)
        return ranks if ranks == 1 else self.layers * len(BLOCKS) * (ranks + 2)

    def one_pass(
        self, name: str, direction: str, duration_s: Fraction, size_bytes: int, micro_batch: int | None = None
    ) -> Block:
        """Return one pass through all layers, which computes for `duration_s` seconds on each rank.

        `size_bytes` are the activations that a collective sums or gathers. `direction` is `forward` or `backward`,
        which goes from the last block to the first. Names count layers and ranks of the group from 1:
        ``NAME-l2-mlp-t1`` computes, ``NAME-l2-mlp-sum`` is the all-reduce, or ``-gather`` and ``-scatter``. A single
        rank needs no collectives and computes ``NAME-t1`` in one unit.
        """

        def work(unit: str, lasts_s: Fraction) -> Block:
            return replicate(self.group, lambda t, rank: compute(f"{unit}-t{t}", rank, lasts_s, direction, micro_batch))

        def shared(unit: str, operation: str) -> Block:
            return collective(unit, operation, self.group, size_bytes, self.algorithm, micro_batch)

        def blocks() -> Iterator[Block]:
            numbers = [(layer, block) for layer in range(1, self.layers + 1) for block in BLOCKS]
            for layer, block in numbers if direction == "forward" else reversed(numbers):
                unit = f"{name}-l{layer}-{block}"
                if self.sequence_parallel:
                    yield shared(f"{unit}-gather", "all-gather")
                yield work(unit, duration_s / len(numbers))
                if self.sequence_parallel:
                    yield shared(f"{unit}-scatter", "reduce-scatter")
                else:
                    yield shared(f"{unit}-sum", "all-reduce")

        return work(name, duration_s) if len(self.group) == 1 else series(*blocks())
