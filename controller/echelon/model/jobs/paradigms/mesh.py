"""3D parallelism: data, pipeline and tensor parallelism over a mesh of ranks, nested in any order.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, SC '21, sections 2 and 3. Each replica of the model (data) is a pipeline of stages;
each stage is a group of ranks that divide its matrices (tensor).

* A stage does its passes in the order of the schedule (`echelon.model.jobs.pipelines`). Within a
  pass the ranks of the group run the collectives of `echelon.model.jobs.paradigms.tensor`.
* Every rank of a stage sends its activations to the rank of the same place in the next stage, and
  gradients back. With sequence parallelism a rank has only its part of them. With `blocking`, it
  waits for a send before its next pass, as Megatron-LM and DeepSpeed do
  (megatron/core/pipeline_parallel/p2p_communication.py; deepspeed/runtime/pipe/p2p.py).
* When a stage has done its last backward pass, its replicas all-reduce their gradients. With
  `buckets`, each part of that pass is followed by the sum of its own gradients, which overlaps with
  the rest (PyTorch DDP, Li et al., VLDB '20, section 3.2.3; Megatron-LM's `--overlap-grad-reduce`).
* With `parameters`, gradients are reduce-scattered and parameters gathered behind all of that, as
  ZeRO-1 does (Rajbhandari et al., SC '20, section 5.1; Megatron-LM's
  `--use-distributed-optimizer`).
* With `exchange`, the ranks that share a layer have different experts, or different parts of each
  sequence (`echelon.model.jobs.paradigms.tensor`).

EchelonFlows are derived from the graph (`echelon.model.jobs.arrangement`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from echelon.model.documents import (
    Durations,
    PositiveReal,
    Size,
    Sizes,
    UpTo1000,
    UpTo10000,
    UpTo100000,
    conflict,
    duplicate,
    missing,
    problem,
)
from echelon.model.jobs.algorithms import ALL_REDUCES, AllReduceName
from echelon.model.jobs.collectives import chunk_bytes
from echelon.model.jobs.combinators import Block, Step, collective, flow, parallel, series
from echelon.model.jobs.paradigm import Examples, example
from echelon.model.jobs.paradigms.tensor import Exchange, TensorLayers, check_collective
from echelon.model.jobs.pipelines import SCHEDULES, Pass, connected
from echelon.model.jobs.ranked import Mesh, RankedParadigm, value_of

Axis = Literal["data", "pipeline", "tensor"]
AXES: tuple[Axis, ...] = ("data", "pipeline", "tensor")
RANKS_FOUND = 64
"""Ranks that are looked through in the time in which a step is made."""


_BY_STAGE = (
    "forward",
    "backward",
    "weights",
    "activation",
    "gradient",
    "shared_gradient",
    "parameters",
)
"""The keys that may have a value for each stage, or for each boundary between stages."""


class MeshOfRanks(RankedParadigm):
    """Data, pipeline and tensor parallelism.

    Ranks that differ only on the last axis follow each other.
    """

    examples: ClassVar[Examples] = {
        "mesh": example(
            "mesh",
            "gpt",
            4,
            data=2,
            pipeline=2,
            tensor=2,
            ranks_per_worker=2,
            schedule="1f1b",
            micro_batches=4,
            forward="10 ms",
            backward="20 ms",
            activation="4 MB",
            gradient="20 MB",
        ),
    }
    compute_times = frozenset({"forward", "backward", "weights"})
    nests = frozenset(AXES)

    data: UpTo100000 = 1
    """The number of replicas of the model."""
    pipeline: UpTo100000 = 1
    """The number of stages: the workers that share the layers of a replica."""
    tensor: UpTo100000 = 1
    """The number of ranks that share every layer of a stage."""
    order: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=3)] = AXES
    """The axes from the outermost to the innermost."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble"] = "1f1b"
    """The order of forward and backward passes."""
    blocking: bool = False
    """Whether a stage's next pass waits until what the last one sends has arrived."""
    chunks: Annotated[int, Field(strict=True, ge=2, le=100)] | None = None
    """The number of parts of the model that each stage has; only with `schedule: interleaved`."""
    micro_batches: Annotated[
        UpTo10000 | Annotated[tuple[PositiveReal, ...], Field(min_length=1, max_length=10_000)],
        Field(
            description="how many micro-batches, e.g. 4, or their relative sizes, e.g. [1, 1, 0.5]"
        ),
    ]
    forward: Durations = Field(
        description="the forward time of a stage per micro-batch, e.g. 10 ms"
    )
    backward: Durations = Field(
        description="the backward time of a stage per micro-batch, e.g. 20 ms"
    )
    weights: Durations | None = None
    """The part of `backward` that computes gradients of weights, a pass of its own with `schedule:
    zero-bubble`. None: half of it."""
    activation: Sizes = Field(
        description="the activations of a micro-batch between stages, e.g. 4 MB"
    )
    gradient: Sizes | None = None
    """The bytes that each rank all-reduces with its replicas; needed if there are several."""
    shared_gradient: Sizes | None = None
    """The bytes that all ranks of a stage all-reduce; only with `exchange`.

    These include the ranks that share its layers.
    """
    parameters: Sizes | None = None
    """The bytes of parameters that replicas all-gather behind the sums of gradients.

    The gradients are reduce-scattered then.
    """
    buckets: UpTo1000 = 1
    """The number of parts of the last backward pass, each with a sum of gradients behind it."""
    layers: UpTo1000 = 1
    """The number of layers of a stage, each with collectives of its own if ranks share it."""
    exchange: Exchange | None = None
    """The exchange that replaces sums of ranks that share layers.

    It is of tokens for experts, or of keys and values of a context.
    """
    exchanged: Size | None = None
    """The bytes of each exchange of a layer and micro-batch; needed with `exchange`."""
    sequence_parallel: bool = False
    """Whether ranks that share a layer divide the tokens where they do not divide matrices."""
    collective: AllReduceName = "ring"
    """The algorithm of all-reduces, and of their halves."""

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        schedule = SCHEDULES[self.schedule]
        if schedule.chunked and self.chunks is None:
            raise missing("give how many parts of the model a stage has", "chunks")
        if not schedule.chunked and self.chunks is not None:
            raise self._misses_schedule("chunks", "interleaved")
        if self.weights is not None and not schedule.splits_backward:
            raise self._misses_schedule("weights", "zero-bubble")
        if self.buckets > 1 and schedule.splits_backward:
            reason = f"does not go with 'schedule: {self.schedule}' (remove it)"
            raise problem(reason, "buckets")
        if self.tensor > 1 and self.layers % self.buckets:
            reason = (
                f"is {self.buckets}, which does not divide the {self.layers} layers (give a"
                " divisor, or 1)"
            )
            raise problem(reason, "buckets")
        if (self.exchange is None) != (self.exchanged is None):
            reason = "needs 'exchanged', and that needs it (give both or none)"
            raise problem(reason, "exchange", code="missing-key")
        for key, needs in (("sequence_parallel", False), ("shared_gradient", True)):
            if getattr(self, key) and needs != bool(self.exchange):
                reason = f"goes {'only' if needs else 'not'} with 'exchange' (remove one)"
                raise conflict(reason, key)
        return self

    def _misses_schedule(self, key: str, schedule: str) -> PydanticCustomError:
        reason = (
            f"does not go with 'schedule: {self.schedule}' (remove it,"
            f" or write 'schedule: {schedule}')"
        )
        return conflict(reason, key)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if len(set(self.order)) < len(self.order):
            raise duplicate("names an axis twice (name each once)", "order")
        for axis in AXES:
            if axis not in self.order and getattr(self, axis) > 1:
                order = ", ".join(self.order)
                raise problem(f"has no place in 'order: [{order}]' (add '{axis}')", axis)
        return self

    def check_ranks(self, ranks: int) -> None:
        shape = {axis: getattr(self, axis) for axis in AXES}
        needed = self.data * self.pipeline * self.tensor
        if needed != ranks:
            product = " x ".join(f"{length} ({axis})" for axis, length in shape.items())
            reason = (
                f"{product} = {needed}, but there are {ranks} ranks (change workers,"
                " ranks_per_worker or a length)"
            )
            raise problem(reason, code="wrong-length")
        for key in _BY_STAGE:
            length = self.pipeline
            places = "stages"
            if key == "activation":
                length -= 1
                places = "stage boundaries"
            self.check_length(key, length, f"but there are {length} {places}")
        for stage in range(self.pipeline):
            if self._backward_s(stage) < 0:
                reason = "is more than 'backward', of which it is a part (give less)"
                raise problem(reason, "weights", code="too-large")
        if SCHEDULES[self.schedule].chunked and len(self.sizes) % self.pipeline:
            reason = (
                f"is {len(self.sizes)}, but '{self.schedule}' needs a multiple of the"
                f" {self.pipeline} stages"
            )
            raise problem(reason, "micro_batches")
        if self.data > 1 and self.gradient is None and self.shared_gradient is None:
            raise missing(f"{self.data} replicas all-reduce it", "gradient")
        check_collective(self.collective, self.data, self.parameters is not None)
        has_halves = self.sequence_parallel or self.exchange == "context"
        check_collective(self.collective, self.tensor, has_halves)

    @property
    def sizes(self) -> tuple[Fraction, ...]:
        """Return the relative size of each micro-batch."""
        many = self.micro_batches
        if isinstance(many, tuple):
            return many
        return (Fraction(1),) * many

    def rank_steps(self, ranks: int) -> int:
        layers = self._layers(range(self.tensor))
        directions = 3 if SCHEDULES[self.schedule].splits_backward else 2
        stages = self.data * self.pipeline
        chunks = self.chunks or 1
        passes = directions * stages * chunks * len(self.sizes)
        step_count = ALL_REDUCES[self.collective].step_count
        summed = step_count(self.data, 2 * self.pipeline * self.tensor)
        if self.shared_gradient is not None:
            summed += step_count(self.data * self.tensor, self.pipeline)
        summed *= chunks * self.buckets
        # Finding the ranks of each stage takes a little time for each rank.
        search = stages * ranks // RANKS_FOUND
        return passes * (layers.step_count() + self.tensor) + summed + search

    def steps(self, ranks: Sequence[str]) -> tuple[Step, ...]:
        mesh = Mesh(ranks, {axis: getattr(self, axis) for axis in self.order})
        groups: dict[tuple[int, int], Sequence[str]] = {}
        for replica in range(self.data):
            for stage in range(self.pipeline):
                place: dict[str, int] = {"data": replica, "pipeline": stage}
                # An axis of length 1 need not be in the order.
                listed = {axis: place[axis] for axis in place.keys() & self.order}
                groups[replica, stage] = mesh.ranks_of(listed)
        replicas: list[Block] = []
        last_passes: list[Mapping[int, Sequence[Block]]] = []
        for replica in range(self.data):
            stages = [groups[replica, stage] for stage in range(self.pipeline)]
            passes, last = self._replica(replica, stages)
            replicas.append(passes)
            last_passes.append(last)
        sums: list[Block] = []
        for stage in range(self.pipeline):
            sums += self._summed(stage, groups, last_passes)
        if self.buckets > 1:
            return parallel(*replicas, *sums).nodes()
        return series(parallel(*replicas), parallel(*sums)).nodes()

    def _layers(self, group: Sequence[Any]) -> TensorLayers:
        return TensorLayers(
            group, self.layers, self.collective, self.sequence_parallel, self.exchange
        )

    def _summed(
        self,
        stage: int,
        groups: Mapping[tuple[int, int], Sequence[str]],
        replicas: Sequence[Mapping[int, Sequence[Block]]],
    ) -> Iterator[Block]:
        """Yield the sums of a stage's gradients.

        Several are each behind their part of the last backward passes.
        """
        parts: list[Block] = []
        for chunk in replicas[0]:
            if chunk % self.pipeline == stage:
                for bucket in range(self.buckets):
                    passes = [last_passes[chunk][bucket] for last_passes in replicas]
                    parts.append(parallel(*passes))
        count = len(parts) if self.buckets > 1 else 1
        stage_groups = [groups[replica, stage] for replica in range(self.data)]
        across = [tuple(ranks) for ranks in zip(*stage_groups, strict=True)]
        everyone = [tuple(rank for ranks in stage_groups for rank in ranks)]

        def over(
            name: str,
            operation: str,
            rank_groups: Sequence[Sequence[str]],
            sizes: Sizes | None,
            bucket: int = 0,
        ) -> Block:
            if sizes is None or len(rank_groups[0]) == 1:
                return parallel()
            size = value_of(sizes, stage)
            if name != "parameters":
                size = chunk_bytes(size, count, bucket)
            suffix = f"-b{bucket + 1}" if count > 1 else ""
            collectives = []
            for number, ranks in enumerate(rank_groups, start=1):
                full_name = f"{name}-s{stage + 1}-t{number}{suffix}"
                collectives.append(collective(full_name, operation, ranks, size, self.collective))
            return parallel(*collectives)

        operation = "all-reduce" if self.parameters is None else "reduce-scatter"
        rows = []
        for bucket in range(count):
            gradients = over("gradient", operation, across, self.gradient, bucket)
            shared = over("shared", "all-reduce", everyone, self.shared_gradient, bucket)
            rows.append(parallel(gradients, shared))
        if self.buckets > 1:
            yield from map(series, parts, rows)
        yield series(*rows, over("parameters", "all-gather", across, self.parameters))

    def _replica(
        self, number: int, groups: Sequence[Sequence[str]]
    ) -> tuple[Block, dict[int, list[Block]]]:
        """Return the passes of one replica, and the parts of the last pass of each stage.

        `groups` are the ranks of its stages. Stages of the model count from 0.

        Names count stages, replicas, micro-batches and ranks of a stage from 1; with chunks, stages
        are those of the model. ``forward-s1-d1-m2`` is a pass (`TensorLayers.one_pass`),
        ``activation-s1-d1-m2-t1`` what its first rank sends to the next stage,
        ``gradient-s2-d1-m2-t1`` what it sends back.
        """
        workers = self.pipeline
        chunks = self.chunks or 1
        stages = [self._layers(group) for group in groups]
        units: dict[Pass, Block] = {}
        last: dict[int, list[Block]] = {}
        sent: dict[Pass, Block] = {}
        for each in SCHEDULES[self.schedule].passes(workers, len(self.sizes), chunks):
            worker = (each.stage - 1) % workers
            share = self.sizes[each.micro_batch - 1]
            suffix = f"s{each.stage}-d{number + 1}-m{each.micro_batch}"
            duration_s = share * self._lasts_s(each.direction, worker) / chunks
            exchanged = self._size_bytes(share, worker)
            if self.exchanged is not None:
                exchanged = max(1, round(share * self.exchanged))
            name = f"{each.direction}-{suffix}"
            goes_forward = each.direction == "forward"
            is_last = not goes_forward and each.micro_batch == len(self.sizes)
            parts: list[Block] = []
            if is_last and self.buckets > 1:
                # A single rank has no collectives in its layers, which may then be cut anywhere.
                part = replace(stages[worker], layers=max(1, self.layers // self.buckets))
                part_s = duration_s / self.buckets
                for bucket in range(1, self.buckets + 1):
                    part_name = f"{name}-b{bucket}"
                    part_pass = part.one_pass(
                        part_name, each.direction, part_s, exchanged, each.micro_batch
                    )
                    parts.append(part_pass)
                units[each] = series(*parts)
            else:
                units[each] = stages[worker].one_pass(
                    name, each.direction, duration_s, exchanged, each.micro_batch
                )
                parts.append(units[each])
            if not goes_forward:
                last[each.stage - 1] = parts

            next_worker = (each.consumer.stage - 1) % workers
            has_consumer = 1 <= each.consumer.stage <= workers * chunks
            if each.direction == "weights" or not has_consumer or next_worker == worker:
                continue
            kind = "activation" if goes_forward else "gradient"
            size = self._size_bytes(share, worker if goes_forward else next_worker)
            name = f"{kind}-{suffix}"
            src = groups[worker]
            dst = groups[next_worker]
            sent[each] = self._sent(name, src, dst, size, each.micro_batch)

        def lane(each: Pass) -> int:
            return (each.stage - 1) % workers

        followers: dict[Pass, Sequence[Block]] = {}
        if self.blocking:
            followers = {each: (transfer,) for each, transfer in sent.items()}
        return connected(units, sent, lane, followers), last

    def _sent(
        self,
        name: str,
        src: Sequence[str],
        dst: Sequence[str],
        size_bytes: int,
        micro_batch: int,
    ) -> Block:
        part = -(-size_bytes // self.tensor) if self.sequence_parallel else size_bytes
        flows = []
        pairs = zip(src, dst, strict=True)
        for number, (sender, receiver) in enumerate(pairs, start=1):
            flows.append(flow(f"{name}-t{number}", sender, receiver, part, micro_batch))
        return parallel(*flows)

    def _size_bytes(self, share: Fraction, worker: int) -> int:
        """Return the activations that leave a worker; behind the last one, those that enter it."""
        place = 0
        if isinstance(self.activation, tuple):
            place = min(worker, len(self.activation) - 1)
        return max(1, round(share * value_of(self.activation, place)))

    def _lasts_s(self, direction: str, worker: int) -> Fraction:
        if direction == "forward":
            return value_of(self.forward, worker)
        if direction == "weights":
            return self._weights_s(worker)
        return self._backward_s(worker)

    def _weights_s(self, worker: int) -> Fraction:
        if not SCHEDULES[self.schedule].splits_backward:
            return Fraction(0)
        if self.weights is None:
            return value_of(self.backward, worker) / 2
        return value_of(self.weights, worker)

    def _backward_s(self, worker: int) -> Fraction:
        return value_of(self.backward, worker) - self._weights_s(worker)
