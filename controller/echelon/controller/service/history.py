"""The last hour, in memory: iteration times and tardiness of jobs, and what queues of ports sent.

An hour has `STEPS` steps. Of several values in a step the largest is kept. Rows are arrays of a
fixed size, and there are no more of them than `JOBS` and `PORTS`, so that all together stay below
`LARGEST_BYTES`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Generic, TypeVar

from echelon.controller.machine import facts
from echelon.planning.plan import LEVELS

K = TypeVar("K", bound=Hashable)

STEP_S = 20
STEPS = 180
JOBS = 2000
PORTS = 1000
LARGEST_BYTES = 10_000_000
"""The most bytes of a history.

The values alone take 4 * STEPS * (2 * JOBS + LEVELS * PORTS); the rest is names and Python's
objects.
"""

Steps = Sequence[tuple[float | None, ...]]
"""The values of each step of the hour, oldest first; None: nothing was seen."""


@dataclass(slots=True)
class _Row:
    newest: int
    """The step that was written last."""
    values: array[float]
    """The values of a step are at its number modulo STEPS."""


class Hour(Generic[K]):
    """An hour of things of one kind, each with `width` values a step.

    Times are of any clock that does not go back. If there are too many things, a new one takes the
    place of the one that was silent for longest. While none was silent for a step, it is left out.
    """

    def __init__(self, width: int, most: int) -> None:
        self._width = width
        self._most = most
        self._rows: dict[K, _Row] = {}
        """The one that was written last comes last."""

    def put(
        self,
        key: K,
        at_s: float,
        values: Sequence[float],
    ) -> None:
        """Take note of values; `nan` stands for one that is not known."""
        step = int(at_s // STEP_S)
        width = self._width
        # Taken out and put back, so that the row that was written last comes last.
        row = self._rows.pop(key, None)
        if row is None:
            if len(self._rows) >= self._most:
                silent = next(iter(self._rows))
                if self._rows[silent].newest >= step - 1:
                    return
                del self._rows[silent]
            row = _Row(step, array("f", [nan]) * (STEPS * width))
        self._rows[key] = row

        nothing = array("f", [nan]) * width
        first_skipped = max(row.newest, step - STEPS) + 1
        for skipped in range(first_skipped, step + 1):
            place = skipped % STEPS * width
            row.values[place : place + width] = nothing
        row.newest = step

        for place, value in enumerate(values, start=step % STEPS * width):
            # A comparison with nan is false, so that any value replaces it.
            if not isnan(value) and not row.values[place] >= value:
                row.values[place] = value

    def read(
        self,
        at_s: float,
        score: Callable[[K, Sequence[float]], float] | None = None,
        among: Container[K] | None = None,
        limit: int | None = None,
    ) -> Iterator[tuple[K, Steps]]:
        """Yield the keys that have a value in the hour of `at_s`, and their values.

        The hour ends with the step of `at_s`. `score` is by a key and all values that are kept of
        it; those with the highest come first. It may be called in another thread than `put`.
        """
        last = int(at_s // STEP_S)
        rows = []
        # A copy: `put` may add a row meanwhile.
        for key, row in list(self._rows.items()):
            if row.newest <= last - STEPS:
                continue
            if among is None or key in among:
                rows.append((key, row))
        if score is not None:

            def rank(item: tuple[K, _Row]) -> tuple[float, str]:
                key, row = item
                return -score(key, row.values), str(key)

            rows.sort(key=rank)
        for key, row in rows[:limit]:
            yield key, self._steps(row, last)

    def _steps(self, row: _Row, last: int) -> Steps:
        """Return the values of a row in the hour that ends with the step `last`."""
        width = self._width
        steps: list[tuple[float | None, ...]] = []
        first = last - STEPS + 1
        for step in range(first, row.newest + 1):
            place = step % STEPS * width
            values = row.values[place : place + width]
            step_values = [None if isnan(value) else value for value in values]
            steps.append(tuple(step_values))
        empty = (None,) * width
        return steps + [empty] * (last - row.newest)


class History:
    """The last hour of jobs and ports."""

    def __init__(self) -> None:
        self.jobs: Hour[str] = Hour(2, JOBS)
        """The longest iteration and the largest tardiness, in seconds."""
        self.ports: Hour[tuple[str, int]] = Hour(LEVELS, PORTS)
        """The part of the link's rate that each queue sent, by switch and port."""

    def take(self, fact: object, at_s: float) -> None:
        """Take note of a fact, if it is about iterations."""
        match fact:
            case facts.IterationTimed(job, duration_s):
                self.jobs.put(job, at_s, (duration_s, nan))
            case facts.TardinessSeen(job, tardiness_s):
                self.jobs.put(job, at_s, (nan, tardiness_s))
