"""PipeDream's partitioner (Narayanan et al., SOSP '19, section 3.1): stages, and how many workers
replicate each.

A model is a directed acyclic graph of layers. A *cut* separates the layers that have run from
those that have not, so the layers between two nested cuts are a stage. Machines form levels: the
workers of a server, then the servers. With ``B`` the bandwidth between the components of a level
in bytes per second, the time per mini-batch of the layers i to j as one stage that m components
replicate is::

    T(i, j, m) = (A'(i, j) + 4 (m - 1) W(i, j) / (m B)) / m

where ``W`` are the bytes of their parameters and ``A'(i, j)`` is the best time on one component:
the seconds of computing at the lowest level, and the optimum of the level below elsewhere. The
best pipeline of m components has::

    A(i, j, m) = min(T(i, j, m), min over cuts k and m' < m of max(A(i, k, m - m'), 2 a(k) / (m' B),
    T(k, j, m')))

with ``a(k)`` the bytes of the activations that cross cut k, which also travel back as gradients.
The factors 4 and 2 count both directions and are those of the authors' optimizer
(`optimizer_graph_hierarchical.py` of msr-fiddle/pipedream at 7db6a1c).

Differences from that program: it counts the transfer of activations only when an activation
compression ratio is given; it then also adds the transfer out of the last stage of each partial
pipeline, but not out of the first; and where one stage takes a whole level it divides the time of
synchronising parameters by the components of the level below. Here the formulas are the same at
every level. Memory is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MOST_CUTS = 700
"""The largest number of cuts searched; time grows with its square, or cube for two levels."""


class PartitionError(ValueError):
    """The error for too many cuts, or no machines."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where the model can be cut."""

    layers: int
    """The layers before the cut, as a set of bits."""
    compute_s: float
    """Seconds of the forward and the backward pass of all layers before the cut, for a mini-batch.
    """
    parameter_bytes: int
    """Bytes of the parameters of all layers before the cut."""
    activation_bytes: int
    """Bytes of the activations that cross the cut, for a mini-batch."""

    def is_within(self, other: Cut) -> bool:
        """Return whether all layers before this cut are before the other one, too."""
        return self.layers & other.layers == self.layers


class Level(NamedTuple):
    """Components of the same kind, and the bandwidth between them."""

    components: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Stage:
    """Consecutive layers that the same workers run."""

    first: int
    last: int
    """The cuts before and behind the stage, as indices."""
    workers: tuple[int, ...]
    """Workers that replicate the stage, with consecutive numbers in each component of a level."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Stages in order, and the predicted time per mini-batch of the slowest one."""

    stages: tuple[Stage, ...]
    time_s: float


class _Choice(NamedTuple):
    time_s: float
    cut: int | None
    """The cut before the last stage; None if there is one stage."""
    components: int
    """The number of components that replicate the last stage."""


_Time = Callable[[int, int], float]
"""Seconds that the layers between two cuts take on one component."""
_Level = dict[int, list[list[_Choice | None]]]
"""The best pipeline of the layers between cuts i and j on m components, at ``[i][j][m - 1]``."""


def partition(cuts: Sequence[Cut], levels: Sequence[Level]) -> Partition:
    """Return the best partition of a model on all components of `levels`, the lowest level first.

    `cuts` are all places to cut, each behind those whose layers it includes: first the one before
    all layers, last the one behind them. Raises `PartitionError` for too many cuts or a level
    without components.
    """
    if len(cuts) > MOST_CUTS:
        raise PartitionError(f"has {len(cuts)} places to cut (at most {MOST_CUTS} are searched)")
    is_usable = [level.components >= 1 and level.bytes_per_s > 0 for level in levels]
    if not levels or not all(is_usable):
        raise PartitionError("needs at least one component and a positive bandwidth at every level")
    nested = []
    for j, cut in enumerate(cuts):
        nested.append([k for k in range(j) if cuts[k].is_within(cut)])

    def computing(i: int, j: int) -> float:
        return cuts[j].compute_s - cuts[i].compute_s

    on_one: _Time = computing
    solved: list[_Level] = []
    for number, level in enumerate(levels):
        # Of the topmost level, only pipelines of all layers are asked for.
        is_top = number == len(levels) - 1
        starts = range(1 if is_top else len(cuts) - 1)
        best = {i: _pipelines_from(cuts, nested, i, level, on_one) for i in starts}
        solved.append(best)
        on_one = _level_time(best, level.components)
    end = len(cuts) - 1
    stages = _stages(solved, levels, len(levels) - 1, 0, end)
    return Partition(tuple(stages), on_one(0, end))


def _level_time(solved: _Level, components: int) -> _Time:
    def time(i: int, j: int) -> float:
        choice = solved[i][j][components - 1]
        assert choice is not None
        return choice.time_s

    return time


def _pipelines_from(
    cuts: Sequence[Cut],
    nested: Sequence[Sequence[int]],
    i: int,
    level: Level,
    on_one: _Time,
) -> list[list[_Choice | None]]:
    """Return the best pipelines from cut i, by the cut of their end and number of components."""
    bandwidth = level.bytes_per_s
    table: list[list[_Choice | None]] = [[None] * level.components for _ in cuts]
    inside = [i]
    for j in range(i + 1, len(cuts)):
        if not cuts[i].is_within(cuts[j]):
            continue
        inside.append(j)
        # Of a stage that ends at j: seconds on one component, and seconds to send its parameters
        # once.
        parts = []
        for k in nested[j]:
            if k <= i or table[k][0] is None:
                continue
            parameter_bytes = cuts[j].parameter_bytes - cuts[k].parameter_bytes
            crossing_s = 2 * cuts[k].activation_bytes / bandwidth
            stage_sync_s = 4 * parameter_bytes / bandwidth
            stage_s = on_one(k, j)
            parts.append((k, stage_s, stage_sync_s, crossing_s))
        alone_s = on_one(i, j)
        parameter_bytes = cuts[j].parameter_bytes - cuts[i].parameter_bytes
        sync_s = 4 * parameter_bytes / bandwidth
        for m in range(1, level.components + 1):
            best_s = (alone_s + sync_s * (m - 1) / m) / m
            best_cut = None
            best_components = m
            for last in range(1, m):
                share = (last - 1) / last
                for k, stage_s, stage_sync_s, crossing_s in reversed(parts):
                    time_s = (stage_s + stage_sync_s * share) / last
                    if time_s >= best_s or crossing_s / last >= best_s:
                        continue
                    first = table[k][m - last - 1]
                    assert first is not None
                    time_s = max(time_s, crossing_s / last, first.time_s)
                    if time_s < best_s:
                        best_s = time_s
                        best_cut = k
                        best_components = last
            table[j][m - 1] = _Choice(best_s, best_cut, best_components)
    return table


def _stages(
    solved: Sequence[_Level],
    levels: Sequence[Level],
    number: int,
    i: int,
    j: int,
) -> list[Stage]:
    """Return the stages of layers between cuts i and j on one component above level `number`."""
    below = 1
    for level in levels[:number]:
        below *= level.components
    spans: list[tuple[int, int, int]] = []
    left = levels[number].components
    end = j
    while end > i:
        choice = solved[number][i][end][left - 1]
        assert choice is not None
        start = i if choice.cut is None else choice.cut
        spans.append((start, end, choice.components))
        end = start
        left -= choice.components
    stages: list[Stage] = []
    first = 0
    for start, end, components in reversed(spans):
        if number == 0:
            inner = [Stage(start, end, (0,))]
        else:
            inner = _stages(solved, levels, number - 1, start, end)
        places = [place * below for place in range(first, first + components)]
        for stage in inner:
            workers = tuple(place + worker for place in places for worker in stage.workers)
            stages.append(Stage(stage.first, stage.last, workers))
        first += components
    return stages
