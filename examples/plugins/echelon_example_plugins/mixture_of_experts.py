"""Mixture of experts: ranks hold different experts of each layer and exchange tokens before and
after them.

Source: Lepikhin et al., GShard: Scaling Giant Models with Conditional Computation and Automatic
Sharding, ICLR '21, sections 2.2 and 3.2. In each layer every rank computes the attention for its
own tokens, sends each token to the rank that has its expert (dispatch, an all-to-all), the experts
compute, and the results go back (combine, an all-to-all). The backward pass goes through the same
steps in reverse order and exchanges as many bytes.

Three things differ from the paper. Every expert gets the same number of tokens, which GShard's loss
and capacity limit only aim at. The backward pass takes `BACKWARD` times as long to compute as the
forward pass, because it has twice as many matrix products. And the groups of experts may be
replicated: then replicas of an expert all-reduce their gradients over a ring at the end of the
iteration.

Each exchange is a coflow, because a rank goes on only when it has all its tokens (EchelonFlow, Pan
et al., HotNets '22, section 3, eq. 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import Duration, Size, problem
from echelon.model.jobs.collectives import AllToAll, Collective, Ring
from echelon.model.jobs.combinators import Block, compute, parallel, replicate, series
from echelon.model.jobs.graph import EchelonFlow, IterationGraph
from echelon.model.jobs.paradigm import Paradigm
from echelon.model.jobs.ranked import Mesh

BACKWARD = 2
"""The time of the backward pass as a multiple of the forward pass."""
EXCHANGES = 4
"""All-to-alls of a layer in an iteration: dispatch and combine, forward and backward."""


class MixtureOfExperts(Paradigm):
    """Expert parallelism; `workers` are listed group by group, each group with one worker for each
    expert.
    """

    examples: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "mixture_of_experts": {
            "job": "gshard",
            "parallelism": "mixture_of_experts",
            "workers": ["h1", "h2", "h3", "h4"],
            "mixture_of_experts": {
                "experts": 4,
                "layers": 2,
                "attention": "10 ms",
                "expert": "20 ms",
                "tokens": "4 MB",
            },
        }
    }
    compute_times: ClassVar[frozenset[str]] = frozenset({"attention", "expert"})

    experts: Annotated[
        int,
        Field(strict=True, ge=2, le=1000, description="how many workers share a layer's experts"),
    ]
    layers: Annotated[
        int, Field(strict=True, ge=1, le=100, description="how many layers have experts")
    ]
    attention: Annotated[
        Duration, Field(description="the forward time of what precedes the experts, e.g. 10 ms")
    ]
    expert: Annotated[
        Duration, Field(description="the forward time of a worker's experts, e.g. 20 ms")
    ]
    tokens: Annotated[
        Size, Field(description="the bytes that a worker routes in each all-to-all, e.g. 4 MB")
    ]
    gradient: Size | None = None
    """The bytes that replicas of a worker's experts all-reduce; needed where there is more than one
    group.
    """

    def flow_count(self, workers: int) -> int:
        groups = workers // self.experts
        exchanged = EXCHANGES * self.layers * groups * AllToAll().flow_count(self.experts)
        return exchanged + (self.experts * Ring().flow_count(groups) if groups > 1 else 0)

    def connection_bytes(self, workers: int) -> int:
        # Two workers are either in one group or replicas of each other, so no connection carries
        # both kinds of bytes.
        exchanged = EXCHANGES * self.layers * AllToAll().connection_bytes(self.experts, self.tokens)
        reduced = Ring().connection_bytes(workers // self.experts, self.gradient or 0)
        return max(exchanged, reduced)

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        return mixture_of_experts(
            workers,
            self.experts,
            self.layers,
            self.attention,
            self.expert,
            self.tokens,
            self.gradient or 0,
        )

    def check(self, workers: Sequence[str]) -> None:
        groups, left_over = divmod(len(workers), self.experts)
        if left_over:
            raise problem(
                f"{self.experts} does not divide the {len(workers)} workers (add or remove"
                " workers)",
                "experts",
                code="wrong-length",
            )
        if groups > 1 and self.gradient is None:
            raise problem(
                f"is missing ({groups} groups of {self.experts} workers have replicas, which"
                " all-reduce gradients)",
                "gradient",
                code="missing-key",
            )
        if groups == 1 and self.gradient is not None:
            raise problem(
                "has no use in a single group of workers (remove it, or add workers)",
                "gradient",
                code="conflicting-key",
            )
        for key, size_bytes, ranks in (
            ("tokens", self.tokens, self.experts),
            ("gradient", self.gradient, groups),
        ):
            if size_bytes is not None and size_bytes < ranks:
                raise problem(
                    f"of {size_bytes} B is less than a byte for each of {ranks} workers (give"
                    " more)",
                    key,
                    code="too-small",
                )


def mixture_of_experts(
    workers: Sequence[str],
    experts: int,
    layers: int,
    attention_s: Fraction,
    expert_s: Fraction,
    tokens_bytes: int,
    gradient_bytes: int = 0,
) -> IterationGraph:
    """Return one iteration of groups of `experts` workers. The times, in seconds, are those of the
    forward pass.

    Each worker routes `tokens_bytes` in each all-to-all, an equal part to every worker of its
    group, itself included. If there are several groups, the replicas of an expert all-reduce
    `gradient_bytes` at the end.

    Names count layers, groups, rounds and workers from 1. Compute units are
    `attention-forward-l1-w1` and `expert-backward-l2-w3`. Flows are `dispatch-forward-l1-g1-k1-w2`
    (group 1, round 1, what worker 2 of the group sends), `combine-backward-l2-g1-k1-w1` and
    `allreduce-e1-k1-w2` (replica 2 of expert 1). An EchelonFlow has the name of its flows without
    round and worker.
    """
    mesh = Mesh(workers, {"group": len(workers) // experts, "expert": experts})
    coflows: list[EchelonFlow] = []

    def work(name: str, kind: str, duration_s: Fraction) -> Block:
        return replicate(
            workers, lambda i, worker: compute(f"{name}-w{i}", worker, duration_s, kind)
        )

    def coflow(name: str, ranks: Collective, size_bytes: int) -> Block:
        block = ranks.block(name, size_bytes)
        coflows.append(EchelonFlow.coflow(name, block.flows))
        return block

    def exchange(name: str) -> Block:
        groups = enumerate(mesh.groups("expert"), start=1)
        return parallel(
            *(
                coflow(f"{name}-g{g}", Collective(AllToAll(), group), tokens_bytes)
                for g, group in groups
            )
        )

    def layer(direction: str, number: int, times: int) -> list[Block]:
        suffix = f"{direction}-l{number}"
        return [
            work(f"attention-{suffix}", direction, attention_s * times),
            exchange(f"dispatch-{suffix}"),
            work(f"expert-{suffix}", direction, expert_s * times),
            exchange(f"combine-{suffix}"),
        ]

    numbers = range(1, layers + 1)
    forward = [step for number in numbers for step in layer("forward", number, 1)]
    backward = [step for number in numbers for step in layer("backward", number, BACKWARD)][::-1]
    replicas = [group for group in mesh.groups("group") if len(group) > 1]
    reduced = [
        coflow(f"allreduce-e{e}", Collective(Ring(), group), gradient_bytes)
        for e, group in enumerate(replicas, start=1)
    ]
    return series(*forward, *backward, parallel(*reduced)).graph(*coflows)
