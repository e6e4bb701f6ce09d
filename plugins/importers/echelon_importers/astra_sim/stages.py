"""The stages of a pipeline: which rows of a text each of them runs, between which sends.

A text that AICB writes for training has the layers of one stage (`num_layers` divided by `pp` in
`utils/utils.py` of aliyun/aicb), and SimAI takes all stages for the same. The rows of a micro-batch
are there `ga` times, each time from `embedding_layer` on; what stands before and behind them runs
once. `vpp` is the number of chunks into which the layers of a stage are cut, and `pp_comm` the
bytes of one send of a rank to its peer: SimAI counts ``2 x vpp x ga`` of them (`Layer.cc`). So a
micro-batch passes the stages `vpp` times, with a send from the last one to the first between.

A text for inference (`mode: 1`) has all layers of the model, which are divided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from echelon.model.progress import counted
from echelon_importers.astra_sim.cuts import (
    LAYER,
    chunks_of_layers,
    divided,
    micro_batch_bounds,
    starts_of,
)
from echelon_importers.astra_sim.header import Header
from echelon_importers.astra_sim.layers import Layer, Rows
from echelon_importers.importer import Source


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The rows of a text, as the stages of a pipeline run them."""

    stages: int
    before: Rows
    """The rows that every stage runs before its first micro-batch."""
    micro_batches: Sequence[Sequence[Rows]]
    """The rows between two sends of each micro-batch: item v is of stage ``v % stages``."""
    after: Rows
    divided: Sequence[int] = ()
    """The layers of a model in each part; empty: the file has the layers of one stage."""

    def order(self, stage: int) -> list[tuple[int, int]]:
        """Return the micro-batches and places in them that a stage runs forward, in order.

        As Megatron-LM interleaves chunks: as many micro-batches as there are stages do a chunk
        before the first of them does the next.
        """
        order: list[tuple[int, int]] = []
        numbers = range(len(self.micro_batches))
        for first in range(0, len(numbers), self.stages):
            group = numbers[first : first + self.stages]
            longest = max(len(self.micro_batches[number]) for number in group)
            for place in range(stage, longest, self.stages):
                for number in group:
                    if place < len(self.micro_batches[number]):
                        order.append((number, place))
        return order

    def note(self) -> str:
        """Return a line for the reader."""
        longest = max(len(places) for places in self.micro_batches)
        batches = counted(len(self.micro_batches), "micro-batch", "micro-batches")
        visits = counted(longest // self.stages, "time")
        sides = "all forward, then all back"
        if self.divided:
            sides = f"forward, with {', '.join(map(str, self.divided))} transformer layers"
        return f"{batches}, {visits} through each of {self.stages} stages: {sides}"


def one_stage(layers: Rows) -> Pipeline:
    """Return a pipeline of one stage, which runs the rows as they stand."""
    return Pipeline(1, (), [[layers]], ())


def cut(
    source: Source,
    header: Header,
    layers: Rows,
    taken: Rows,
    chunks: int,
) -> Pipeline:
    """Return the pipeline of a text with these layers, of which some are taken.

    `chunks` is how often a micro-batch passes each stage. Raises `DocumentError` if the text does
    not say where a micro-batch or a layer begins.
    """
    stages = header.stages
    if header.is_inference:
        parts = divided(source, taken, stages * chunks)
        sizes = [len(starts_of(part, LAYER)) for part in parts]
        return Pipeline(stages, (), [parts], (), sizes)
    count = header.number("ga", 1)
    bounds = micro_batch_bounds(source, layers, count)
    numbers = {layer.number for layer in taken}
    micro_batches = []
    for first, last in pairwise(bounds):
        places: list[Rows] = []
        for part in chunks_of_layers(source, layers[first:last], chunks):
            rows = _selected(part, numbers)
            # All stages run the same rows. What --layers leaves out of a micro-batch nobody visits.
            if rows:
                places += [rows] * stages
        if places:
            micro_batches.append(places)
    if not micro_batches:
        reason = "has no row of a micro-batch in what was chosen (choose more with --layers)"
        raise source.refusal(reason, code="out-of-range")
    before = _selected(layers[: bounds[0]], numbers)
    after = _selected(layers[bounds[-1] :], numbers)
    return Pipeline(stages, before, micro_batches, after)


def _selected(rows: Iterable[Layer], numbers: set[int]) -> Rows:
    return [row for row in rows if row.number in numbers]


def activation_note(
    header: Header,
    layers: Rows,
    model: int,
) -> list[str]:
    """Return a line for the reader if the activations that stages and groups exchange differ.

    `model` is the number of ranks of a group of model parallelism. With sequence parallelism each
    of them sends its part.
    """
    size_bytes = header.number("pp_comm", 0)
    layer = next(filter(_exchanges_activations, layers), None)
    if layer is None:
        return []
    part = layer.parts["fwd"]
    activations = part.size_bytes
    if part.kind != "all-reduce":
        activations //= model
    if activations == size_bytes:
        return []
    note = (
        f"pp_comm says {size_bytes} B, but a rank's activations in line {layer.line} have"
        f" {activations} B: the sends have pp_comm"
    )
    return [note]


def _exchanges_activations(layer: Layer) -> bool:
    part = layer.parts["fwd"]
    is_group_alone = part.kind is not None and part.scope is None
    return is_group_alone and layer.name.startswith(LAYER)
