"""Nodes with coordinates, numbered with the first coordinate running fastest, as in a torus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod


def lines(sides: Sequence[int], index: int) -> Iterator[range]:
    """Yield the nodes of each line along a dimension, which differ in that coordinate alone."""
    step = prod(sides[:index])
    length = step * sides[index]
    total = prod(sides)
    for start in range(0, total, length):
        for first in range(start, start + step):
            last = first + length
            yield range(first, last, step)


def around(nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of neighbours on the ring of these nodes."""
    pairs = list(pairwise(nodes))
    # The link from the last back to the first of two is the one that they have already.
    if len(nodes) > 2:
        pairs.append((nodes[-1], nodes[0]))
    return pairs


def place_number(place: Sequence[int], sides: Sequence[int]) -> int:
    """Return the number of the node at these coordinates."""
    number = 0
    for coordinate, side in zip(reversed(place), reversed(sides), strict=True):
        number = number * side + coordinate
    return number


def places(sides: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the coordinates of all nodes, in the order of their numbers."""
    for number in range(prod(sides)):
        place = []
        rest = number
        for side in sides:
            rest, coordinate = divmod(rest, side)
            place.append(coordinate)
        yield tuple(place)
