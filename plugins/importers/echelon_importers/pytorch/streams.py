"""The waits of the operations of a GPU, by the times at which they started and ended.

Operations of a stream follow each other in the order of their starts. An operation also waits for
the last one of each other stream that had ended when it started, of those that the host launched
before. So what ran at the same time does not wait for each other: computing overlaps with
communication as it did. Nor does it wait for what happened to arrive early.

If the profile has recorded which streams wait for each other (`waits`), that counts alone.

Few need the end of a send, or of a sum such as an all-reduce of gradients: the next operation of
its stream, and for a sum what the host launched after it asked for its end (`wait`). Others wait
for it only if its end let them start: all else that they wait for had ended before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from echelon_importers.pytorch.profile import Event, Stream
from echelon_importers.pytorch.waits import RecordedWait, RecordedWaits


@dataclass(frozen=True, slots=True)
class Wait:
    """The operations that an operation waits for."""

    events: tuple[int, ...]
    """The numbers of those operations."""
    idle_us: Fraction
    """The time between the end of those and its start: work of the host."""


@dataclass(frozen=True, slots=True)
class Need:
    """The operations that need the end of another, beside the next one of its stream."""

    always: bool = True
    """Whether all that begin later need it."""
    asked_us: Fraction | None = None
    """The time after which the host launched those that need it; None: there are none."""


ALWAYS = Need()


@dataclass(frozen=True, slots=True)
class _Ended:
    """An operation; when it and all before it on its stream were launched, and had ended."""

    number: int
    launch_us: Fraction
    """0: the trace does not say."""
    end_us: Fraction


@dataclass(slots=True)
class _Line:
    """Operations of a stream, in order."""

    operations: list[_Ended] = field(default_factory=list)

    def add(self, event: Event, launch_us: Fraction) -> None:
        end_us = event.end_us
        last = self.last()
        if last is not None:
            launch_us = max(launch_us, last.launch_us)
            end_us = max(end_us, last.end_us)
        self.operations.append(_Ended(event.number, launch_us, end_us))

    def last(self) -> _Ended | None:
        """Return the last operation."""
        return self.operations[-1] if self.operations else None

    def last_launched(self, time_us: Fraction) -> _Ended | None:
        """Return the last operation that was launched before a time."""
        place = bisect_left(self.operations, time_us, key=_launch_us)
        return self.operations[place - 1] if place else None

    def last_before(self, event: Event) -> _Ended | None:
        """Return the last operation that was launched before an event and had ended."""
        place = bisect_right(self.operations, event.start_us, key=_end_us)
        if event.launch is not None:
            launch_us = event.launch.start_us
            # What the host hands over later cannot be waited for.
            place = min(place, bisect_right(self.operations, launch_us, key=_launch_us))
        return self.operations[place - 1] if place else None


def _launch_us(operation: _Ended) -> Fraction:
    return operation.launch_us


def _end_us(operation: _Ended) -> Fraction:
    return operation.end_us


@dataclass(slots=True)
class _Operations:
    """A stream so far."""

    every: _Line = field(default_factory=_Line)
    needed: _Line = field(default_factory=_Line)
    """The operations whose end all others need."""
    asked: _Line = field(default_factory=_Line)
    """The operations for which the host asked, at that time instead of their launch."""

    def last_needed(self, event: Event) -> _Ended | None:
        """Return the last operation whose end an event needs."""
        needed = self.needed.last_before(event)
        asked = self.asked.last_before(event)
        if needed is None or asked is None:
            return needed or asked
        return max(needed, asked, key=_end_us)


class Streams:
    """The streams of a rank, to which operations are added in the order of their starts."""

    def __init__(self, waits: Sequence[RecordedWait] = ()) -> None:
        self._streams: dict[Stream, _Operations] = {}
        self._waits = RecordedWaits(waits) if waits else None

    def add(self, event: Event, need: Need = ALWAYS) -> Wait:
        """Add an operation, and return what it waits for. `need` says who needs its end."""
        waits = self._before(event)
        idle_us = Fraction(0)
        if waits:
            ready_us = max(map(_end_us, waits))
            idle_us = max(idle_us, event.start_us - ready_us)

        stream = self._streams.setdefault(event.stream, _Operations())
        launch_us = event.launch.start_us if event.launch else Fraction(0)
        stream.every.add(event, launch_us)
        if need.always:
            stream.needed.add(event, launch_us)
        elif need.asked_us is not None:
            stream.asked.add(event, need.asked_us)
        numbers = tuple(operation.number for operation in waits)
        return Wait(numbers, idle_us)

    def _before(self, event: Event) -> list[_Ended]:
        """Return what an operation waits for, at most one of each stream."""
        waits: list[_Ended] = []
        passed: list[_Ended] = []
        for key, stream in self._streams.items():
            before: _Ended | None
            last: _Ended | None
            if key == event.stream:
                before = stream.every.last()
            elif self._waits is not None and event.launch is not None:
                launch_us = event.launch.start_us
                until_us = self._waits.until_us(event.stream.number, key.number, launch_us)
                before = stream.every.last_launched(until_us)
            else:
                before = stream.last_needed(event)
                last = stream.every.last_before(event)
                if last is not None and last != before:
                    passed.append(last)
            if before is not None:
                waits.append(before)

        ready_us = max(map(_end_us, waits), default=Fraction(0))
        for last in passed:
            if last.end_us > ready_us:
                waits.append(last)
        return waits
