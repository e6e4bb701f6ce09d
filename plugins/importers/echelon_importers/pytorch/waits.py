"""The waits between streams that a profile records with ``enable_cuda_sync_events``.

Kineto writes them as events `cuda_sync`: one stream waits for what another was given before an
event was recorded there, or the host waits, and with it all that it launches later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_ALL = None
"""Stands for all streams."""
StreamNumber = int | None


@dataclass(frozen=True, slots=True)
class RecordedWait:
    """A wait, in microseconds of the host."""

    time_us: Fraction
    """The time at which the host asked for it: what it launches later waits."""
    stream: StreamNumber
    """The stream that waits; None: all."""
    awaited: StreamNumber
    """The stream that is waited for; None: all."""
    until_us: Fraction
    """The time before which what was launched is waited for."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A time from which what was launched before another is waited for."""

    time_us: Fraction
    until_us: Fraction


def _time_us(point: RecordedWait | _Point) -> Fraction:
    return point.time_us


class RecordedWaits:
    """All waits of a rank."""

    def __init__(self, waits: Sequence[RecordedWait]) -> None:
        self._points: defaultdict[tuple[StreamNumber, StreamNumber], list[_Point]]
        self._points = defaultdict(list)
        for wait in sorted(waits, key=_time_us):
            points = self._points[wait.stream, wait.awaited]
            until_us = wait.until_us
            if points:
                until_us = max(until_us, points[-1].until_us)
            points.append(_Point(wait.time_us, until_us))

    def until_us(
        self,
        stream: int,
        awaited: int,
        launch_us: Fraction,
    ) -> Fraction:
        """Return before which time that was launched on `awaited` for which `stream` waits.

        `launch_us` is when the host launched what waits. 0: it waits for nothing.
        """
        until_us = Fraction(0)
        for waiting in (stream, _ALL):
            for other in (awaited, _ALL):
                points = self._points.get((waiting, other), ())
                place = bisect_right(points, launch_us, key=_time_us)
                if place:
                    until_us = max(until_us, points[place - 1].until_us)
        return until_us
