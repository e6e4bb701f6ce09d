"""A collection of one value for each flow of an EchelonFlow in one iteration, until it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from echelon.telemetry.epochs import BEHIND

MAX_VALUES = 4096
"""Number of unfinished iterations that are kept: a lost event leaves an iteration unfinished until it is too old."""

T = TypeVar("T")


class Gathering(Generic[T]):
    """The values of several iterations at a time: reports of switches differ by up to a list's timeout."""

    def __init__(self, flows: Sequence[str]) -> None:
        self._flows = tuple(flows)
        self._kept = max(2, min(BEHIND, MAX_VALUES // len(self._flows)))
        self._values: dict[int, dict[str, T] | None] = {}
        """The values by iteration; None: it was complete."""
        self._newest = -1

    def put(self, iteration: int, flow: str, value: T) -> Mapping[str, T] | None:
        """Add a value. Return the values by flow, if this was the last missing one.

        The first of two equal reports counts. Values that are too old, or of a complete iteration, are ignored. Numbers
        of iterations only grow (`Counting`).
        """
        if iteration <= self._newest - self._kept:
            return None
        if iteration > self._newest:
            self._newest = iteration
            for old in [one for one in self._values if one <= iteration - self._kept]:
                del self._values[old]
        values = self._values.setdefault(iteration, {})
        if values is None or flow in values:
            return None
        values[flow] = value
        if len(values) < len(self._flows):
            return None
        self._values[iteration] = None
        return values

    def clear(self) -> None:
        """Forget incomplete iterations: they will not become complete, or would be mixed with values of other runs."""
        for iteration, values in self._values.items():
            if values is not None:
                self._values[iteration] = None
