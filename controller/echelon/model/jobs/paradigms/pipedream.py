"""PipeDream: a pipeline of mini-batches with stashed weights, whose stages may be replicated.

`echelon.model.jobs.pipelines` explains the schedule and cites the paper. PipeDream empties its
pipeline when training pauses, as at the end of an epoch. As an iteration of a job starts when the
one before has finished, it is what PipeDream does between two pauses: `mini_batches` mini-batches
without a flush, and then an empty pipeline. With one worker for each of p equal stages, the
pipeline is full but for (p - 1) / (mini_batches + p - 1) of the time.

EchelonFlows are derived from the graph (`echelon.model.jobs.arrangement`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import Durations, Sizes, UpTo100000, missing, problem
from echelon.model.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.paradigms.tensor import check_collective
from echelon.model.jobs.pipelines import ReplicatedStage, one_f_one_b_rr
from echelon.model.jobs.ranked import RankedParadigm, value_of


class PipeDream(RankedParadigm):
    """A pipeline with stashed weights; `workers` are in the order of its stages.

    A list has one value for each stage, or for each boundary between stages (`activation`,
    `gradient`). A single value is for all.
    """

    examples: ClassVar[Examples] = {
        "pipedream": example(
            "pipedream",
            "vgg",
            4,
            replicas=[3, 1],
            mini_batches=12,
            forward=["180 ms", "20 ms"],
            backward=["300 ms", "30 ms"],
            activation="5 MB",
            parameters="20 MB",
        ),
    }
    compute_times = frozenset({"forward", "backward"})

    replicas: Annotated[tuple[UpTo100000, ...], Field(min_length=1)] | None = None
    """The number of ranks that replicate each stage.

    None: one each.
    """
    mini_batches: UpTo100000 = Field(description="how many mini-batches, e.g. 64")
    forward: Durations = Field(description="the forward time of a stage per mini-batch, e.g. 10 ms")
    backward: Durations = Field(
        description="the backward time of a stage per mini-batch, e.g. 20 ms"
    )
    activation: Sizes = Field(description="the bytes of a mini-batch between stages, e.g. 4 MB")
    gradient: Sizes | None = None
    """The bytes per mini-batch in the backward direction. None: as `activation`."""
    parameters: Sizes | None = None
    """The bytes that replicas all-reduce after each round; needed if there are any."""
    collective: AllReduceName = "ring"
    """The algorithm of these all-reduces."""

    def check_ranks(self, ranks: int) -> None:
        replicas = self._replicas(ranks)
        stages = len(replicas)
        if sum(replicas) != ranks:
            raise problem(
                f"add up to {sum(replicas)}, but there are {ranks} ranks (change replicas, workers"
                " or ranks_per_worker)",
                "replicas",
                code="wrong-length",
            )
        for key in ("forward", "backward", "activation", "gradient", "parameters"):
            self.check_stages(key, stages)
        if self.parameters is None and max(replicas) > 1:
            raise missing("replicas all-reduce them", "parameters")
        for workers in replicas:
            check_collective(self.collective, workers, False)

    def rank_steps(self, ranks: int) -> int:
        algorithm = ALL_REDUCES[self.collective]
        replicas = self._replicas(ranks)
        steps = self.mini_batches * 4 * len(replicas)
        for ranks_of_stage in replicas:
            if ranks_of_stage > 1:
                rounds = -(-self.mini_batches // ranks_of_stage)
                steps += algorithm.step_count(ranks_of_stage, rounds)
        return steps

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        replicas = self._replicas(len(ranks))
        last = len(replicas) - 1
        stages = []
        first_ranks = accumulate(replicas, initial=0)
        for index, (start, stop) in enumerate(pairwise(first_ranks)):
            activation_bytes = gradient_bytes = 0
            if index < last:
                activation_bytes = value_of(self.activation, index)
                gradient_bytes = value_of(self.gradient or self.activation, index)
            stage = ReplicatedStage(
                ranks[start:stop],
                value_of(self.forward, index),
                value_of(self.backward, index),
                activation_bytes,
                gradient_bytes,
                value_of(self.parameters or 0, index),
            )
            stages.append(stage)
        return one_f_one_b_rr(stages, self.mini_batches, self.collective).nodes()

    def _replicas(self, ranks: int) -> tuple[int, ...]:
        if self.replicas is None:
            return (1,) * ranks
        return self.replicas
