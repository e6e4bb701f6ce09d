"""The part that paradigms of ranks share.

There are several ranks on a worker, they are laid out along the axes of parallelism, and a free
graph follows from their steps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from echelon.model.documents import Rate, UpTo1000, problem
from echelon.model.jobs.combinators import Step
from echelon.model.jobs.free import FreeGraph
from echelon.model.jobs.graph import IterationGraph
from echelon.model.jobs.paradigm import Paradigm

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Mesh(Generic[R]):
    """A grid of ranks with named axes.

    Along the last axis, neighbours follow each other in `ranks`.

    ``Mesh(hosts, {"data": 2, "stage": 4})`` is two pipelines of four stages: hosts 0 to 3 are the
    first pipeline. Raises `ValueError` if the number of ranks is not the product of the axes'
    lengths.
    """

    ranks: Sequence[R]
    axes: Mapping[str, int]
    """The length of each axis."""

    def __post_init__(self) -> None:
        if math.prod(self.axes.values()) != len(self.ranks):
            shape = " x ".join(f"{length} ({axis})" for axis, length in self.axes.items())
            raise ValueError(f"{len(self.ranks)} ranks do not fill a mesh of {shape}")

    def ranks_of(self, place: Mapping[str, int]) -> tuple[R, ...]:
        """Return the ranks at these places on these axes, from 0, in the order of the mesh."""
        ranks: Sequence[int] = range(len(self.ranks))
        for axis, wanted in place.items():
            stride = self._stride(axis)
            ranks = [rank for rank in ranks if rank // stride % self.axes[axis] == wanted]
        return tuple(self.ranks[rank] for rank in ranks)

    def groups(self, *along: str) -> tuple[tuple[R, ...], ...]:
        """Return the groups of ranks that differ in their places on the axes `along` only."""
        heads: Sequence[int] = range(len(self.ranks))
        offsets = [0]
        for axis in self.axes:
            if axis in along:
                length = self.axes[axis]
                stride = self._stride(axis)
                heads = [head for head in heads if head // stride % length == 0]
                offsets = [offset + stride * place for offset in offsets for place in range(length)]
        return tuple(tuple(self.ranks[head + offset] for offset in offsets) for head in heads)

    def _stride(self, axis: str) -> int:
        names = list(self.axes)
        inner = names[names.index(axis) + 1 :]
        return math.prod(self.axes[name] for name in inner)


V = TypeVar("V")
MOST_STEPS = 1_000_000
"""The largest number of steps of a graph that is built."""


class RankedParadigm(Paradigm):
    """A paradigm of ranks, one or more on each worker.

    Its EchelonFlows follow from its graph.

    Rank r, from 0, is on worker r // `ranks_per_worker`.
    """

    ranks_per_worker: UpTo1000 = 1
    """The number of ranks on each host, e.g. of GPUs."""
    local_bandwidth: Rate | None = None
    """The rate between two ranks of one worker, whose transfers are no flows.

    None: they take no time.
    """

    @abstractmethod
    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        """Return the steps of one iteration of `ranks`, with their dependencies."""

    @abstractmethod
    def rank_steps(self, ranks: int) -> int:
        """Return an upper bound on the steps with all flows of collectives, by arithmetic."""

    def step_count(self, workers: int) -> int:
        ranks = workers * self.ranks_per_worker
        return ranks + self.rank_steps(ranks)

    def check_ranks(self, ranks: int) -> None:
        """Raise `problem` (`echelon.model.documents`) if the section does not fit the ranks."""

    def check_stages(self, key: str, stages: int) -> None:
        """Raise `problem` if a key has neither one value nor one for each stage or boundary."""
        if key in ("activation", "gradient"):
            boundaries = stages - 1
            self.check_length(key, boundaries, f"but there are {boundaries} stage boundaries")
        else:
            self.check_length(key, stages, f"but there are {stages} stages")

    def free(self, workers: int) -> FreeGraph:
        """Return one iteration as a free graph."""
        ranks = [str(rank) for rank in range(workers * self.ranks_per_worker)]
        local_bps = None
        if self.local_bandwidth is not None:
            local_bps = Fraction(self.local_bandwidth)
        return FreeGraph(self.steps(ranks), self.ranks_per_worker, local_bps)

    def flow_count(self, workers: int) -> int:
        return self.free(workers).flow_count()

    def connection_bytes(self, workers: int) -> int:
        return self.free(workers).connection_bytes()

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        return self.free(len(workers)).iteration(workers)

    def counting_refusal(self, exactly: bool) -> str | None:
        if not exactly:
            return None
        return (
            "needs flows that follow each other in the same order in every iteration,"
            " which these need not do"
        )

    def check(self, workers: Sequence[str]) -> None:
        steps = self.step_count(len(workers))
        if steps > MOST_STEPS:
            reason = (
                f"makes up to {steps} steps, more than {MOST_STEPS} (merge layers or micro-batches)"
            )
            raise problem(reason, code="too-large")
        self.check_ranks(len(workers) * self.ranks_per_worker)


def value_of(value: V | tuple[V, ...], place: int) -> V:
    """Return the value for a place, from 0, of a key that has one for each or one for all."""
    if isinstance(value, tuple):
        return value[place]
    return value
