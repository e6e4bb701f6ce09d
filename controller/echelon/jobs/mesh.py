"""Ranks of a job laid out along the axes of its parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Mesh(Generic[R]):
    """A grid of ranks with named axes; along the last axis, neighbours follow each other in `ranks`.

    ``Mesh(hosts, {"data": 2, "stage": 4})`` is two pipelines of four stages: hosts 0 to 3 are the first pipeline.
    Raises `ValueError` if the number of ranks is not the product of the axes' lengths.
    """

    ranks: Sequence[R]
    axes: Mapping[str, int]
    """The length of each axis."""

    def __post_init__(self) -> None:
        if math.prod(self.axes.values()) != len(self.ranks):
            shape = " x ".join(f"{length} ({axis})" for axis, length in self.axes.items())
            raise ValueError(f"{len(self.ranks)} ranks do not fill a mesh of {shape}")

    def at(self, place: Mapping[str, int]) -> tuple[R, ...]:
        """Return the ranks at these places on these axes, from 0, in the order of the mesh."""
        ranks: Sequence[int] = range(len(self.ranks))
        for axis, wanted in place.items():
            stride = self._stride(axis)
            ranks = [rank for rank in ranks if rank // stride % self.axes[axis] == wanted]
        return tuple(self.ranks[rank] for rank in ranks)

    def groups(self, *along: str) -> tuple[tuple[R, ...], ...]:
        """Return the groups of ranks that differ in their places on the axes `along` only."""
        heads: Sequence[int] = range(len(self.ranks))
        offsets = [0]
        for axis in self.axes:
            if axis in along:
                length, stride = self.axes[axis], self._stride(axis)
                heads = [head for head in heads if head // stride % length == 0]
                offsets = [offset + stride * place for offset in offsets for place in range(length)]
        return tuple(tuple(self.ranks[head + offset] for offset in offsets) for head in heads)

    def _stride(self, axis: str) -> int:
        names = list(self.axes)
        return math.prod(self.axes[name] for name in names[names.index(axis) + 1 :])
