"""PipeDream's partition problem by brute force: every chain of nested cuts, every distribution of
machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise


def best_time(
    layers: Sequence[tuple[float, int, int]],
    needs: Sequence[Sequence[int]],
    levels: Sequence[tuple[int, float]],
) -> float:
    """Return the least time per mini-batch of the slowest stage.

    `layers` are (seconds, parameter bytes, activation bytes), `needs` the layers whose output each
    takes, and `levels` (components, bytes per second), the lowest first.
    """
    everything = frozenset(range(len(layers)))
    sets = list(_sets(frozenset(), everything, needs))

    def crossing(done: frozenset[int]) -> int:
        return sum(layers[u][2] for u in done if any(u in needs[v] for v in everything - done))

    @cache
    def whole(low: frozenset[int], high: frozenset[int], level: int) -> float:
        """Return the time of the layers between two cuts on one component above `level`."""
        if level < 0:
            return sum(layers[u][0] for u in high - low)
        components, rate = levels[level]
        best = float("inf")
        for chain in _chains(low, high, sets):
            stages = list(pairwise(chain))
            for counts in _counts(components, len(stages)):
                time = 0.0
                for place, ((a, b), m) in enumerate(zip(stages, counts, strict=True)):
                    parameters = sum(layers[u][1] for u in b - a)
                    time = max(
                        time, (whole(a, b, level - 1) + 4 * (m - 1) * parameters / (m * rate)) / m
                    )
                    if place:
                        time = max(time, 2 * crossing(a) / (m * rate))
                best = min(best, time)
        return best

    return whole(frozenset(), everything, len(levels) - 1)


def _sets(
    done: frozenset[int], everything: frozenset[int], needs: Sequence[Sequence[int]]
) -> set[frozenset[int]]:
    found = {done}
    for layer in everything - done:
        if all(need in done for need in needs[layer]):
            found |= _sets(done | {layer}, everything, needs)
    return found


def _chains(
    low: frozenset[int], high: frozenset[int], sets: Sequence[frozenset[int]]
) -> Iterator[tuple[frozenset[int], ...]]:
    yield (low, high)
    for middle in sets:
        if low < middle < high:
            for rest in _chains(middle, high, sets):
                yield (low, *rest)


def _counts(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write `total` as a sum of so many positive numbers."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in _counts(total - first, parts - 1):
            yield (first, *rest)
