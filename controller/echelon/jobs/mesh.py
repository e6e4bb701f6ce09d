"""Ranks of a job laid out along the axes of its parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of ranks with named axes; along the last axis, neighbours follow each other in `ranks`.

    ``Mesh(hosts, {"data": 2, "stage": 4})`` is two pipelines of four stages: hosts 0 to 3 are the first pipeline.
    Raises `ValueError` if the number of ranks is not the product of the axes' lengths.
    """

    ranks: Sequence[str]
    axes: Mapping[str, int]
    """The length of each axis."""

    def __post_init__(self) -> None:
        if math.prod(self.axes.values()) != len(self.ranks):
            shape = " x ".join(f"{length} ({axis})" for axis, length in self.axes.items())
            raise ValueError(f"{len(self.ranks)} ranks do not fill a mesh of {shape}")

    def at(self, place: Mapping[str, int]) -> tuple[str, ...]:
        """Return the ranks at these places on these axes, from 0, in the order of the mesh."""
        ranks: Sequence[int] = range(len(self.ranks))
        for axis, wanted in place.items():
            stride = self._stride(axis)
            ranks = [rank for rank in ranks if rank // stride % self.axes[axis] == wanted]
        return tuple(self.ranks[rank] for rank in ranks)

    def groups(self, axis: str) -> tuple[tuple[str, ...], ...]:
        """Return the lines of ranks along `axis`: ranks of one line differ in their place on this axis only."""
        length, stride = self.axes[axis], self._stride(axis)
        heads = [head for head in range(len(self.ranks)) if head // stride % length == 0]
        return tuple(tuple(self.ranks[head + stride * place] for place in range(length)) for head in heads)

    def _stride(self, axis: str) -> int:
        names = list(self.axes)
        return math.prod(self.axes[name] for name in names[names.index(axis) + 1 :])
