"""Collections of one value from each flow of an EchelonFlow in one iteration, until they are complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from echelon.telemetry.epochs import BEHIND

MAX_VALUES = 4096
"""The number of incomplete iterations to keep. A lost event leaves an iteration incomplete until it is too old."""

T = TypeVar("T")


class Gathering(Generic[T]):
    """The values of several iterations at a time, because switches report up to the timeout of a digest list apart."""

    def __init__(self, flows: Sequence[str]) -> None:
        self._flows = tuple(flows)
        self._kept = max(2, min(BEHIND, MAX_VALUES // len(self._flows)))
        self._values: dict[int, dict[str, T] | None] = {}
        """The values by iteration; None for an iteration that was complete."""
        self._newest = -1

    def put(self, iteration: int, flow: str, value: T) -> Mapping[str, T] | None:
        """Take a value, and return the values by flow if this was the last that was missing.

        The first of two values of a flow counts. A value that is too old, or belongs to an iteration that was complete,
        is ignored. Numbers of iterations only grow (`Counting`).
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
        """Forget incomplete iterations: they would stay incomplete, or be mixed with values of others."""
        for iteration, values in self._values.items():
            if values is not None:
                self._values[iteration] = None
