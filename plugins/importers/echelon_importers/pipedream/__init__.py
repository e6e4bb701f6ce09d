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

from echelon.model.documents import Rate
from echelon.model.jobs.analysis import ordered
from echelon.model.jobs.pipelines import ReplicatedStage, one_f_one_b_rr
from echelon_importers import importer
from echelon_importers.importer import Importer, Source
from echelon_importers.pipedream.cuts import cuts
from echelon_importers.pipedream.partition import Level, Stage, partition
from echelon_importers.pipedream.profile import ProfiledLayer, parse_profile
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
        batches = self.options.batches or _whole_rounds(plan.stages, ranks)
        if 5 * batches * len(plan.stages) > MOST_NODES:
            raise TooLargeError
        stages = []
        notes = []
        groups = {}
        for number, stage in enumerate(plan.stages, start=1):
            last = places[stage.last]
            before = places[stage.first].layers
            layers = profile.chosen(last.layers & ~before)
            replicated = _stage(stage.workers, layers, last.activation_bytes)
            stages.append(replicated)
            groups[tuple(replicated.ranks)] = f"stage{number}"
            milliseconds = float(replicated.forward_s + replicated.backward_s) * 1e3
            notes.append(
                f"stage {number}: {len(layers)} layers, {layers[0].name} to {layers[-1].name},"
                f" {milliseconds:.1f} ms, on {len(stage.workers)} ranks ({_spans(stage.workers)})"
            )
        nodes = one_f_one_b_rr(stages, batches).nodes()

        tally = ReadCounts()
        tally.read["layers"] = len(profile.layers)
        tally.read["dependencies"] = sum(map(len, profile.needs))
        tally.derived.update({"stages": len(plan.stages), "mini-batches": batches})
        tally.ignored.update(profile.ignored)
        tally.notes += notes
        tally.notes.append(f"predicted time per mini-batch: {plan.time_s * 1e3:.1f} ms")
        if left_out:
            tally.notes.append(f"not considered: {left_out}")
        by_name = {node.name: node for node in nodes}
        order = ordered({node.name: node.after for node in nodes})
        in_order = tuple(by_name[name] for name in order)
        return Workload(ranks, groups, in_order, tally)

    def _levels(self, source: Source, ranks: int) -> list[Level]:
        options = self.options
        local = options.ranks_per_host
        hosts = ranks // options.ranks_per_host
        if local == 1:
            return [Level(hosts, options.bandwidth / 8)]
        if options.local_bandwidth is None:
            reason = (
                f"does not say how fast the {local} ranks of a host exchange data (give"
                " --local-bandwidth)"
            )
            raise source.refusal(reason, code="missing-key")
        within = Level(local, options.local_bandwidth / 8)
        return [within, Level(hosts, options.bandwidth / 8)]


def _whole_rounds(stages: Sequence[Stage], batches: int) -> int:
    """Return the least multiple of the largest number of replicas that is at least `batches`."""
    most = max(len(stage.workers) for stage in stages)
    return -(-batches // most) * most


def _stage(
    workers: Sequence[int],
    layers: Sequence[ProfiledLayer],
    activation_bytes: int,
) -> ReplicatedStage:
    forward_s = sum((layer.forward_s for layer in layers), Fraction(0))
    backward_s = sum((layer.backward_s for layer in layers), Fraction(0))
    parameter_bytes = sum(layer.parameter_bytes for layer in layers)
    ranks = tuple(map(str, workers))
    # Gradients are as large as activations.
    return ReplicatedStage(
        ranks, forward_s, backward_s, activation_bytes, activation_bytes, parameter_bytes
    )


def _spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as people write them: ``0-3, 5``."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            first, *_ = spans[-1]
            spans[-1] = [first, number]
        else:
            spans.append([number])
    return ", ".join("-".join(map(str, span)) for span in spans)
