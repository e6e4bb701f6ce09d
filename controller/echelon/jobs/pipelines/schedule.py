"""The iteration graph of a pipeline whose stages follow a schedule.

Every stage is one worker. A schedule is the order in which each stage does its passes, forward or backward, one for
each micro-batch. Everything else is the same for all schedules: a forward pass needs the activation that the stage
before sends when it has done the same micro-batch; a backward pass needs the gradient that the stage after it sends.

Names count stages and micro-batches from 1: compute units `forward-s1-m2`, `backward-s1-m2`; flows `activation-s1-m2`
(stage 1 to 2) and `gradient-s2-m2` (stage 2 to 1).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from echelon.jobs.combinators import Block, compute, flow, parallel, series
from echelon.jobs.graph import EchelonFlow


class Pass(NamedTuple):
    """One compute unit of a schedule. Stages and micro-batches count from 1."""

    direction: Literal["forward", "backward", "weights"]
    """`weights` is the part of a backward pass that computes the gradients of weights, which no other stage needs. Only
    zero-bubble schedules take it on its own."""
    stage: int
    micro_batch: int

    @property
    def unit(self) -> str:
        """Return the name of the compute unit."""
        return f"{self.direction}-s{self.stage}-m{self.micro_batch}"

    @property
    def consumer(self) -> Pass:
        """Return the pass of the neighbouring stage that needs this one's result; stages may not go so far."""
        step = 1 if self.direction == "forward" else -1
        return Pass(self.direction, self.stage + step, self.micro_batch)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The transfers across one stage boundary in one direction in an iteration: one EchelonFlow."""

    name: str
    """``activation-s1``: from stage 1 to 2; ``gradient-s2``: from stage 2 to 1."""
    passes: tuple[Pass, ...]
    """The passes that produce the flows, in the order in which the sender does them."""

    def flow(self, produced_by: Pass) -> str:
        """Return the name of the flow that a pass produces."""
        return f"{self.name}-m{produced_by.micro_batch}"

    def echelonflow(self, offsets_s: Iterable[Fraction]) -> EchelonFlow:
        """Return the EchelonFlow whose flows have these ideal finish times, seconds after that of the first."""
        return EchelonFlow(self.name, tuple(self.flow(each) for each in self.passes), tuple(offsets_s))


def pipeline(
    passes: Sequence[Pass],
    workers: Sequence[str],
    forward_s: Sequence[Fraction],
    activation_bytes: Sequence[int],
    backward_s: Sequence[Fraction] = (),
    gradient_bytes: Sequence[int] = (),
) -> tuple[Block, list[Crossing]]:
    """Return one iteration in which each stage does its passes in the order in which `passes` lists them.

    The other arguments are those of `echelon.jobs.pipelines.gpipe.gpipe`. Crossings are listed from the first boundary
    to the last and back.
    """
    lasts_s = {"forward": forward_s, "backward": backward_s}
    sizes_bytes = {"forward": activation_bytes, "backward": gradient_bytes}
    crossings = _crossings(passes, len(workers))
    units = {
        each: compute(
            each.unit,
            workers[each.stage - 1],
            lasts_s[each.direction][each.stage - 1],
            each.direction,
            each.micro_batch,
        )
        for each in passes
    }
    sent = {
        each: flow(
            crossing.flow(each),
            workers[each.stage - 1],
            workers[each.consumer.stage - 1],
            sizes_bytes[each.direction][min(each.stage, each.consumer.stage) - 1],
            each.micro_batch,
        )
        for crossing in crossings
        for each in crossing.passes
    }
    return connected(units, sent, lambda each: each.stage), crossings


def connected(
    units: Mapping[Pass, Block],
    sent: Mapping[Pass, Block],
    lane_of: Callable[[Pass], Hashable],
    behind: Mapping[Pass, Sequence[Block]] | None = None,
) -> Block:
    """Return passes and what they send, connected by order and by dependencies.

    The passes of a lane (`lane_of`) follow each other as listed, each with the blocks `behind` it. A micro-batch passes
    through the stages in each direction; `sent` holds what a pass sends to the next, if anything.
    """
    lanes: dict[Hashable, list[Block]] = {}
    for each, unit in units.items():
        lanes.setdefault(lane_of(each), []).extend((unit, *(behind or {}).get(each, ())))
    # The way of each micro-batch through the stages, in each direction.
    paths: dict[tuple[str, int], list[Block]] = {}
    for each in sorted(units, key=lambda each: each.stage if each.direction == "forward" else -each.stage):
        path = paths.setdefault((each.direction, each.micro_batch), [])
        path += [units[each], sent[each]] if each in sent else [units[each]]
    rows = (series(*row) for row in (*lanes.values(), *paths.values()))
    return parallel(*units.values(), *sent.values(), *rows)


def _crossings(passes: Sequence[Pass], stages: int) -> list[Crossing]:
    produced: dict[str, list[Pass]] = {f"activation-s{s}": [] for s in range(1, stages)}
    produced |= {f"gradient-s{s}": [] for s in range(stages, 1, -1)}
    for each in passes:
        if 1 <= each.consumer.stage <= stages:
            kind = "activation" if each.direction == "forward" else "gradient"
            produced[f"{kind}-s{each.stage}"].append(each)
    return [Crossing(name, tuple(crossing)) for name, crossing in produced.items() if crossing]
