"""Ranks laid out along the axes of their parallelism, and the groups of ranks that communicate along some of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True, slots=True)
class RankLayout:
    """A grid of ranks; along the last axis, neighbours follow each other."""

    axes: Mapping[str, int]
    """The length of each axis, the outermost first. The ranks are as many as their product."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return math.prod(self.axes.values())

    def groups(self, *along: str) -> list[tuple[int, ...]]:
        """Return the groups of ranks that differ in their places on the axes `along` only."""
        found: dict[tuple[int, ...], list[int]] = {}
        places = product(*(range(length) for length in self.axes.values()))
        for rank, place in enumerate(places):
            fixed = tuple(at for axis, at in zip(self.axes, place, strict=True) if axis not in along)
            found.setdefault(fixed, []).append(rank)
        return [tuple(ranks) for ranks in found.values()]
