"""3D parallelism: data, pipeline and tensor parallelism over a mesh of ranks, nested in any order.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM, SC '21,
sections 2 and 3. Each replica of the model (data) is a pipeline of stages; each stage is a group of ranks that divide
its matrices (tensor).

* A stage does its passes in the order of the schedule (`echelon.jobs.pipelines`). Within a pass the ranks of the group
  run the collectives of `echelon.jobs.paradigms.tensor`.
* Every rank of a stage sends its activations to the rank of the same place in the next stage, and gradients back. With
  sequence parallelism a rank has only its part of them.
* When a stage has done its last backward pass, its replicas all-reduce their gradients.

EchelonFlows are derived from the graph (`echelon.jobs.arrangement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from echelon.documents import Durations, PositiveReal, Sizes, problem
from echelon.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.jobs.combinators import Block, Step, collective, flow, parallel, series
from echelon.jobs.paradigms.tensor import TensorLayers, check_collective
from echelon.jobs.pipelines import SCHEDULES, Pass, connected
from echelon.jobs.ranked import Mesh, RankedParadigm, value_of

Axis = Literal["data", "pipeline", "tensor"]
AXES: tuple[Axis, ...] = ("data", "pipeline", "tensor")
RANKS_FOUND = 64
"""Ranks that are looked through in the time in which a step is made."""
Length = Annotated[int, Field(strict=True, ge=1, le=100_000)]


class MeshOfRanks(RankedParadigm):
    """Data, pipeline and tensor parallelism; ranks that differ only on the last axis follow each other."""

    examples: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "mesh": {
            "job": "gpt",
            "parallelism": "mesh",
            "workers": ["h1", "h2", "h3", "h4"],
            "mesh": {
                "data": 2,
                "pipeline": 2,
                "tensor": 2,
                "ranks_per_worker": 2,
                "schedule": "1f1b",
                "micro_batches": 4,
                "forward": "10 ms",
                "backward": "20 ms",
                "activation": "4 MB",
                "gradient": "20 MB",
            },
        }
    }
    compute_times: ClassVar[frozenset[str]] = frozenset({"forward", "backward", "weights"})
    nests: ClassVar[frozenset[str]] = frozenset(AXES)

    data: Length = 1
    """The number of replicas of the model."""
    pipeline: Length = 1
    """The number of stages: the workers that share the layers of a replica."""
    tensor: Length = 1
    """The number of ranks that share every layer of a stage."""
    order: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=3)] = AXES
    """The axes from the outermost to the innermost."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """The order of forward and backward passes."""
    chunks: Annotated[int, Field(strict=True, ge=2, le=100)] | None = None
    """The number of parts of the model that each stage has; only with `schedule: interleaved`."""
    micro_batches: Annotated[
        Annotated[int, Field(strict=True, ge=1, le=10_000)]
        | Annotated[tuple[PositiveReal, ...], Field(min_length=1, max_length=10_000)],
        Field(description="how many micro-batches, e.g. 4, or their relative sizes, e.g. [1, 1, 0.5]"),
    ]
    forward: Annotated[Durations, Field(description="the forward time of a stage per micro-batch, e.g. 10 ms")]
    backward: Annotated[Durations, Field(description="the backward time of a stage per micro-batch, e.g. 20 ms")]
    weights: Durations | None = None
    """The part of `backward` that computes gradients of weights, a pass of its own with `schedule: zero-bubble`.
    None: half of it."""
    activation: Annotated[Sizes, Field(description="the activations of a micro-batch between stages, e.g. 4 MB")]
    gradient: Sizes | None = None
    """The bytes that each rank of a stage all-reduces with its replicas; needed if there are several."""
    layers: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    """The number of layers of a stage, each with collectives of its own if ranks share it."""
    sequence_parallel: bool = False
    """Whether ranks that share a layer divide the tokens where they do not divide matrices."""
    collective: AllReduceName = "ring"
    """The algorithm of all-reduces, and of their halves."""

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        schedule = SCHEDULES[self.schedule]
        if schedule.chunked != (self.chunks is not None):
            reason = (
                "is missing (give how many parts of the model a stage has)"
                if schedule.chunked
                else (f"does not go with 'schedule: {self.schedule}' (remove it, or write 'schedule: interleaved')")
            )
            raise problem(reason, "chunks", code="missing-key" if schedule.chunked else "conflicting-key")
        if self.weights is not None and not schedule.splits_backward:
            raise problem(
                f"does not go with 'schedule: {self.schedule}' (remove it, or write 'schedule: zero-bubble')",
                "weights",
                code="conflicting-key",
            )
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if len(set(self.order)) < len(self.order):
            raise problem("names an axis twice (name each once)", "order", code="duplicate")
        for axis in AXES:
            if axis not in self.order and getattr(self, axis) > 1:
                raise problem(f"has no place in 'order: [{', '.join(self.order)}]' (add '{axis}')", axis)
        return self

    def check_ranks(self, ranks: int) -> None:
        shape = {axis: getattr(self, axis) for axis in AXES}
        needed = self.data * self.pipeline * self.tensor
        if needed != ranks:
            product = " x ".join(f"{length} ({axis})" for axis, length in shape.items())
            raise problem(
                f"{product} = {needed}, but there are {ranks} ranks (change workers, ranks_per_worker or a length)",
                code="wrong-length",
            )
        for key in ("forward", "backward", "weights", "activation", "gradient"):
            value = getattr(self, key)
            wanted = self.pipeline - 1 if key == "activation" else self.pipeline
            if isinstance(value, tuple) and len(value) != wanted:
                of = "stage boundaries" if key == "activation" else "stages"
                raise problem(
                    f"has {len(value)} values but there are {wanted} {of} (give one value or {wanted})",
                    key,
                    code="wrong-length",
                )
        for stage in range(self.pipeline):
            if self._backward_s(stage) < 0:
                raise problem("is more than 'backward', of which it is a part (give less)", "weights", code="too-large")
        if SCHEDULES[self.schedule].chunked and len(self.sizes) % self.pipeline:
            raise problem(
                f"is {len(self.sizes)}, but '{self.schedule}' needs a multiple of the {self.pipeline} stages",
                "micro_batches",
            )
        if self.data > 1 and self.gradient is None:
            raise problem(f"is missing ({self.data} replicas all-reduce it)", "gradient", code="missing-key")
        check_collective(self.collective, self.data, False)
        check_collective(self.collective, self.tensor, self.sequence_parallel)

    @property
    def sizes(self) -> tuple[Fraction, ...]:
        """Return the relative size of each micro-batch."""
        many = self.micro_batches
        return many if isinstance(many, tuple) else (Fraction(1),) * many

    def rank_steps(self, ranks: int) -> int:
        layers = TensorLayers(range(self.tensor), self.layers, self.collective, self.sequence_parallel)
        directions = 3 if SCHEDULES[self.schedule].splits_backward else 2
        stages = self.data * self.pipeline
        passes = directions * stages * (self.chunks or 1) * len(self.sizes)
        summed = ALL_REDUCES[self.collective].step_count(self.data, self.pipeline * self.tensor)
        # Finding the ranks of each stage takes a little time for each rank.
        return passes * (layers.step_count() + self.tensor) + summed + stages * ranks // RANKS_FOUND

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        mesh = Mesh(ranks, {axis: getattr(self, axis) for axis in self.order})
        places = {axis: range(getattr(self, axis)) for axis in AXES}
        groups = {
            (replica, stage): mesh.at(
                {axis: at for axis, at in (("data", replica), ("pipeline", stage)) if axis in self.order}
            )
            for replica in places["data"]
            for stage in places["pipeline"]
        }
        replicas = parallel(*(self._replica(d, [groups[d, s] for s in places["pipeline"]]) for d in places["data"]))
        if self.data == 1:
            return replicas.nodes()
        summed = (
            collective(
                f"gradient-s{stage + 1}-t{t + 1}",
                "all-reduce",
                [groups[d, stage][t] for d in places["data"]],
                value_of(self.gradient or 1, stage),
                self.collective,
            )
            for stage in places["pipeline"]
            for t in places["tensor"]
        )
        return series(replicas, parallel(*summed)).nodes()

    def _replica(self, number: int, groups: Sequence[Sequence[str]]) -> Block:
        """Return the passes of one replica of the model, whose stages have these ranks.

        Names count stages, replicas, micro-batches and ranks of a stage from 1; with chunks, stages are those of the
        model. ``forward-s1-d1-m2`` is a pass (`TensorLayers.one_pass`), ``activation-s1-d1-m2-t1`` what its first rank
        sends to the next stage, ``gradient-s2-d1-m2-t1`` what it sends back.
        """
        workers, chunks = self.pipeline, self.chunks or 1
        stages = [TensorLayers(group, self.layers, self.collective, self.sequence_parallel) for group in groups]
        units: dict[Pass, Block] = {}
        sent: dict[Pass, Block] = {}
        for each in SCHEDULES[self.schedule].passes(workers, len(self.sizes), chunks):
            worker = (each.stage - 1) % workers
            share = self.sizes[each.micro_batch - 1]
            suffix = f"s{each.stage}-d{number + 1}-m{each.micro_batch}"
            lasts_s = share * self._lasts_s(each.direction, worker) / chunks
            size = self._size_bytes(share, worker)
            units[each] = stages[worker].one_pass(
                f"{each.direction}-{suffix}", each.direction, lasts_s, size, each.micro_batch
            )
            next_worker = (each.consumer.stage - 1) % workers
            if each.direction == "weights" or not 1 <= each.consumer.stage <= workers * chunks or next_worker == worker:
                continue
            what, size = (
                ("activation", self._size_bytes(share, worker))
                if each.direction == "forward"
                else ("gradient", self._size_bytes(share, next_worker))
            )
            sent[each] = self._sent(f"{what}-{suffix}", groups[worker], groups[next_worker], size, each.micro_batch)
        return connected(units, sent, lambda each: (each.stage - 1) % workers)

    def _sent(self, name: str, src: Sequence[str], dst: Sequence[str], size_bytes: int, micro_batch: int) -> Block:
        part = -(-size_bytes // self.tensor) if self.sequence_parallel else size_bytes
        pairs = enumerate(zip(src, dst, strict=True), start=1)
        return parallel(*(flow(f"{name}-t{t}", *pair, part, micro_batch) for t, pair in pairs))

    def _size_bytes(self, share: Fraction, worker: int) -> int:
        """Return the activations that leave a worker; behind the last one, those that enter it."""
        place = min(worker, len(self.activation) - 1) if isinstance(self.activation, tuple) else 0
        return max(1, round(share * value_of(self.activation, place)))

    def _lasts_s(self, direction: str, worker: int) -> Fraction:
        if direction == "forward":
            return value_of(self.forward, worker)
        return self._weights_s(worker) if direction == "weights" else self._backward_s(worker)

    def _weights_s(self, worker: int) -> Fraction:
        if not SCHEDULES[self.schedule].splits_backward:
            return Fraction(0)
        return value_of(self.backward, worker) / 2 if self.weights is None else value_of(self.weights, worker)

    def _backward_s(self, worker: int) -> Fraction:
        return value_of(self.backward, worker) - self._weights_s(worker)
