"""PipeDream profiles, cut into stages by PipeDream's partitioner and run by its schedule.

The schedule is 1F1B-RR (Narayanan et al., SOSP '19, section 3.2). A stage's workers take mini-batches in turn. Each
begins with as many forward passes as keep the stages behind it busy, and then alternates between a forward and a
backward pass. A stage sends its activations to the next stage, which sends gradients of the same size back. After each
round of its workers, a replicated stage all-reduces its parameters. Weights are stashed, so no pass waits for those of
another mini-batch. The iteration of the job is a number of mini-batches, after which the pipeline drains; PipeDream
itself never drains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import Field

from echelon.documents import DocumentError, Rate
from echelon.importers import importer
from echelon.importers.importer import Importer, Source
from echelon.importers.pipedream.cuts import cuts
from echelon.importers.pipedream.partition import Level, Stage, partition
from echelon.importers.pipedream.profile import LayerProfile, ProfiledLayer, parse_profile
from echelon.importers.workload import Builder, Workload

_MOST_CUTS = {1: 600, 2: 250}
"""The most cuts that take seconds, by the number of levels."""


class PipeDreamOptions(importer.ImportOptions):
    """The values that a profile lacks."""

    bandwidth: Annotated[Rate, Field(description="the rate between hosts, e.g. 10 Gbit/s")]
    batches: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Mini-batches of an iteration. None: as many as there are ranks, rounded up to whole rounds of each stage."""


class PipeDream(Importer[PipeDreamOptions]):
    """A layer profile of PipeDream, `graph.txt`."""

    Options: ClassVar[type[importer.ImportOptions]] = PipeDreamOptions

    def read(self, sources: Sequence[Source]) -> Workload:
        source = self.only(sources)
        ranks = self.given_ranks(source)
        profile = parse_profile(source)
        levels = self._levels(source, ranks)
        places, left_out = cuts(profile, _MOST_CUTS[len(levels)])
        plan = partition(places, levels)
        spans = [_layers(profile, places[stage.first].layers, places[stage.last].layers) for stage in plan.stages]
        job = _Pipeline(ranks, plan.stages, spans, [places[stage.last].activation_bytes for stage in plan.stages])
        batches = self.options.batches or job.whole_rounds(ranks)
        workload = job.run(batches)
        tally = workload.tally
        tally.read["layers"] = len(profile.layers)
        tally.read["dependencies"] = sum(len(needs) for needs in profile.needs)
        tally.derived.update({"stages": len(plan.stages), "mini-batches": batches})
        tally.ignored.update(profile.ignored)
        tally.notes += [
            f"stage {number}: {len(span)} layers, {span[0].name} to {span[-1].name}, "
            f"{float(sum(layer.forward_s + layer.backward_s for layer in span)) * 1e3:.1f} ms, "
            f"on {len(stage.workers)} ranks ({_spans(stage.workers)})"
            for number, (stage, span) in enumerate(zip(plan.stages, spans, strict=True))
        ]
        tally.notes.append(f"predicted time per mini-batch: {plan.time_s * 1e3:.1f} ms")
        if left_out:
            tally.notes.append(f"not considered: {left_out}")
        return workload

    def _levels(self, source: Source, ranks: int) -> list[Level]:
        options = self.options
        local, hosts = options.ranks_per_host, ranks // options.ranks_per_host
        if local == 1:
            return [Level(hosts, options.bandwidth / 8)]
        if options.local_bandwidth is None:
            raise DocumentError(
                source.name,
                "",
                f"does not say how fast the {local} ranks of a host exchange data (give --local-bandwidth)",
                code="missing-key",
            )
        return [Level(local, options.local_bandwidth / 8), Level(hosts, options.bandwidth / 8)]


def _layers(profile: LayerProfile, before: int, behind: int) -> list[ProfiledLayer]:
    return [layer for number, layer in enumerate(profile.layers) if (behind & ~before) >> number & 1]


def _spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as people write them: ``0-3, 5``."""
    out: list[list[int]] = []
    for number in numbers:
        if out and out[-1][-1] == number - 1:
            out[-1] = [out[-1][0], number]
        else:
            out.append([number])
    return ", ".join("-".join(map(str, span)) for span in out)


class _Pipeline:
    """Stages with their layers, and the activations that leave each for the next."""

    def __init__(
        self,
        ranks: int,
        stages: Sequence[Stage],
        layers: Sequence[Sequence[ProfiledLayer]],
        activation_bytes: Sequence[int],
    ) -> None:
        self.builder = Builder(ranks)
        self.done: dict[tuple[int, bool], list[bool]] = {}
        """Whether each mini-batch has been through a stage, forward or not."""
        self.workers = [stage.workers for stage in stages]
        self.activation_bytes = activation_bytes
        self.forward_s = [sum((layer.forward_s for layer in each), Fraction(0)) for each in layers]
        self.backward_s = [sum((layer.backward_s for layer in each), Fraction(0)) for each in layers]
        self.parameter_bytes = [sum(layer.parameter_bytes for layer in each) for each in layers]

    def whole_rounds(self, batches: int) -> int:
        """Return the least multiple of the largest number of replicas that is at least `batches`."""
        most = max(map(len, self.workers))
        return -(-batches // most) * most

    def run(self, batches: int) -> Workload:
        """Return the graph of `batches` mini-batches."""
        todo = {
            (stage, replica): self._order(stage, range(replica, batches, len(workers)))[::-1]
            for stage, workers in enumerate(self.workers)
            for replica in range(len(workers))
        }
        last = len(self.workers) - 1
        self.done = {(stage, forward): [False] * batches for stage in range(last + 1) for forward in (True, False)}
        # No worker waits in a circle: a pass waits for those of earlier mini-batches, or of its own at other stages.
        while any(todo.values()):
            for (stage, _), passes in todo.items():
                while passes:
                    forward, batch, rounds = passes[-1]
                    at_end = stage == (0 if forward else last)
                    before = self.done[stage, False]
                    if rounds and not all(before[each] for each in self._round(stage, rounds - 1)):
                        break
                    if not at_end and not self.done[stage + (-1 if forward else 1), forward][batch]:
                        break
                    (self._forward if forward else self._backward)(stage, batch)
                    self.done[stage, forward][batch] = True
                    if not forward:
                        self._synchronise(stage, batch)
                    passes.pop()
        return self.builder.workload()

    def _order(self, stage: int, batches: range) -> list[tuple[bool, int, int]]:
        """Return the passes of one worker in their order: forward or not, mini-batch, rounds completed before."""
        replicas = len(self.workers[stage])
        ahead = min(-(-sum(map(len, self.workers[stage:])) // replicas), len(batches))
        order = [(True, batch, 0) for batch in batches[:ahead]]
        for place, batch in enumerate(batches):
            order.append((False, batch, place))
            order += [(True, later, place + 1) for later in batches[place + ahead : place + ahead + 1]]
        return order

    def _round(self, stage: int, number: int) -> range:
        """Return the mini-batches after which a stage synchronises its parameters for the `number`th time, from 0."""
        replicas = len(self.workers[stage])
        return range(number * replicas, min((number + 1) * replicas, len(self.done[stage, False])))

    def _forward(self, stage: int, batch: int) -> None:
        rank = self._rank(stage, batch)
        if stage:
            self.builder.wait(rank, f"act-b{batch}-s{stage - 1}")
        self.builder.compute(f"fwd-b{batch}-s{stage}", rank, self.forward_s[stage])
        if stage < len(self.workers) - 1:
            size_bytes = self.activation_bytes[stage]
            self.builder.send(f"act-b{batch}-s{stage}", rank, self._rank(stage + 1, batch), size_bytes)

    def _backward(self, stage: int, batch: int) -> None:
        rank = self._rank(stage, batch)
        if stage < len(self.workers) - 1:
            self.builder.wait(rank, f"grad-b{batch}-s{stage + 1}")
        self.builder.compute(f"bwd-b{batch}-s{stage}", rank, self.backward_s[stage])
        if stage:
            size_bytes = self.activation_bytes[stage - 1]
            self.builder.send(f"grad-b{batch}-s{stage}", rank, self._rank(stage - 1, batch), size_bytes)

    def _synchronise(self, stage: int, batch: int) -> None:
        """All-reduce the parameters if all workers of the stage have done their mini-batch of this round."""
        workers, size_bytes = self.workers[stage], self.parameter_bytes[stage]
        number = batch // len(workers)
        if (
            len(workers) > 1
            and size_bytes
            and all(self.done[stage, False][each] for each in self._round(stage, number))
        ):
            group = self.builder.group(f"stage{stage}-", workers)
            self.builder.collective(f"sync-k{number}-s{stage}", "all-reduce", group, workers, size_bytes)

    def _rank(self, stage: int, batch: int) -> int:
        return self.workers[stage][batch % len(self.workers[stage])]
