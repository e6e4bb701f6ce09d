"""PipeDream profiles, cut into stages by PipeDream's partitioner and run by its schedule.

`echelon.model.jobs.pipelines` has the schedule. A stage sends its activations to the next stage,
which sends gradients of the same size back. An iteration of the job is a number of mini-batches,
after which the pipeline is empty; PipeDream itself empties it only when training pauses.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.model.documents import DocumentError, Rate
from echelon.model.jobs.analysis import ordered
from echelon.model.jobs.pipelines import ReplicatedStage, one_f_one_b_rr
from echelon_importers import importer
from echelon_importers.importer import Importer, Source
from echelon_importers.pipedream.cuts import cuts
from echelon_importers.pipedream.partition import Level, Stage, partition
from echelon_importers.pipedream.profile import LayerProfile, ProfiledLayer, parse_profile
from echelon_importers.workload import MOST_NODES, ReadCounts, TooLargeError, Workload

_MOST_CUTS = {1: 600, 2: 250}
"""The most cuts that take seconds, by the number of levels."""


class PipeDreamOptions(importer.ImportOptions):
    """The values that a profile lacks."""

    bandwidth: Annotated[Rate, Field(description="the rate between hosts, e.g. 10 Gbit/s")]
    batches: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Mini-batches of an iteration.

    None: as many as there are ranks, rounded up to whole rounds of each stage.
    """


class PipeDreamProfile(Importer[PipeDreamOptions]):
    """A layer profile of PipeDream, `graph.txt`."""

    Options: ClassVar[type[importer.ImportOptions]] = PipeDreamOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        ranks = self.given_ranks(source)
        profile = parse_profile(source)
        levels = self._levels(source, ranks)
        places, left_out = cuts(profile, _MOST_CUTS[len(levels)])
        plan = partition(places, levels)
        spans = [
            _layers(profile, places[stage.first].layers, places[stage.last].layers)
            for stage in plan.stages
        ]
        batches = self.options.batches or _whole_rounds(plan.stages, ranks)
        if 5 * batches * len(plan.stages) > MOST_NODES:
            raise TooLargeError
        stages = [
            _stage(stage.workers, span, places[stage.last].activation_bytes)
            for stage, span in zip(plan.stages, spans, strict=True)
        ]
        nodes = one_f_one_b_rr(stages, batches).nodes()
        tally = ReadCounts()
        tally.read["layers"] = len(profile.layers)
        tally.read["dependencies"] = sum(len(needs) for needs in profile.needs)
        tally.derived.update({"stages": len(plan.stages), "mini-batches": batches})
        tally.ignored.update(profile.ignored)
        tally.notes += [
            f"stage {number}: {len(span)} layers, {span[0].name} to {span[-1].name}, "
            f"{float(sum(layer.forward_s + layer.backward_s for layer in span)) * 1e3:.1f} ms, "
            f"on {len(stage.workers)} ranks ({_spans(stage.workers)})"
            for number, (stage, span) in enumerate(zip(plan.stages, spans, strict=True), start=1)
        ]
        tally.notes.append(f"predicted time per mini-batch: {plan.time_s * 1e3:.1f} ms")
        if left_out:
            tally.notes.append(f"not considered: {left_out}")
        order = ordered({node.name: node.after for node in nodes})
        by_name = {node.name: node for node in nodes}
        groups = {
            tuple(stage.ranks): f"stage{number}" for number, stage in enumerate(stages, start=1)
        }
        return Workload(ranks, groups, tuple(by_name[name] for name in order), tally)

    def _levels(self, source: Source, ranks: int) -> list[Level]:
        options = self.options
        local = options.ranks_per_host
        hosts = ranks // options.ranks_per_host
        if local == 1:
            return [Level(hosts, options.bandwidth / 8)]
        if options.local_bandwidth is None:
            raise DocumentError(
                source.name,
                "",
                f"does not say how fast the {local} ranks of a host exchange data (give"
                " --local-bandwidth)",
                code="missing-key",
            )
        return [Level(local, options.local_bandwidth / 8), Level(hosts, options.bandwidth / 8)]


def _layers(profile: LayerProfile, before: int, behind: int) -> list[ProfiledLayer]:
    return [
        layer for number, layer in enumerate(profile.layers) if (behind & ~before) >> number & 1
    ]


def _whole_rounds(stages: Sequence[Stage], batches: int) -> int:
    """Return the least multiple of the largest number of replicas that is at least `batches`."""
    most = max(len(stage.workers) for stage in stages)
    return -(-batches // most) * most


def _stage(
    workers: Sequence[int], layers: Sequence[ProfiledLayer], activation_bytes: int
) -> ReplicatedStage:
    return ReplicatedStage(
        tuple(map(str, workers)),
        sum((layer.forward_s for layer in layers), Fraction(0)),
        sum((layer.backward_s for layer in layers), Fraction(0)),
        activation_bytes,
        activation_bytes,
        sum(layer.parameter_bytes for layer in layers),
    )


def _spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as people write them: ``0-3, 5``."""
    out: list[list[int]] = []
    for number in numbers:
        if out and out[-1][-1] == number - 1:
            out[-1] = [out[-1][0], number]
        else:
            out.append([number])
    return ", ".join("-".join(map(str, span)) for span in out)
