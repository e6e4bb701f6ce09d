"""The importers of text workloads: from the bytes of a file to the iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from echelon_importers import importer
from echelon_importers.astra_sim.iteration import Iteration
from echelon_importers.astra_sim.mesh import ranks_of_text, replicas_note
from echelon_importers.astra_sim.options import AstraSimOptions
from echelon_importers.astra_sim.passes import ALONE, Plan
from echelon_importers.astra_sim.stages import Pipeline, activation_note, cut, one_stage
from echelon_importers.astra_sim.text import Text, parse_text
from echelon_importers.astra_sim.times import completed
from echelon_importers.importer import Importer, Source
from echelon_importers.workload import ReadCounts, Workload


class AstraSim(Importer[AstraSimOptions]):
    """A text workload of ASTRA-sim 1.0."""

    Options: ClassVar[type[importer.ImportOptions]] = AstraSimOptions
    gathers_input: ClassVar[bool] = True
    """Whether the bytes of an all-gather are those that a rank has before it, rather than after."""

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        text = parse_text(source, self.options)
        mesh = ranks_of_text(self, source, text.header)
        pipeline = self._pipeline(source, text)

        first_row = text.taken[0].number
        plan = Plan(text.header, first_row, self.gathers_input)
        workload = Iteration(plan, pipeline, mesh).run()

        tally = workload.tally
        _count(tally, text)
        tally.notes += replicas_note(len(mesh.ranks), text.header.number("all_gpus", 0))
        if self.options.pp is not None:
            tally.notes.append("one stage alone (--set pp=1): no sends between stages")
        if pipeline.stages > 1:
            tally.notes.append(pipeline.note())
            tally.notes += activation_note(text.header, text.layers, mesh.axes["model"])
        return completed(source, workload, self.options.computing, self.options.gpu)

    def _pipeline(self, source: Source, text: Text) -> Pipeline:
        header = text.header
        if header.stages == 1:
            return one_stage(text.taken)
        chunks = self.options.vpp or header.number("vpp", 1)
        return cut(source, header, text.layers, text.taken, chunks)


class SimAi(AstraSim):
    """A text workload of SimAI."""

    gathers_input: ClassVar[bool] = False


def _count(tally: ReadCounts, text: Text) -> None:
    """Count what was read and what was not, after the iteration has been made."""
    number = len(text.taken)
    tally.read["layers"] = number
    ignored = tally.ignored
    ignored["update delays"] = number
    if text.header.is_inference:
        ignored["backward passes (inference has none)"] = number
    unused = text.header.unused()
    if unused:
        noun = f"settings that change nothing here ({', '.join(unused)})"
        ignored[noun] = len(unused)

    present = 0
    for layer in text.taken:
        for part in layer.parts.values():
            present += part.kind is not None
            ignored["sizes of NONE, which is not sent"] += part.unsent_bytes > 0
            ignored["collectives of no bytes"] += part.is_empty
    never = present - tally.read["collectives"] - ignored[ALONE]
    ignored["collectives that this loop never runs"] = never
