"""Pipeline parallelism: one worker per stage, and micro-batches that go through all stages.

The schedules are those of `echelon.model.jobs.pipelines`: GPipe and 1F1B. There is an EchelonFlow
for each stage boundary and direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field

from echelon.model.documents import Durations, Sizes, UpTo1000, conflict, missing
from echelon.model.jobs.graph import IterationGraph
from echelon.model.jobs.paradigm import Examples, Paradigm, example
from echelon.model.jobs.pipelines import gpipe, one_f_one_b

V = TypeVar("V")


class _Schedule(NamedTuple):
    build: Callable[..., IterationGraph]
    forward_alone: bool
    """Whether the iteration may be the forward pass alone."""


SCHEDULES: Mapping[str, _Schedule] = {
    "gpipe": _Schedule(gpipe, True),
    "1f1b": _Schedule(one_f_one_b, False),
}


class Pipeline(Paradigm):
    """A pipeline; `workers` are in the order of its stages.

    A list has one value for each stage (compute) or each boundary between stages (data). A single
    value is for all.
    """

    examples: ClassVar[Examples] = {
        "pipeline": example(
            "pipeline",
            "bert",
            2,
            micro_batches=3,
            forward="1 s",
            backward=["2 s", "2 s"],
            activation="2.5 MB",
        ),
    }
    compute_times = frozenset({"forward", "backward"})

    schedule: Literal["gpipe", "1f1b"] = "gpipe"
    """The order of passes.

    gpipe: all forward, then all backward. 1f1b: alternately one forward and one backward.
    """
    micro_batches: UpTo1000 = Field(description="how many micro-batches, e.g. 4")
    forward: Durations = Field(description="the forward compute time per micro-batch, e.g. 1 s")
    activation: Sizes = Field(description="the bytes per micro-batch between stages, e.g. 2.5 MB")
    backward: Durations | None = None
    """The backward compute time per micro-batch, seconds.

    None: the iteration is the forward pass alone.
    """
    gradient: Sizes | None = None
    """Bytes per micro-batch in the backward direction. None: as `activation`. Needs `backward`."""

    def flow_count(self, workers: int) -> int:
        directions = 1 if self.backward is None else 2
        return (workers - 1) * self.micro_batches * directions

    def connection_bytes(self, workers: int) -> int:
        sizes = _each(self.activation, workers - 1)
        if self.gradient is not None:
            sizes += _each(self.gradient, workers - 1)
        return max(sizes) * self.micro_batches

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        stages = len(workers)
        backward_s = gradient_bytes = None
        if self.backward is not None:
            backward_s = _each(self.backward, stages)
        if self.gradient is not None:
            gradient_bytes = _each(self.gradient, stages - 1)
        return SCHEDULES[self.schedule].build(
            workers,
            self.micro_batches,
            forward_s=_each(self.forward, stages),
            activation_bytes=_each(self.activation, stages - 1),
            backward_s=backward_s,
            gradient_bytes=gradient_bytes,
        )

    def check(self, workers: Sequence[str]) -> None:
        stages = len(workers)
        for key in ("forward", "backward", "activation", "gradient"):
            length = stages
            places = "stages"
            if key in ("activation", "gradient"):
                length = stages - 1
                places = "stage boundaries"
            self.check_length(key, length, f"but {stages} workers make {length} {places}")
        if self.gradient is not None and self.backward is None:
            raise conflict("is given without 'backward' (add 'backward' or remove it)", "gradient")
        schedule = SCHEDULES[self.schedule]
        if self.backward is None and not schedule.forward_alone:
            raise missing(
                f"'{self.schedule}' alternates forward and backward: give its time", "backward"
            )


def _each(value: V | tuple[V, ...], count: int) -> tuple[V, ...]:
    if isinstance(value, tuple):
        return value
    return (value,) * count
