"""Expert parallelism: the experts of a layer are divided over ranks, which exchange tokens.

Source: Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation and Automatic
Sharding, ICLR '21, sections 2.2 and 3.2. In each layer every rank computes the attention for its
own tokens, sends each token to the rank that has its expert (dispatch, an all-to-all), the experts
compute, and the results go back (combine, an all-to-all). The backward pass goes through the same
steps in reverse order and exchanges as many bytes.

* **Imbalance.** `load` says how many tokens each rank of a group gets, relative to the others: as
  many times more bytes go to it and come back, and as many times longer its experts compute.
  GShard's loss and capacity limit keep loads near to equal; gates that are being trained do not
  (Hwang et al., Tutel, MLSys '23, Fig. 1).
* The backward pass takes `BACKWARD` times as long to compute as the forward pass, because it has
  twice as many matrix products.
* Groups of experts may be replicated. Replicas of a rank all-reduce the gradients of its experts at
  the end.

**Arrangement** (derived). Each exchange is a coflow: a rank goes on only when it has all its
tokens, and the next exchange waits for that (EchelonFlow, Pan et al., HotNets '22, eq. 5). The last
exchange forward and the first backward, between which nothing is computed, are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import Duration, PositiveReal, Size, UpTo1000, missing, problem
from echelon.model.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.model.jobs.combinators import (
    Block,
    Step,
    collective,
    compute,
    parallel,
    replicate,
    series,
)
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.paradigms.tensor import check_collective
from echelon.model.jobs.ranked import Mesh, RankedParadigm

BACKWARD = 2
"""The time of the backward pass as a multiple of the forward pass."""


class Expert(RankedParadigm):
    """Expert parallelism.

    Ranks are listed group by group, each group with all experts of every layer.
    """

    examples: ClassVar[Examples] = {
        "expert": example(
            "expert",
            "mixtral",
            4,
            group=4,
            layers=2,
            attention="10 ms",
            expert="20 ms",
            tokens="4 MB",
            load=[2, 1, 1, 1],
        ),
    }
    compute_times = frozenset({"attention", "expert"})

    group: Annotated[
        int,
        Field(
            strict=True,
            ge=2,
            le=10_000,
            description="how many ranks share the experts, e.g. 8",
        ),
    ]
    layers: UpTo1000 = Field(description="how many layers have experts, e.g. 16")
    attention: Duration = Field(
        description="the forward time of what precedes the experts, e.g. 10 ms"
    )
    expert: Duration = Field(
        description="the forward time of a rank's experts at equal load, e.g. 20 ms"
    )
    tokens: Size = Field(description="the bytes that a rank routes in each all-to-all, e.g. 4 MB")
    load: Annotated[tuple[PositiveReal, ...], Field(min_length=2)] | None = None
    """The relative load of each rank of a group. None: equal."""
    gradient: Size | None = None
    """The bytes that replicas of a rank's experts all-reduce; needed with several groups."""
    collective: AllReduceName = "ring"
    """The algorithm of that all-reduce."""

    def check_ranks(self, ranks: int) -> None:
        groups, left_over = divmod(ranks, self.group)
        if left_over or not groups:
            reason = (
                f"{self.group} does not divide the {ranks} ranks (change workers or"
                " ranks_per_worker)"
            )
            raise problem(reason, "group", code="wrong-length")
        if self.load is not None and len(self.load) != self.group:
            reason = (
                f"has {len(self.load)} values for a group of {self.group} (give one for each rank)"
            )
            raise problem(reason, "load", code="wrong-length")
        if groups > 1 and self.gradient is None:
            raise missing(f"{groups} groups have replicas, which all-reduce it", "gradient")
        check_collective(self.collective, groups, False)

    def rank_steps(self, ranks: int) -> int:
        groups = ranks // self.group
        exchanged = 4 * self.layers * ranks * self.group
        steps = 4 * self.layers * ranks + exchanged
        if groups > 1:
            steps += ALL_REDUCES[self.collective].step_count(groups, self.group)
        return steps

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        group_count = len(ranks) // self.group
        mesh = Mesh(ranks, {"group": group_count, "expert": self.group})
        groups = mesh.groups("expert")
        load = self.load or (Fraction(1),) * self.group
        shares = [each / sum(load) for each in load]
        parts = tuple(round(share * self.tokens) for share in shares)
        to_experts = (parts,) * self.group
        from_experts = tuple((part,) * self.group for part in parts)

        def exchange(name: str, matrix: tuple[tuple[int, ...], ...]) -> Block:
            collectives = []
            for number, group in enumerate(groups, start=1):
                full_name = f"{name}-g{number}"
                step = collective(full_name, "all-to-all", group, self.tokens, matrix=matrix)
                collectives.append(step)
            return parallel(*collectives)

        def layer(direction: str, number: int) -> list[Block]:
            suffix = f"{direction}-l{number}"
            times = 1
            dispatched = to_experts
            combined = from_experts
            if direction != "forward":
                # Gradients of results go to the experts, and those of tokens come back.
                times = BACKWARD
                dispatched = from_experts
                combined = to_experts

            def attention(place: int, rank: str) -> Block:
                duration_s = times * self.attention
                return compute(f"attention-{suffix}-w{place}", rank, duration_s, direction)

            def experts(place: int, rank: str) -> Block:
                duration_s = times * self.expert * self.group * shares[(place - 1) % self.group]
                return compute(f"expert-{suffix}-w{place}", rank, duration_s, direction)

            return [
                replicate(ranks, attention),
                exchange(f"dispatch-{suffix}", dispatched),
                replicate(ranks, experts),
                exchange(f"combine-{suffix}", combined),
            ]

        numbers = range(1, self.layers + 1)
        forward: list[Block] = []
        backward: list[Block] = []
        for number in numbers:
            forward += layer("forward", number)
            backward += layer("backward", number)
        backward.reverse()
        gradient = self.gradient or 1
        summed = []
        for number, replicas in enumerate(mesh.groups("group"), start=1):
            if len(replicas) > 1:
                name = f"gradient-e{number}"
                step = collective(name, "all-reduce", replicas, gradient, self.collective)
                summed.append(step)
        return series(*forward, *backward, parallel(*summed)).nodes()
