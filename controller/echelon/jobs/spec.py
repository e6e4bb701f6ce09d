"""The job file.

```yaml
job: bert                 # name
parallelism: pipeline     # or: data; the section of that name follows
workers: [h1, h2]         # hosts; of a pipeline in order of its stages
start: 0 s                # of the first iteration (default 0)
weight: 1                 # importance against other jobs (default 1)
pipeline:
  micro_batches: 3
  forward: 1 s            # per micro-batch; one value, or a list with one per stage
  backward: 2 s           # likewise; left out: the iteration is the forward pass alone
  activation: 2.5 MB      # per micro-batch; one value, or a list with one per stage boundary
  gradient: 2.5 MB        # likewise; default: as the activations
data:
  compute: 500 ms         # of each worker before the all-reduce
  gradient: 5 MB          # what is all-reduced
```
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from echelon.documents import (
    Duration,
    Durations,
    Name,
    PositiveReal,
    Section,
    Size,
    Sizes,
    parse_document,
    problem,
    read_document,
)
from echelon.jobs.data_parallel import ring_all_reduce
from echelon.jobs.iteration import IterationGraph
from echelon.jobs.pipeline import gpipe

V = TypeVar("V")


class PipelineSpec(Section):
    """GPipe. A list has one value per stage (compute) or per stage boundary (data), a scalar serves all of them."""

    micro_batches: Annotated[int, Field(strict=True, ge=1, le=1000, description="how many micro-batches, e.g. 4")]
    forward: Annotated[Durations, Field(description="the forward compute time per micro-batch, e.g. 1 s")]
    activation: Annotated[Sizes, Field(description="the bytes per micro-batch between stages, e.g. 2.5 MB")]
    backward: Durations | None = None
    """None: forward pass only."""
    gradient: Sizes | None = None
    """None: as `activation`. Only with `backward`."""

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """The graph of one iteration on `workers`, one per stage."""
        stages = len(workers)
        return gpipe(
            workers,
            self.micro_batches,
            forward_s=_each(self.forward, stages),
            activation_bytes=_each(self.activation, stages - 1),
            backward_s=None if self.backward is None else _each(self.backward, stages),
            gradient_bytes=None if self.gradient is None else _each(self.gradient, stages - 1),
        )

    def check(self, workers: Sequence[str]) -> None:
        """Raises `problem` if the lists do not fit the number of `workers`."""
        stages = len(workers)
        lists: list[tuple[str, Fraction | int | tuple[Fraction, ...] | tuple[int, ...] | None, int, str]] = [
            ("forward", self.forward, stages, "stages"),
            ("backward", self.backward, stages, "stages"),
            ("activation", self.activation, stages - 1, "stage boundaries"),
            ("gradient", self.gradient, stages - 1, "stage boundaries"),
        ]
        for key, value, wanted, of in lists:
            if isinstance(value, tuple) and len(value) != wanted:
                raise problem(
                    f"has {len(value)} values but {stages} workers make {wanted} {of} (give one value or {wanted})", key
                )
        if self.gradient is not None and self.backward is None:
            raise problem("is given without 'backward' (add 'backward' or remove it)", "gradient")


class DataSpec(Section):
    """Data parallelism with one ring all-reduce per iteration."""

    compute: Annotated[Duration, Field(description="the compute time of an iteration, e.g. 500 ms")]
    gradient: Annotated[Size, Field(description="the bytes to all-reduce, e.g. 5 MB")]

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """The graph of one iteration on `workers`, in order of the ring."""
        return ring_all_reduce(workers, self.compute, self.gradient)

    def check(self, workers: Sequence[str]) -> None:
        """Raises `problem` if the gradient cannot be cut into one chunk for each of `workers`."""
        if self.gradient < len(workers):
            raise problem(
                f"of {self.gradient} B is less than a byte for each of {len(workers)} workers (give more)", "gradient"
            )


class JobSpec(Section):
    """A job as its file describes it, checked as far as it can be without a fabric."""

    job: Annotated[Name, Field(description="the job's name")]
    parallelism: Annotated[Literal["pipeline", "data"], Field(description="'pipeline' or 'data'")]
    workers: Annotated[tuple[Name, ...], Field(min_length=2, max_length=1000, description="the hosts, as [h1, h2]")]
    """Of a pipeline in order of its stages, of a ring in order of the ring."""
    start: Duration = Fraction(0)
    """When the first iteration begins, seconds."""
    weight: PositiveReal = Fraction(1)
    """Multiplies the job's normalised tardiness when it is compared with other jobs'."""
    pipeline: PipelineSpec | None = None
    data: DataSpec | None = None

    @property
    def paradigm(self) -> PipelineSpec | DataSpec:
        """The section that `parallelism` names."""
        section: PipelineSpec | DataSpec = getattr(self, self.parallelism)
        return section

    @model_validator(mode="after")
    def _check(self) -> JobSpec:
        for index, worker in enumerate(self.workers):
            if worker in self.workers[:index]:
                raise problem(f"'{worker}' is a worker already (name each host once)", "workers", index)
        for key in ("pipeline", "data"):
            given = getattr(self, key) is not None
            if given and key != self.parallelism:
                raise problem(f"does not go with 'parallelism: {self.parallelism}' (remove one of them)", key)
            if not given and key == self.parallelism:
                raise problem(f"is missing (add the section that 'parallelism: {key}' needs)", key)
        try:
            self.paradigm.check(self.workers)
        except PydanticCustomError as error:
            context = error.context or {}
            raise problem(context["reason"], self.parallelism, *context["at"]) from None
        return self


def load_job_spec(path: str | Path) -> JobSpec:
    """The specification in the YAML file `path`. Raises `DocumentError`."""
    return parse_document(JobSpec, read_document(path), str(path))


def _each(value: V | tuple[V, ...], count: int) -> tuple[V, ...]:
    return value if isinstance(value, tuple) else (value,) * count
