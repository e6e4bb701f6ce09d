"""One value of each flow of an EchelonFlow in one iteration, until all of them are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from echelon.telemetry.epochs import BEHIND

MAX_VALUES = 4096
"""Number of unfinished iterations that are kept: a lost event leaves an iteration unfinished until it is too old."""

T = TypeVar("T")


class Gathering(Generic[T]):
    """Iterations are gathered beside each other: switches report up to a list's timeout apart."""

    def __init__(self, flows: Sequence[str]) -> None:
        self._flows = tuple(flows)
        self._kept = max(2, min(BEHIND, MAX_VALUES // len(self._flows)))
        self._values: dict[int, dict[str, T] | None] = {}
        """The values by iteration; None: it was complete."""
        self._newest = -1

    def put(self, iteration: int, flow: str, value: T) -> Mapping[str, T] | None:
        """The values by flow, if this was the last that was missing. What comes twice counts as it came first; what is
        too old, or of an iteration that was complete, not at all. Numbers of iterations only grow (`Counting`)."""
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
        """Forget what is not complete: it will not become so, or would be mixed with what does not belong to it."""
        for iteration, values in self._values.items():
            if values is not None:
                self._values[iteration] = None
