"""The `traffic` section of a scenario: flows that belong to no job, over TCP, each with an end.

`scenario` describes its keys. A source draws its flows from a model of
`echelon_lab.traffic.generators`, or takes them from a schedule; what it yields depends on the
scenario's seed and the source's name alone, so that a source that is added leaves the others' flows
as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from echelon.model.documents import Count, Name, PositiveReal, Rate, Section, problem
from echelon.model.quantities import excerpt
from echelon_lab.traffic.generators import Burst, Consistent, Long, TrafficModel, pairs_of, stream
from echelon_lab.traffic.schedule import Pair, Schedule, ScheduledFlow
from echelon_lab.traffic.sizes import SizeDistribution, builtin_sizes, load_sizes

DEFAULT_SIZES = "web_search"


@dataclass(frozen=True, slots=True)
class TrafficSource:
    """A source of flows that belong to no job."""

    name: str
    flows: TrafficModel | Schedule
    """The model that draws the flows, or a schedule with all of them."""
    ecn: bool = False
    """Whether the senders negotiate explicit congestion notification (RFC 3168)."""

    def stream(self, seed: int) -> Iterator[ScheduledFlow]:
        """Return the flows by start time.

        A model's flows are endless, and the same for the same `seed` (of the scenario).
        """
        if isinstance(self.flows, Schedule):
            return iter(self.flows.flows)
        return stream(self.flows, f"{seed}/{self.name}")

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of (source, destination) that flows are between, each once."""
        if isinstance(self.flows, Schedule):
            return tuple(dict.fromkeys((flow.src, flow.dst) for flow in self.flows.flows))
        return tuple(dict.fromkeys(self.flows.pairs))


def _hosts(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        names = value
    else:
        names = (value,)
    if not names or not all(isinstance(name, str) for name in names):
        raise problem(
            f"{excerpt(value)} is not a host (give the name of a host, or a list of names)",
            code="not-a-name",
        )
    return tuple(dict.fromkeys(names))


Hosts = Annotated[
    tuple[str, ...],
    PlainValidator(_hosts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]


def _schedule(value: object) -> Schedule:
    if not isinstance(value, Schedule):
        raise problem(
            f"{excerpt(value)} is not the path of a schedule (name a file next to the scenario)"
        )
    return value


def _sizes(value: object) -> SizeDistribution:
    if isinstance(value, SizeDistribution):
        return value
    if not isinstance(value, str) or value not in builtin_sizes():
        builtin = ", ".join(builtin_sizes())
        raise problem(
            f"{excerpt(value)} is not a distribution of sizes"
            f" (use {builtin}, or the path of a file)",
            code="not-allowed",
        )
    return load_sizes(value)


ReadSchedule = Annotated[Schedule, PlainValidator(_schedule), WithJsonSchema({"type": "string"})]
"""A schedule; a file gives its path."""
Sizes = Annotated[SizeDistribution, PlainValidator(_sizes), WithJsonSchema({"type": "string"})]
"""A distribution of flow sizes; a file gives its name, or the path of its file."""


class TrafficSpec(Section):
    """One source. The files that it names have been read already, by the loader of the scenario."""

    name: Annotated[Name, Field(description="a name for it")]
    model: Literal["consistent", "burst", "long"] | None = None
    """The model that draws the flows; the alternative is `schedule`."""
    schedule: ReadSchedule | None = None
    """The path of a file with flows at given times."""
    src: Hosts = ()
    """A host or a list of hosts; flows are between all pairs."""
    dst: Hosts = ()
    """A host or a list of hosts."""
    load: Rate | None = None
    """Payload of all pairs together."""
    sizes: Sizes | None = None
    """The distribution of flow sizes: its name, or the path of its file."""
    size_scale: PositiveReal | None = None
    """Multiplies the sizes. Default: 1."""
    gaps: Literal["exponential", "poisson"] | None = None
    """The distribution of the times between flows. Default: exponential."""
    parallel: Count | None = None
    """The number of flows of each pair at a time, for the model `long`. Default: 1."""
    ecn: bool = False
    """Its connections negotiate ECN."""

    @model_validator(mode="after")
    def _check(self) -> TrafficSpec:
        if (self.model is None) == (self.schedule is None):
            raise problem(
                "needs either 'model' or 'schedule' (give one of them)", code="conflicting-key"
            )
        self._check_presence()
        try:
            flows = self.source.flows
            if not isinstance(flows, Schedule):
                flows.flows_in(flows.window_us)
        except ValueError as error:
            raise problem(str(error)) from None
        return self

    def _check_presence(self) -> None:
        needed: tuple[str, ...] = ()
        optional: tuple[str, ...] = ()
        kind = "a schedule"
        if self.model is not None:
            needed = _NEEDED
            optional = _MODELS[self.model].optional
            kind = f"model '{self.model}'"
        for key in (*_NEEDED, *_OPTIONAL):
            has_value = bool(getattr(self, key))
            if key in needed and not has_value:
                raise problem(f"is missing ({kind} needs it)", key, code="missing-key")
            if has_value and key not in needed and key not in optional:
                raise problem(f"does not go with {kind} (remove it)", key, code="conflicting-key")

    @cached_property
    def source(self) -> TrafficSource:
        """The source that the section describes."""
        flows: TrafficModel | Schedule | None = self.schedule
        if self.model is not None:
            flows = _MODELS[self.model].build(self)
        assert flows is not None
        return TrafficSource(self.name, flows, self.ecn)


@dataclass(frozen=True, slots=True)
class _Model:
    """A kind of traffic model: its builder from a section, and the keys of the section."""

    build: Callable[[TrafficSpec], TrafficModel]
    optional: tuple[str, ...]
    """Keys that the section may have besides `_NEEDED`."""


_NEEDED = ("src", "dst", "load")
_OF_SIZES = ("sizes", "size_scale", "gaps")
_OPTIONAL = (*_OF_SIZES, "parallel")


def _drawn(model: type[Consistent | Burst]) -> Callable[[TrafficSpec], TrafficModel]:
    def build(spec: TrafficSpec) -> TrafficModel:
        assert spec.load is not None
        pairs = pairs_of(spec.src, spec.dst)
        sizes = spec.sizes or load_sizes(DEFAULT_SIZES)
        if spec.size_scale is not None:
            sizes = sizes.scaled(spec.size_scale)
        return model(pairs, spec.load, sizes, gaps=spec.gaps or "exponential")

    return build


def _long(spec: TrafficSpec) -> TrafficModel:
    assert spec.load is not None
    return Long(pairs_of(spec.src, spec.dst), spec.load, parallel=spec.parallel or 1)


_MODELS: Mapping[str, _Model] = {
    Consistent.name: _Model(_drawn(Consistent), _OF_SIZES),
    Burst.name: _Model(_drawn(Burst), _OF_SIZES),
    Long.name: _Model(_long, ("parallel",)),
}
