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
recognition:              # how switches tell the job's flows (default: {by: shim})
  by: bytes               # shim: by the header that Echelon's own senders write; or bytes, for unmodified senders:
  protocol: tcp           # tcp (default) or udp
  source_port: 5001       # each worker has one connection to each worker that it sends to, from this port
  destination_port: 5002  # to this one
  idle_gap: 50 ms         # silence after which the job's first connection begins a new iteration
```

By bytes, the flows of a connection are told by how many bytes it has carried since the iteration began, so the sizes in
the file must be what the senders really send. `idle_gap` is shorter than the pause of the job's first connection
between two iterations, and longer than what separates its packets otherwise.
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
    PositiveDuration,
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

    def flow_count(self, workers: int) -> int:
        """How many flows the graph of an iteration has."""
        return (workers - 1) * self.micro_batches * (1 if self.backward is None else 2)

    def connection_bytes(self, workers: int) -> int:
        """The most that a connection carries in an iteration."""
        sizes = [*_each(self.activation, workers - 1)]
        if self.gradient is not None:
            sizes += _each(self.gradient, workers - 1)
        return max(sizes) * self.micro_batches

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

    def flow_count(self, workers: int) -> int:
        """How many flows the graph of an iteration has."""
        return 2 * (workers - 1) * workers

    def connection_bytes(self, workers: int) -> int:
        """The most that a connection may carry in an iteration."""
        return 2 * (workers - 1) * -(-self.gradient // workers)

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """The graph of one iteration on `workers`, in order of the ring."""
        return ring_all_reduce(workers, self.compute, self.gradient)

    def check(self, workers: Sequence[str]) -> None:
        """Raises `problem` if the gradient cannot be cut into one chunk for each of `workers`."""
        if self.gradient < len(workers):
            raise problem(
                f"of {self.gradient} B is less than a byte for each of {len(workers)} workers (give more)", "gradient"
            )


Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
COUNTED_BYTES = 1 << 32
"""So many bytes of a connection and iteration can a switch tell apart."""
LONGEST_GAP_S = Fraction(1 << 32, 10**6)
SHORTEST_GAP_S = Fraction(1, 10**6)
"""Switches measure the gap in microseconds, in 32 bits."""
SHIM_PORT = 0xEF10
"""A UDP packet to this port begins with the shim header."""


class RecognitionSpec(Section):
    """How switches recognise the packets of the job's flows."""

    by: Literal["shim", "bytes"] = "shim"
    """shim: the sender writes it into every packet. bytes: by connection, and what it has carried in this iteration."""
    protocol: Literal["tcp", "udp"] | None = None
    """None: tcp."""
    source_port: Port | None = None
    destination_port: Port | None = None
    idle_gap: PositiveDuration | None = None
    """Seconds without a packet after which the next one begins a new iteration."""

    @model_validator(mode="after")
    def _check(self) -> RecognitionSpec:
        needed = ("source_port", "destination_port", "idle_gap")
        for key in ("protocol", *needed):
            given = getattr(self, key) is not None
            if given and self.by == "shim":
                raise problem("does not go with 'by: shim' (remove it, or write 'by: bytes')", key)
            if not given and self.by == "bytes" and key in needed:
                raise problem("is missing (switches need it to recognise flows by bytes)", key)
        if self.idle_gap is not None and not SHORTEST_GAP_S <= self.idle_gap < LONGEST_GAP_S:
            raise problem("is not between 1 us and 71 min (give what the pause between iterations exceeds)", "idle_gap")
        if self.protocol == "udp" and self.destination_port == SHIM_PORT:
            raise problem(f"{SHIM_PORT} is the port of senders that write the shim (use another)", "destination_port")
        return self


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
    recognition: RecognitionSpec = RecognitionSpec()

    @property
    def paradigm(self) -> PipelineSpec | DataSpec:
        """The section that `parallelism` names."""
        section: PipelineSpec | DataSpec = getattr(self, self.parallelism)
        return section

    @property
    def flow_count(self) -> int:
        """How many flows its iteration graph has; without building it."""
        return self.paradigm.flow_count(len(self.workers))

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
        carried = self.paradigm.connection_bytes(len(self.workers))
        if self.recognition.by == "bytes" and carried >= COUNTED_BYTES:
            raise problem(
                f"'bytes' cannot tell flows where a connection carries {carried} B in an iteration (4 GiB is the most; "
                "use the shim)",
                "recognition",
                "by",
            )
        return self


def load_job_spec(path: str | Path) -> JobSpec:
    """The specification in the YAML file `path`. Raises `DocumentError`."""
    return parse_document(JobSpec, read_document(path), str(path))


def _each(value: V | tuple[V, ...], count: int) -> tuple[V, ...]:
    return value if isinstance(value, tuple) else (value,) * count
