"""Text workloads of ASTRA-sim 1.0, and of SimAI, which extends them.

```
HYBRID_TRANSFORMER model_parallel_NPU_group: 4
2
Embedding  -1  300      ALLGATHER  8388608  1        NONE       0        1        NONE       0         10
Q1         -1  3145728  NONE       0        2162688  ALLREDUCE  8388608  2228224  ALLREDUCE  33554432  10
```

The first line names the training loop, the second says how many layers follow. A layer has a name,
a reserved number, and three times a compute time in cycles of 1 ns, a collective and its bytes: for
the forward pass, for the gradients of inputs and for those of weights; last comes the delay of an
update. (`inputs/workload/README.md` of astra-sim/astra-sim, branch ASTRA-sim-1.0.)

The loops are those of `Workload.cc` there. A forward pass waits for each layer's collective. The
backward pass goes from the last layer to the first. `DATA` computes the gradients of weights first,
and never waits for their collective; the loops with model parallelism compute the gradients of
inputs first, start their collective, compute the gradients of weights, start theirs, and wait for
the first one. A layer in `checkpoint_initiates` repeats the forward passes since the last layer in
`checkpoints`. `HYBRID_DLRM` runs nothing but all-to-alls in the forward pass, and waits for that of
the first layer (the embeddings) at the last bottom layer; the one for their gradients starts when
the backward pass leaves the top layers. An iteration ends when everything has finished.

Differences: `MICRO` runs the collectives of all layers at the same time, as Chakra's converter
does, not only that of the first layer. The delays of updates are left out. SimAI's BROADCAST, which
its simulator passes over, is imported.

The bytes of an all-gather are those that a rank has before it in ASTRA-sim (`collective/Ring.cc`),
and those that it has after it in SimAI's files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from echelon.model.documents import suggestion
from echelon.model.jobs.ranked import Mesh
from echelon.model.quantities import excerpt
from echelon_importers import importer
from echelon_importers.importer import Importer, Source, Span
from echelon_importers.workload import Builder, CollectiveKind, Workload

_CYCLE_S = Fraction(1, 10**9)
_COLLECTIVES: Mapping[str, CollectiveKind | None] = {
    "NONE": None,
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
    "BROADCAST": "broadcast",
}
_SCOPES = {"_DP_EP": "dp_ep", "_EP": "ep"}
"""Suffixes of SimAI's collectives, and the groups of ranks that run them."""
_COLUMNS = 12

Phase = Literal["fwd", "ig", "wg"]


class _Loop(NamedTuple):
    """A training loop."""

    model: str | None
    """The ranks that exchange activations: `model`, `others`, `all`, or None."""
    data: str | None
    """The ranks that exchange gradients of weights."""
    weights_first: bool = False
    """Whether the gradients of weights are computed before those of inputs."""
    first_layer: bool = False
    """Whether the first layer exchanges the gradients of its inputs, too."""
    forward_only: CollectiveKind | None = None
    """The only collective that a forward pass runs; None: it runs all."""


_DLRM = _Loop(
    "all",
    "all",
    weights_first=True,
    forward_only="all-to-all",
)
_LOOPS: Mapping[str, _Loop] = {
    "DATA": _Loop(None, "all", weights_first=True),
    "MODEL": _Loop("all", None),
    "HYBRID_DATA_MODEL": _Loop("model", "others"),
    "HYBRID_MODEL_DATA": _Loop("others", "model"),
    "HYBRID_TRANSFORMER": _Loop("model", "others", first_layer=True),
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _Loop("model", "others", first_layer=True),
    "HYBRID_CUSTOMIZED": _Loop(None, None),
    "HYBRID_DLRM": _DLRM,
    "HYBRID_DLRM_ENHANCED": _DLRM,
    "DISTRIBUTED_INFERENCE": _Loop("all", None),
    "MICRO": _Loop(None, "all"),
}
_LAYER_LOOPS = ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
"""The loops that a layer of HYBRID_CUSTOMIZED may have."""


class _Part(NamedTuple):
    """One of the three parts of a layer."""

    compute_s: Fraction
    kind: CollectiveKind | None
    scope: str | None
    """The group that the collective names; None: that of the loop."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Layer:
    number: int
    """Counted from 1."""
    name: str
    parts: Mapping[Phase, _Part]
    loop: _Loop


@dataclass(frozen=True, slots=True)
class _Header:
    loop: str
    settings: Mapping[str, tuple[int, ...]]
    """Numbers by key; `checkpoints` and `checkpoint_initiates` are layers counted from 0."""

    def number(self, key: str, default: int) -> int:
        """Return a setting with one number."""
        return self.settings.get(key, (default,))[0]


class AstraSimOptions(importer.ImportOptions):
    """The values that a text workload lacks, and the part of it to take."""

    layers: Span | None = None
    """The layers to take, counted from 1. None: all."""
    model: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Consecutive ranks of a group of model parallelism (HYBRID_MODEL_DATA: data parallelism)."""


class AstraSim(Importer[AstraSimOptions]):
    """A text workload of ASTRA-sim 1.0."""

    Options: ClassVar[type[importer.ImportOptions]] = AstraSimOptions
    gathers_input: ClassVar[bool] = True
    """Whether the bytes of an all-gather are those that a rank has before it, rather than after."""

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        header, layers = self._parse(source)
        mesh = self._mesh(source, header)
        return _Training(header, layers, mesh, self.gathers_input).run()

    def _parse(self, source: Source) -> tuple[_Header, list[_Layer]]:
        lines = [(number, line.split()) for number, line in source.lines()]
        if len(lines) < 2:
            raise source.refusal("has no layers (check the format)", code="empty-document")
        (first, words), (second, count), *rows = lines
        header = _header(source, first, words)
        declared = source.integer(second, count[0], "a number of layers", most=10**6)
        if len(count) > 1:
            reason = f"{excerpt(' '.join(count))} is not a number of layers"
            raise source.fault(second, reason, "write one number")
        wanted = self.options.layers
        present = min(declared, len(rows))
        is_covered = wanted is not None and wanted.stop - 1 <= present
        if len(rows) != declared and not is_covered:
            reason = f"says {declared} layers, but {len(rows)} follow"
            raise source.fault(
                second, reason, "correct it, or take those that are right with --layers"
            )
        layers = []
        for number, (place, words) in enumerate(rows, start=1):
            layers.append(_layer(source, place, number, words, header))
        if wanted is None:
            return header, layers
        if wanted.stop - 1 > len(layers):
            reason = f"has {len(layers)} layers (choose among them with --layers)"
            raise source.refusal(reason, code="out-of-range")
        return header, [layer for layer in layers if layer.number in wanted]

    def _mesh(self, source: Source, header: _Header) -> Mesh[int]:
        stages = header.number("pp:", 1)
        everybody = header.number("all_gpus:", 0) // stages
        if self.options.ranks is None and everybody:
            ranks = everybody
        else:
            ranks = self.given_ranks(source)
        size = self.options.model
        if size is None:
            size = header.number("model_parallel_NPU_group:", 0)
        loop = _LOOPS[header.loop]
        has_parts = not {"model", "others"}.isdisjoint((loop.model, loop.data))
        if not size and (has_parts or header.loop == "HYBRID_CUSTOMIZED"):
            reason = (
                f"does not say how many ranks a group has, which {header.loop} needs (give --set"
                " model=N)"
            )
            raise source.refusal(reason, code="missing-key")
        experts = header.number("ep:", 1)
        size = size or 1
        if ranks < 2 or ranks % (size * experts):
            reason = (
                f"{ranks} ranks are not a multiple of {size} (model) x {experts} (experts) (change"
                " --hosts)"
            )
            raise source.refusal(reason, code="wrong-length")
        sizes = {"dp": ranks // size // experts, "ep": experts, "model": size}
        return Mesh(range(ranks), sizes)


def _header(
    source: Source,
    line: int,
    words: Sequence[str],
) -> _Header:
    loop = words[0]
    if loop not in _LOOPS:
        reason = f"{excerpt(loop)} is not a training loop"
        raise source.fault(line, reason, suggestion(loop, _LOOPS))
    settings: dict[str, tuple[int, ...]] = {}
    if loop.startswith("HYBRID_DLRM") and len(words) == 2:
        words = (loop, "DLRM_LAST_BOTTOM_LAYER:", words[1])
    rest = list(words[:0:-1])
    while rest:
        key = rest.pop()
        if not key.endswith(":"):
            key += ":"
        count = 1
        if key in ("checkpoints:", "checkpoint_initiates:"):
            word = rest.pop() if rest else ""
            count = source.integer(line, word, f"how many {key}", most=10**4)
        elif key not in _SETTINGS:
            raise source.fault(line, f"{excerpt(key)} is not a setting", suggestion(key, _SETTINGS))
        values = []
        for _ in range(count):
            word = rest.pop() if rest else ""
            values.append(source.integer(line, word, f"a number for {key}"))
        if key in _SETTINGS and key not in _FROM_0 and values[0] < 1:
            raise source.fault(line, f"{key} {values[0]} is less than 1", "correct it")
        settings[key] = tuple(values)
    return _Header(loop, settings)


_FROM_0 = ("pp_comm:", "DLRM_LAST_BOTTOM_LAYER:")
"""The settings that may be 0."""
_SETTINGS = (
    "model_parallel_NPU_group:",
    "ep:",
    "pp:",
    "vpp:",
    "ga:",
    "all_gpus:",
    "pp_comm:",
    "DLRM_LAST_BOTTOM_LAYER:",
)


def _layer(
    source: Source,
    line: int,
    number: int,
    words: Sequence[str],
    header: _Header,
) -> _Layer:
    custom = header.loop == "HYBRID_CUSTOMIZED"
    columns = _COLUMNS + custom
    if len(words) != columns:
        reason = f"has {len(words)} columns"
        raise source.fault(line, reason, f"a layer has {columns}: correct it")
    if not re.fullmatch(r"-?[0-9]{1,9}", words[1]):
        raise source.fault(line, f"{excerpt(words[1])} is not a number", "write -1")
    loop = _LOOPS[header.loop]
    if custom:
        loop_name = words[-1]
        if loop_name not in _LAYER_LOOPS:
            reason = f"{excerpt(loop_name)} is not a loop of a layer"
            raise source.fault(line, reason, f"use {', '.join(_LAYER_LOOPS)}")
        loop = _LOOPS[loop_name]._replace(weights_first=False)
    forward = _part(source, line, words[2:5])
    input_gradient = _part(source, line, words[5:8])
    weight_gradient = _part(source, line, words[8:11])
    source.integer(line, words[11], "an update time")
    parts: dict[Phase, _Part] = {"fwd": forward, "ig": input_gradient, "wg": weight_gradient}
    return _Layer(number, words[0], parts, loop)


def _part(
    source: Source,
    line: int,
    words: Sequence[str],
) -> _Part:
    time, name, size = words
    cycles = source.integer(line, time, "a compute time")
    size_bytes = source.integer(line, size, "a number of bytes")
    scope = None
    for suffix, group in _SCOPES.items():
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            scope = group
            break
    if name not in _COLLECTIVES:
        reason = f"{excerpt(words[1])} is not a collective"
        raise source.fault(line, reason, suggestion(name, _COLLECTIVES))
    kind = _COLLECTIVES[name]
    if kind is None and size_bytes:
        raise source.fault(line, f"NONE has {size_bytes} bytes", "name the collective, or give 0")
    if not size_bytes:
        kind = None
    return _Part(cycles * _CYCLE_S, kind, scope, size_bytes)


class _Training:
    """The iteration of a text workload."""

    def __init__(
        self,
        header: _Header,
        layers: Sequence[_Layer],
        mesh: Mesh[int],
        gathers_input: bool,
    ) -> None:
        self.header = header
        self.layers = layers
        self.gathers_input = gathers_input
        self.builder = Builder(len(mesh.ranks))
        self.groups = {
            "all": mesh.groups("dp", "ep", "model"),
            "model": mesh.groups("model"),
            "others": mesh.groups("dp", "ep"),
            "ep": mesh.groups("ep"),
            "dp_ep": mesh.groups("dp"),
        }

    def scope(self, layer: _Layer, phase: Phase) -> str | None:
        """Return the groups that run a collective of a layer; None if none do."""
        loop = layer.loop
        part = layer.parts[phase]
        is_first = layer is self.layers[0]
        has_input_gradient = loop.first_layer or loop.weights_first
        if phase == "ig" and is_first and not has_input_gradient:
            return None
        if phase == "fwd" and loop.forward_only not in (None, part.kind):
            return None
        if part.scope is not None:
            return part.scope
        return loop.data if phase == "wg" else loop.model

    def run(self) -> Workload:
        """Return the iteration."""
        tally = self.builder.tally
        tally.read["layers"] = len(self.layers)
        tally.ignored["update delays"] = len(self.layers)
        for key in ("pp:", "vpp:", "ga:", "pp_comm:"):
            least = 0 if key == "pp_comm:" else 1
            if self.header.number(key, 0) > least:
                tally.ignored[f"{key.rstrip(':')} (the file has the layers of one stage)"] = 1
        loop = self.header.loop
        if loop == "MICRO":
            for layer in self.layers:
                self._communicate(layer, "wg", waits=False)
            tally.ignored["compute times (MICRO has none)"] = 3 * len(self.layers)
        else:
            self._forward()
            if loop == "DISTRIBUTED_INFERENCE":
                tally.ignored["backward passes (inference has none)"] = len(self.layers)
            elif _LOOPS[loop].weights_first:
                self._backward_weights_first()
            else:
                self._backward()
        present = 0
        for layer in self.layers:
            present += sum(part.kind is not None for part in layer.parts.values())
        alone = tally.ignored["collectives of groups of one rank"]
        never = present - tally.read["collectives"] - alone
        tally.ignored["collectives that this loop never runs"] = never
        return self.builder.workload()

    def _forward(self) -> None:
        if self.header.loop.startswith("HYBRID_DLRM"):
            bottom = self.header.number("DLRM_LAST_BOTTOM_LAYER:", 0)
        else:
            bottom = -1
        for layer in self.layers:
            self._compute(layer, "fwd")
            if bottom >= 0:
                is_last_bottom = layer.number == bottom + 1
                if is_last_bottom and layer is not self.layers[0]:
                    self._wait(self.layers[0], "fwd")
                self._communicate(layer, "fwd", waits=False)
            else:
                self._communicate(layer, "fwd", waits=True)

    def _backward_weights_first(self) -> None:
        bottom = self.header.number("DLRM_LAST_BOTTOM_LAYER:", -2)
        for layer in reversed(self.layers):
            self._compute(layer, "wg")
            self._communicate(layer, "wg", waits=False)
            if layer is not self.layers[0]:
                self._compute(layer, "ig")
                if layer.number == bottom + 2:
                    self._communicate(self.layers[0], "ig", waits=False)

    def _backward(self) -> None:
        for layer in reversed(self.layers):
            for repeated in self._repeated(layer):
                self._compute(repeated, "fwd", "again")
                self._communicate(
                    repeated,
                    "fwd",
                    waits=True,
                    suffix="again",
                )
            self._compute(layer, "ig")
            self._communicate(layer, "ig", waits=False)
            self._compute(layer, "wg")
            self._communicate(layer, "wg", waits=False)
            self._wait(layer, "ig")

    def _repeated(self, layer: _Layer) -> Iterator[_Layer]:
        """Yield the layers whose forward pass is repeated before the backward pass of `layer`."""
        settings = self.header.settings
        if layer.number - 1 not in settings.get("checkpoint_initiates:", ()):
            return
        checkpoints = settings.get("checkpoints:", ())
        before = [checkpoint for checkpoint in checkpoints if checkpoint < layer.number]
        first = max(before, default=0)
        for repeated in self.layers:
            if first < repeated.number < layer.number:
                self.builder.tally.derived["forward passes repeated from checkpoints"] += 1
                yield repeated

    def _compute(
        self,
        layer: _Layer,
        phase: Phase,
        suffix: str = "",
    ) -> None:
        self.builder.tally.read["compute times"] += not suffix
        for rank in range(self.builder.ranks):
            name = _name(layer, phase, suffix, f"r{rank}")
            self.builder.compute(name, rank, layer.parts[phase].compute_s)

    def _communicate(
        self,
        layer: _Layer,
        phase: Phase,
        *,
        waits: bool,
        suffix: str = "",
    ) -> None:
        part = layer.parts[phase]
        scope = self.scope(layer, phase)
        if part.kind is None or scope is None:
            return
        if len(self.groups[scope][0]) < 2:
            self.builder.tally.ignored["collectives of groups of one rank"] += not suffix
            return
        self.builder.tally.read["collectives"] += not suffix
        for number, ranks in enumerate(self.groups[scope]):
            size_bytes = part.size_bytes
            if part.kind == "all-gather" and self.gathers_input:
                size_bytes *= len(ranks)
            name = _name(layer, phase, suffix, f"g{number}")
            self.builder.collective(name, part.kind, scope, ranks, size_bytes, waits=waits)

    def _wait(self, layer: _Layer, phase: Phase) -> None:
        """Let every rank wait for the collective that a layer has started."""
        scope = self.scope(layer, phase)
        if layer.parts[phase].kind is None or scope is None:
            return
        groups = self.groups[scope]
        if len(groups[0]) < 2:
            return
        for number, ranks in enumerate(groups):
            name = _name(layer, phase, "", f"g{number}")
            for rank in ranks:
                self.builder.wait(rank, name)


def _name(
    layer: _Layer,
    phase: Phase,
    suffix: str,
    place: str,
) -> str:
    parts = (phase, str(layer.number), suffix, place)
    return "-".join(filter(None, parts))
