"""The sections of the job file that describe what a job does in an iteration, one for each paradigm."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import Field, model_validator

from echelon.documents import Duration, Durations, Name, Section, Size, Sizes, problem
from echelon.jobs.bucketed_all_reduce import bucketed_all_reduce
from echelon.jobs.data_parallel import ring_all_reduce
from echelon.jobs.iteration import IterationGraph
from echelon.jobs.one_f_one_b import one_f_one_b
from echelon.jobs.parameter_server import parameter_server
from echelon.jobs.pipeline import gpipe

V = TypeVar("V")


class ParadigmSpec(Section):
    """What every one of these sections can say."""

    @abstractmethod
    def flow_count(self, workers: int) -> int:
        """How many flows the graph of an iteration has; without building it."""

    @abstractmethod
    def connection_bytes(self, workers: int) -> int:
        """The most that a connection may carry in an iteration."""

    @abstractmethod
    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """The graph of one iteration on `workers`."""

    def check(self, workers: Sequence[str]) -> None:
        """Raises `problem` if the section does not fit the job's `workers`."""

    def other_hosts(self) -> Mapping[str, str]:
        """Hosts of the job that are no workers, and the key that names each."""
        return {}


class _Schedule(NamedTuple):
    build: Callable[..., IterationGraph]
    forward_alone: bool
    """Whether there is one without a backward pass."""


SCHEDULES: Mapping[str, _Schedule] = {"gpipe": _Schedule(gpipe, True), "1f1b": _Schedule(one_f_one_b, False)}


class PipelineSpec(ParadigmSpec):
    """A list has one value per stage (compute) or per stage boundary (data), a scalar serves all of them."""

    schedule: Literal["gpipe", "1f1b"] = "gpipe"
    micro_batches: Annotated[int, Field(strict=True, ge=1, le=1000, description="how many micro-batches, e.g. 4")]
    forward: Annotated[Durations, Field(description="the forward compute time per micro-batch, e.g. 1 s")]
    activation: Annotated[Sizes, Field(description="the bytes per micro-batch between stages, e.g. 2.5 MB")]
    backward: Durations | None = None
    """None: forward pass only."""
    gradient: Sizes | None = None
    """None: as `activation`. Only with `backward`."""

    def flow_count(self, workers: int) -> int:
        return (workers - 1) * self.micro_batches * (1 if self.backward is None else 2)

    def connection_bytes(self, workers: int) -> int:
        sizes = [*_each(self.activation, workers - 1)]
        if self.gradient is not None:
            sizes += _each(self.gradient, workers - 1)
        return max(sizes) * self.micro_batches

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """`workers` are in order of the stages."""
        stages = len(workers)
        return SCHEDULES[self.schedule].build(
            workers,
            self.micro_batches,
            forward_s=_each(self.forward, stages),
            activation_bytes=_each(self.activation, stages - 1),
            backward_s=None if self.backward is None else _each(self.backward, stages),
            gradient_bytes=None if self.gradient is None else _each(self.gradient, stages - 1),
        )

    def check(self, workers: Sequence[str]) -> None:
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
                    f"has {len(value)} values but {stages} workers make {wanted} {of} (give one value or {wanted})",
                    key,
                    code="wrong-length",
                )
        if self.gradient is not None and self.backward is None:
            raise problem(
                "is given without 'backward' (add 'backward' or remove it)", "gradient", code="conflicting-key"
            )
        if self.backward is None and not SCHEDULES[self.schedule].forward_alone:
            raise problem(
                f"is missing ('{self.schedule}' alternates forward and backward: give its time)",
                "backward",
                code="missing-key",
            )


class DataSpec(ParadigmSpec):
    """Data parallelism by ring all-reduce: one after all computing, or one for each bucket of the backward pass."""

    gradient: Annotated[Size, Field(description="the bytes to all-reduce, e.g. 5 MB")]
    compute: Duration | None = None
    """Seconds before the all-reduce; or else `forward`, `backward` and `buckets`."""
    forward: Duration | None = None
    backward: Duration | None = None
    """Seconds of the whole pass; while it goes on, what it has computed is all-reduced."""
    buckets: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None

    def flow_count(self, workers: int) -> int:
        return 2 * (workers - 1) * workers * (self.buckets or 1)

    def connection_bytes(self, workers: int) -> int:
        buckets = self.buckets or 1
        size, larger = divmod(self.gradient, buckets)
        chunks = larger * -(-(size + 1) // workers) + (buckets - larger) * -(-size // workers)
        return 2 * (workers - 1) * chunks

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        """`workers` are in order of the ring."""
        if self.compute is not None:
            return ring_all_reduce(workers, self.compute, self.gradient)
        # Checked where the file was read.
        assert self.forward is not None
        assert self.backward is not None
        assert self.buckets is not None
        return bucketed_all_reduce(workers, self.forward, self.backward, self.buckets, self.gradient)

    def check(self, workers: Sequence[str]) -> None:
        """Raises `problem` if the gradient cannot be cut into one chunk of each bucket for each of `workers`."""
        if self.gradient < len(workers) * (self.buckets or 1):
            each = f"each of {len(workers)} workers" + (f" in each of {self.buckets} buckets" if self.buckets else "")
            raise problem(
                f"of {self.gradient} B is less than a byte for {each} (give more)", "gradient", code="too-small"
            )

    @model_validator(mode="after")
    def _check_passes(self) -> DataSpec:
        passes = {"forward": self.forward, "backward": self.backward, "buckets": self.buckets}
        given = [key for key, value in passes.items() if value is not None]
        if self.compute is not None and given:
            raise problem(
                "does not go with 'compute' (give one, or forward, backward and buckets)",
                given[0],
                code="conflicting-key",
            )
        if self.compute is None and not given:
            raise problem(
                "is missing (give the compute time of an iteration, e.g. 500 ms; or forward, backward and buckets)",
                "compute",
                code="missing-key",
            )
        for key, value in passes.items():
            if given and value is None:
                raise problem(f"is missing ('{given[0]}' needs forward, backward and buckets)", key, code="missing-key")
        return self


class ParameterServerSpec(ParadigmSpec):
    """Data parallelism with a parameter server, synchronous."""

    server: Annotated[Name, Field(description="the host that aggregates, e.g. h0")]
    compute: Annotated[Duration, Field(description="the compute time of an iteration, e.g. 500 ms")]
    gradient: Annotated[Size, Field(description="the bytes that each worker pushes, and pulls, e.g. 5 MB")]
    aggregate: Duration = Fraction(0)
    """Seconds for the gradients of all workers together."""

    def flow_count(self, workers: int) -> int:
        return 2 * workers

    def connection_bytes(self, workers: int) -> int:
        return self.gradient

    def iteration(self, workers: Sequence[str]) -> IterationGraph:
        return parameter_server(workers, self.server, self.compute, self.gradient, self.aggregate)

    def check(self, workers: Sequence[str]) -> None:
        if self.server in workers:
            raise problem(
                f"'{self.server}' is one of the workers (give the server a host of its own: what it sends to itself is "
                "no traffic)",
                "server",
                code="duplicate",
            )

    def other_hosts(self) -> Mapping[str, str]:
        return {self.server: "server"}


def _each(value: V | tuple[V, ...], count: int) -> tuple[V, ...]:
    return value if isinstance(value, tuple) else (value,) * count
