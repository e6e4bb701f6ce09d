"""1F1B-RR: PipeDream's schedule, in which weights are stashed and stages may be replicated.

Source: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training, SOSP '19, sections 3.2 and 3.3.
Mini-batches enter the pipeline. A stage applies the gradients of each as soon as it has them, so the pipeline
is not emptied between mini-batches. The backward pass of a mini-batch uses the weights of its forward pass, which the
worker has stashed: one version for each mini-batch that it has in flight. No pass therefore waits for the update of
another mini-batch.

The workers of a stage take mini-batches in turn, each its own in both directions. A worker of stage s starts with as
many forward passes as keep the stages behind it busy, which is the number of workers of stage s and all behind it over
that of stage s, rounded up; then it alternates one backward with one forward pass. After each round, in which every
worker of a stage has done one backward pass, a replicated stage all-reduces its gradients. Its workers go on when they
are summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from echelon.jobs.combinators import Block, collective, compute, flow
from echelon.jobs.pipelines.schedule import Pass, connected


@dataclass(frozen=True, slots=True)
class ReplicatedStage:
    """A stage of the model, and the ranks that replicate it."""

    ranks: Sequence[str]
    forward_s: Fraction
    """The seconds of a mini-batch on one rank."""
    backward_s: Fraction
    activation_bytes: int = 0
    """The bytes that a mini-batch sends to the next stage; 0 for the last stage."""
    gradient_bytes: int = 0
    """The bytes that it sends back to this stage."""
    parameter_bytes: int = 0
    """The bytes that replicas all-reduce after each round."""


def versions(stages: Sequence[int], stage: int) -> int:
    """Return how many mini-batches a worker of a stage has in flight, each with its version of the weights.

    `stages` has the number of workers of each stage; `stage` counts from 1.
    """
    return -(-sum(stages[stage - 1 :]) // stages[stage - 1])


def schedule(stages: Sequence[int], mini_batches: int) -> Iterator[Pass]:
    """Yield the passes of all mini-batches, those of each worker in the order in which it does them."""
    for stage, workers in enumerate(stages, start=1):
        ahead = versions(stages, stage)
        for first in range(1, min(workers, mini_batches) + 1):
            own = range(first, mini_batches + 1, workers)
            for mini_batch in own[:ahead]:
                yield Pass("forward", stage, mini_batch)
            for place, mini_batch in enumerate(own):
                yield Pass("backward", stage, mini_batch)
                for later in own[place + ahead : place + ahead + 1]:
                    yield Pass("forward", stage, later)


def one_f_one_b_rr(stages: Sequence[ReplicatedStage], mini_batches: int, algorithm: str | None = None) -> Block:
    """Return the passes of `mini_batches` through a pipeline that is empty before and after them.

    `echelon.jobs.pipelines.schedule` says how passes and flows are named. ``sum-s1-k2`` is the all-reduce of the second
    round of the first stage, by `algorithm` (`echelon.jobs.collectives.OPERATIONS`).
    """
    passes = list(schedule([len(stage.ranks) for stage in stages], mini_batches))

    def rank_of(stage: int, mini_batch: int) -> str:
        ranks = stages[stage - 1].ranks
        return ranks[(mini_batch - 1) % len(ranks)]

    def unit(each: Pass) -> Block:
        stage = stages[each.stage - 1]
        lasts_s = stage.forward_s if each.direction == "forward" else stage.backward_s
        rank = rank_of(each.stage, each.micro_batch)
        return compute(each.unit, rank, lasts_s, each.direction, each.micro_batch)

    def sent(each: Pass) -> Block:
        between = stages[min(each.stage, each.consumer.stage) - 1]
        what, size_bytes = (
            ("activation", between.activation_bytes)
            if each.direction == "forward"
            else ("gradient", between.gradient_bytes)
        )
        src, dst = rank_of(each.stage, each.micro_batch), rank_of(each.consumer.stage, each.micro_batch)
        return flow(f"{what}-s{each.stage}-m{each.micro_batch}", src, dst, size_bytes, each.micro_batch)

    return connected(
        {each: unit(each) for each in passes},
        {each: sent(each) for each in passes if 1 <= each.consumer.stage <= len(stages)},
        lambda each: (each.stage, rank_of(each.stage, each.micro_batch)),
        _sums(stages, mini_batches, algorithm),
    )


def _sums(stages: Sequence[ReplicatedStage], mini_batches: int, algorithm: str | None) -> dict[Pass, list[Block]]:
    """Return the all-reduces that follow backward passes; in the last round, some workers may have no mini-batch."""
    sums: dict[Pass, list[Block]] = {}
    for number, stage in enumerate(stages, start=1):
        workers = len(stage.ranks)
        if workers == 1 or not stage.parameter_bytes:
            continue
        for at in range(-(-mini_batches // workers)):
            summed = collective(f"sum-s{number}-k{at + 1}", "all-reduce", stage.ranks, stage.parameter_bytes, algorithm)
            for first in range(1, min(workers, mini_batches) + 1):
                last = range(first, mini_batches + 1, workers)[: at + 1][-1]
                sums.setdefault(Pass("backward", number, last), []).append(summed)
    return sums
