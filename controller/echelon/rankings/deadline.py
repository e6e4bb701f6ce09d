"""Ranking by ideal finish time (EchelonFlow, HotNets '22)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from echelon.rankings.base import Rank, Ranking

if TYPE_CHECKING:
    from echelon.allocation import ActiveFlow


@dataclass(frozen=True, slots=True)
class Relative:
    """Levels relative to the most urgent flow at the port, by tardiness with memory.

    The rank of a packet is (now - d + E) / `period_s` - `head_start`, with d the ideal finish time of its flow and E
    the memory of its job (`Memory`). The most urgent flow at a port is in queue `highest`, and others are one queue
    lower for each of the ascending `steps` by which their rank is behind.
    """

    period_s: Fraction
    head_start: Fraction
    alone_tardiness_s: Fraction
    steps: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Deadline:
    """The switch ranks each packet by its slack: reference time of `echelonflow` + `offset_s` - now.

    `thresholds_s` are `highest - lowest` ascending tardiness values in seconds: a packet whose tardiness has reached k
    of them goes to queue `lowest + k`. If `relative` is given, it decides instead of them.
    """

    echelonflow: str
    offset_s: Fraction
    thresholds_s: tuple[Fraction, ...]
    lowest: int = 0
    highest: int = 7
    relative: Relative | None = None

    @property
    def queues(self) -> range:
        return range(self.lowest, self.highest + 1)


@dataclass(slots=True)
class Memory:
    """What a job remembers of how late the network made it in past iterations: E, in seconds.

    After each iteration, E becomes 3/4 (E + delay). The delay is the largest e - d of the job's flows in that
    iteration, less the same maximum of the job alone on the fabric. It is the delay in the network, not the change of
    the iteration time, so a wrong profile of compute times does not distort it.
    """

    delay_s: Fraction | int = 0
    """E."""
    iteration: int = 0
    latest_s: Fraction | None = None
    """The largest e - d so far in `iteration`."""

    def begin(self, iteration: int, alone_tardiness_s: Fraction) -> None:
        """Enter an iteration, unless it has begun before."""
        if iteration > self.iteration:
            if self.latest_s is not None:
                self.delay_s = (self.delay_s + self.latest_s - alone_tardiness_s) * 3 / 4
            self.iteration, self.latest_s = iteration, None

    def finish(self, late_s: Fraction) -> None:
        """Note that a flow has finished `late_s` after its ideal finish time."""
        if self.latest_s is None or late_s > self.latest_s:
            self.latest_s = late_s


@dataclass(frozen=True, slots=True)
class Line:
    """A rank as a linear function of time: `value` now, growing by `slope` per second."""

    value: Fraction
    slope: Fraction


GRAINS = 10**9
"""Ranks closer than 1 / GRAINS count as equal, so that rounding cannot make a change of levels come twice."""


def relative_levels(
    lines: Sequence[Line], steps: Sequence[tuple[Fraction, ...]]
) -> tuple[list[int], list[Fraction | None]]:
    """Return how many levels each flow is below the most urgent one at a port, and for how many seconds that holds.

    `lines` are the ranks of the flows, and `steps` the ascending steps of each. A flow is one level lower for each step
    by which it is behind the most urgent flow. None: the level holds for as long as the same flows are there. The
    numbers hold from now on: what changes at this very moment has changed.
    """
    top = max(lines, key=lambda line: (line.value, line.slope))
    while near := [each for each in lines if each.slope > top.slope and (top.value - each.value) * GRAINS <= 1]:
        top = max(near, key=lambda line: line.slope)
    overtaking = [(top.value - line.value) / (line.slope - top.slope) for line in lines if line.slope > top.slope]
    overtaken_s = min(overtaking, default=None)
    levels, holds = [], []
    for line, own in zip(lines, steps, strict=True):
        behind, widening = top.value - line.value, top.slope - line.slope
        if widening > 0:
            reached = sum((step - behind) * GRAINS <= 1 for step in own)
            change_s = (own[reached] - behind) / widening if reached < len(own) else None
        else:
            reached = sum((behind - step) * GRAINS > 1 for step in own)
            change_s = (own[reached - 1] - behind) / widening if reached and widening else None
        levels.append(reached)
        known = [time for time in (change_s, overtaken_s) if time is not None]
        holds.append(min(known, default=None))
    return levels, holds


@dataclass(slots=True)
class _Reference:
    iteration: int
    start_s: Fraction
    """When the first flow of the iteration started."""
    reference_s: Fraction


class DeadlineExecution:
    """What all switches know of flows that are ranked by deadline (an `echelon.rankings.base.Execution`).

    The reference time of an iteration is the start of its first flow, less that flow's offset.
    """

    def __init__(self) -> None:
        self._references: dict[tuple[str, str], _Reference] = {}
        self._memories: dict[str, Memory] = {}

    def started(self, now_s: Fraction, flow: ActiveFlow, ranking: Ranking) -> None:
        assert isinstance(ranking, Deadline)
        key, reference_s = (flow.job, ranking.echelonflow), now_s - ranking.offset_s
        known = self._references.get(key)
        if known is None or known.iteration < flow.iteration:
            self._references[key] = _Reference(flow.iteration, now_s, reference_s)
        elif known.iteration == flow.iteration and known.start_s == now_s:
            # Of flows that start together, the first in the arrangement decides.
            known.reference_s = max(known.reference_s, reference_s)
        if ranking.relative is not None:
            memory = self._memories.setdefault(flow.job, Memory())
            memory.begin(flow.iteration, ranking.relative.alone_tardiness_s)

    def finished(self, now_s: Fraction, flow: ActiveFlow, ranking: Ranking) -> None:
        assert isinstance(ranking, Deadline)
        if ranking.relative is not None:
            self._memories[flow.job].finish(now_s - self._due_s(flow, ranking))

    def ranks(self, now_s: Fraction, flows: Sequence[tuple[ActiveFlow, Ranking]]) -> Sequence[Rank]:
        relative, ranked = [], []
        ranks: dict[int, Rank] = {}
        for place, (flow, ranking) in enumerate(flows):
            assert isinstance(ranking, Deadline)
            due_s = self._due_s(flow, ranking)
            if ranking.relative is None:
                ranks[place] = _fixed_rank(ranking, now_s, due_s)
            else:
                late_s = now_s - due_s + self._memories[flow.job].delay_s
                slope = 1 / ranking.relative.period_s
                relative.append(Line(late_s * slope - ranking.relative.head_start, slope))
                ranked.append((place, ranking, ranking.relative.steps))
        if relative:
            levels, holds = relative_levels(relative, [steps for _, _, steps in ranked])
            for (place, ranking, _), level, held_s in zip(ranked, levels, holds, strict=True):
                queue = max(ranking.lowest, ranking.highest - level)
                ranks[place] = Rank(queue, None if held_s is None else now_s + held_s)
        return [ranks[place] for place in range(len(flows))]

    def _due_s(self, flow: ActiveFlow, ranking: Deadline) -> Fraction:
        return self._references[flow.job, ranking.echelonflow].reference_s + ranking.offset_s


def _fixed_rank(ranking: Deadline, now_s: Fraction, due_s: Fraction) -> Rank:
    reached = bisect_right(ranking.thresholds_s, now_s - due_s)
    until_s = due_s + ranking.thresholds_s[reached] if reached < len(ranking.thresholds_s) else None
    return Rank(ranking.lowest + reached, until_s)
