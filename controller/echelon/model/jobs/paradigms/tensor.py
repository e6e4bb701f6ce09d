"""Tensor parallelism: the matrices of every layer are divided over all ranks (`TensorLayers`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, Literal

from pydantic import Field

from echelon.model.documents import Duration, Size, UpTo1000, problem
from echelon.model.jobs.algorithms import ALL_REDUCES, OPERATIONS, AllReduceName
from echelon.model.jobs.combinators import Block, Step, collective, compute, replicate, series
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.ranked import RankedParadigm

BLOCKS = ("attention", "mlp")
Exchange = Literal["experts", "context"]


@dataclass(frozen=True, slots=True)
class TensorLayers:
    """Consecutive layers on a group of ranks.

    Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3. A layer is two blocks,
    attention and MLP. Every rank computes its part of a block, and an all-reduce sums the parts:
    two all-reduces in the forward pass of a layer and two in its backward pass, each of the
    activations of all tokens.

    With sequence parallelism (Korthikanti et al., Reducing Activation Recomputation in Large
    Transformer Models, MLSys '23, section 4.2.2), the tokens are divided where matrices are not. An
    all-gather before a block and a reduce-scatter behind it take the place of the all-reduce, and
    send as many bytes. The paper also gathers the input of a block once more in the backward pass
    while that computes; this is left out here.

    Ranks that share a layer otherwise exchange something else, once in each pass of a layer:

    * **experts** (GShard, Lepikhin et al., ICLR '21, section 3.1): each rank has some of the
      experts of the MLP. An all-to-all brings tokens to their experts, and another one brings the
      results back.
    * **context** (Llama 3, Grattafiori et al., arXiv:2407.21783, section 3.3.2): each rank has a
      part of each sequence. Keys and values of all tokens are all-gathered before attention; in the
      backward pass they are gathered again, and their gradients reduce-scattered behind it. Ring
      attention (Liu et al., ICLR '24) sends as many bytes.
    """

    group: Sequence[Any]
    """The names of the ranks. Only their number counts for `step_count`."""
    layers: int
    algorithm: AllReduceName
    sequence_parallel: bool = False
    exchange: Exchange | None = None

    def step_count(self) -> int:
        """Return an upper bound on the steps of a pass, with all flows of its collectives."""
        ranks = len(self.group)
        if ranks == 1:
            return 1
        passes = self.layers * len(BLOCKS)
        shared = passes * (1 + self.sequence_parallel)
        if self.exchange == "experts":
            return passes * (ranks + ranks * ranks)
        return passes * ranks + ALL_REDUCES[self.algorithm].step_count(ranks, shared)

    def one_pass(
        self,
        name: str,
        direction: str,
        duration_s: Fraction,
        size_bytes: int,
        micro_batch: int | None = None,
    ) -> Block:
        """Return one pass through all layers, which computes for `duration_s` seconds on each rank.

        `size_bytes` are the activations that a collective sums or gathers. `direction` is `forward`
        or `backward`, which goes from the last block to the first. Names count layers and ranks of
        the group from 1: ``NAME-l2-mlp-t1`` computes, ``NAME-l2-mlp-sum`` is the all-reduce, or
        ``-gather`` and ``-scatter``. A single rank needs no collectives and computes ``NAME-t1`` in
        one unit.
        """
        duration_of_block_s = duration_s / (self.layers * len(BLOCKS))

        def work(unit: str, lasts_s: Fraction) -> Block:
            def part(number: int, rank: str) -> Block:
                return compute(f"{unit}-t{number}", rank, lasts_s, direction, micro_batch)

            return replicate(self.group, part)

        def all_to_all(unit: str) -> Block:
            return collective(unit, "all-to-all", self.group, size_bytes, None, micro_batch)

        def shared(unit: str, operation: str) -> Block:
            return collective(unit, operation, self.group, size_bytes, self.algorithm, micro_batch)

        def exchanging(unit: str, block: str) -> Iterator[Block]:
            experts = self.exchange == "experts" and block == "mlp"
            context = self.exchange == "context" and block == "attention"
            if experts:
                yield all_to_all(f"{unit}-dispatch")
            if context:
                yield shared(f"{unit}-gather", "all-gather")
            yield work(unit, duration_of_block_s)
            if experts:
                yield all_to_all(f"{unit}-combine")
            if context and direction != "forward":
                yield shared(f"{unit}-scatter", "reduce-scatter")

        def blocks() -> Iterator[Block]:
            numbers = list(product(range(1, self.layers + 1), BLOCKS))
            if direction != "forward":
                numbers.reverse()
            for layer, block in numbers:
                unit = f"{name}-l{layer}-{block}"
                if self.exchange:
                    yield from exchanging(unit, block)
                    continue
                if self.sequence_parallel:
                    yield shared(f"{unit}-gather", "all-gather")
                yield work(unit, duration_of_block_s)
                if self.sequence_parallel:
                    yield shared(f"{unit}-scatter", "reduce-scatter")
                else:
                    yield shared(f"{unit}-sum", "all-reduce")

        if len(self.group) == 1:
            return work(name, duration_s)
        return series(*blocks())


class Tensor(RankedParadigm):
    """Tensor parallelism of a transformer as in Megatron-LM; all ranks are one group."""

    examples: ClassVar[Examples] = {
        "tensor": example(
            "tensor",
            "megatron",
            4,
            layers=2,
            forward="10 ms",
            backward="20 ms",
            activation="4 MB",
        ),
    }
    compute_times = frozenset({"forward", "backward"})

    layers: UpTo1000 = Field(description="how many layers, e.g. 24")
    forward: Duration = Field(description="the forward time of all layers on a rank, e.g. 100 ms")
    backward: Duration = Field(description="the backward time of all layers on a rank, e.g. 200 ms")
    activation: Size = Field(
        description="the activations of a layer, which are all-reduced, e.g. 4 MB"
    )
    sequence_parallel: bool = False
    """Whether an all-gather before and a reduce-scatter behind each block replace the all-reduce.
    """
    collective: AllReduceName = "ring"
    """The algorithm of the all-reduces."""

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        layers = self._layers(ranks)
        forward = layers.one_pass("forward", "forward", self.forward, self.activation)
        backward = layers.one_pass("backward", "backward", self.backward, self.activation)
        return series(forward, backward).nodes()

    def _layers(self, group: Sequence[Any]) -> TensorLayers:
        return TensorLayers(group, self.layers, self.collective, self.sequence_parallel)

    def rank_steps(self, ranks: int) -> int:
        return 2 * self._layers(range(ranks)).step_count()

    def check_ranks(self, ranks: int) -> None:
        check_collective(self.collective, ranks, self.sequence_parallel)


def check_collective(
    name: AllReduceName,
    ranks: int,
    halves: bool,
) -> None:
    """Raise `problem` for an algorithm that does not suit the ranks, or has no halves.

    It is about the key `collective`.
    """
    if refusal := ALL_REDUCES[name].refusal(ranks):
        raise problem(f"'{name}' {refusal}", "collective", code="not-allowed")
    if halves and name not in OPERATIONS["all-gather"]:
        raise problem(
            f"'{name}' gathers and scatters nothing (use 'ring')", "collective", code="not-allowed"
        )
