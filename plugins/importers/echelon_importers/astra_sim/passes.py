"""The passes of a training loop over rows, on the ranks of one stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from echelon.model.jobs.ranked import Mesh
from echelon_importers.astra_sim.header import Header
from echelon_importers.astra_sim.layers import Layer, Part, Phase, Rows
from echelon_importers.astra_sim.loops import LOOPS
from echelon_importers.workload import Builder, Ranks

ALONE = "collectives of groups of one rank"
_SCOPES: Mapping[str, tuple[str, ...]] = {
    "all": ("dp", "ep", "model"),
    "model": ("model",),
    "others": ("dp", "ep"),
    "ep": ("ep",),
    "dp_ep": ("dp",),
}
"""Groups of a stage, and the axes along which their ranks lie."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings that hold for all stages."""

    header: Header
    first_row: int
    """The number of the first layer that was taken."""
    gathers_input: bool
    """Whether the bytes of an all-gather are those that a rank has before it, rather than after."""
    counted: set[tuple[str, int, Phase]] = field(default_factory=set)
    """The parts of layers that have been counted, by noun: stages may run the same rows."""


class Task(NamedTuple):
    """A part of a layer that a stage runs."""

    layer: Layer
    phase: Phase
    suffix: str = ""
    """The end of its name where the same part ran before."""

    @property
    def part(self) -> Part:
        """Return what the task computes and sends."""
        return self.layer.parts[self.phase]


class Passes:
    """The forward and backward passes of the ranks of one stage."""

    def __init__(
        self,
        builder: Builder,
        plan: Plan,
        mesh: Mesh[int],
        stage: int,
    ) -> None:
        self.builder = builder
        self.plan = plan
        stages = mesh.axes["pp"]
        size = len(mesh.ranks) // stages
        self.ranks = range(stage * size, (stage + 1) * size)
        self.tag = f"s{stage}" if stages > 1 else ""
        """The beginning of names, since several stages may run the same rows."""
        self.groups: dict[str, Sequence[Ranks]] = {}
        for scope, axes in _SCOPES.items():
            groups = mesh.groups(*axes)
            self.groups[scope] = [ranks for ranks in groups if ranks[0] in self.ranks]

    def scope(self, task: Task) -> str | None:
        """Return the groups that run the collective of a task; None if none do."""
        loop = task.layer.loop
        is_first = task.layer.number == self.plan.first_row
        has_input_gradient = loop.first_layer or loop.weights_first
        if task.part.kind is None:
            return None
        if task.phase == "ig" and is_first and not has_input_gradient:
            return None
        if task.phase == "fwd" and loop.forward_only not in (None, task.part.kind):
            return None
        if task.part.scope is not None:
            return task.part.scope
        return loop.data if task.phase == "wg" else loop.model

    def all_at_once(self, rows: Rows) -> None:
        """Start the collectives of all rows: a micro-benchmark."""
        for layer in rows:
            self._communicate(Task(layer, "wg"))
        ignored = self.builder.tally.ignored
        ignored["compute times (MICRO has none)"] = 3 * len(rows)

    def forward(self, rows: Rows) -> None:
        """Run the forward pass of rows."""
        if self.plan.header.loop.startswith("HYBRID_DLRM"):
            self._forward_of_dlrm(rows)
            return
        for layer in rows:
            task = Task(layer, "fwd")
            self._compute(task)
            self._communicate(task, waits=True)

    def _forward_of_dlrm(self, rows: Rows) -> None:
        bottom = self.plan.header.number("DLRM_LAST_BOTTOM_LAYER", 0)
        for layer in rows:
            task = Task(layer, "fwd")
            self._compute(task)
            is_last_bottom = layer.number == bottom + 1
            if is_last_bottom and layer is not rows[0]:
                embeddings = Task(rows[0], "fwd")
                self._wait(embeddings)
            self._communicate(task)

    def backward(self, rows: Rows) -> None:
        """Run the backward pass of rows, from the last one to the first."""
        if LOOPS[self.plan.header.loop].weights_first:
            self._weights_first(rows)
            return
        for layer in reversed(rows):
            for repeated in self._repeated(layer, rows):
                task = Task(repeated, "fwd", "again")
                self._compute(task)
                self._communicate(task, waits=True)
            inputs = Task(layer, "ig")
            weights = Task(layer, "wg")
            self._compute(inputs)
            self._communicate(inputs, waits=layer.loop.inputs_block)
            self._compute(weights)
            self._communicate(weights)
            self._wait(inputs)

    def _weights_first(self, rows: Rows) -> None:
        bottom = self.plan.header.number("DLRM_LAST_BOTTOM_LAYER", -2)
        for layer in reversed(rows):
            weights = Task(layer, "wg")
            self._compute(weights)
            self._communicate(weights)
            if layer is rows[0]:
                continue
            inputs = Task(layer, "ig")
            self._compute(inputs)
            if layer.number == bottom + 2:
                embeddings = Task(rows[0], "ig")
                self._communicate(embeddings)

    def _repeated(self, layer: Layer, rows: Rows) -> Iterator[Layer]:
        """Yield the layers whose forward pass is repeated before the backward pass of `layer`."""
        settings = self.plan.header.settings
        if layer.number - 1 not in settings.get("checkpoint_initiates", ()):
            return
        checkpoints = settings.get("checkpoints", ())
        before = [checkpoint for checkpoint in checkpoints if checkpoint < layer.number]
        first = max(before, default=0)
        derived = self.builder.tally.derived
        for repeated in rows:
            if first < repeated.number < layer.number:
                derived["forward passes repeated from checkpoints"] += 1
                yield repeated

    def _compute(self, task: Task) -> None:
        """Let every rank of the stage compute a part of a layer."""
        self._count(self.builder.tally.read, "compute times", task)
        for rank in self.ranks:
            name = self._name(task, f"r{rank}")
            self.builder.compute(name, rank, task.part.compute_s)

    def _communicate(self, task: Task, *, waits: bool = False) -> None:
        """Run the collective of a part of a layer in all its groups."""
        scope = self.scope(task)
        kind = task.part.kind
        if kind is None or scope is None:
            return
        groups = self.groups[scope]
        if len(groups[0]) < 2:
            self._count(self.builder.tally.ignored, ALONE, task)
            return
        self._count(self.builder.tally.read, "collectives", task)
        size_bytes = task.part.size_bytes
        if kind == "all-gather" and self.plan.gathers_input:
            size_bytes *= len(groups[0])
        for number, ranks in enumerate(groups):
            name = self._name(task, f"g{number}")
            self.builder.collective(name, kind, scope, ranks, size_bytes, waits=waits)

    def _wait(self, task: Task) -> None:
        """Let every rank wait for the collective of a part of a layer, which it has started."""
        scope = self.scope(task)
        if scope is None:
            return
        groups = self.groups[scope]
        if len(groups[0]) < 2:
            return
        for number, ranks in enumerate(groups):
            name = self._name(task, f"g{number}")
            for rank in ranks:
                self.builder.wait(rank, name)

    def _count(
        self,
        counts: Counter[str],
        noun: str,
        task: Task,
    ) -> None:
        """Count a part of a layer once, however often and on however many stages it runs."""
        key = (noun, task.layer.number, task.phase)
        if key not in self.plan.counted:
            self.plan.counted.add(key)
            counts[noun] += 1

    def _name(self, task: Task, place: str) -> str:
        row = str(task.layer.number)
        parts = (self.tag, task.phase, row, task.suffix, place)
        return "-".join(filter(None, parts))
