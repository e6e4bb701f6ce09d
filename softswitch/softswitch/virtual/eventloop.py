"""Virtual time: callbacks in order of time and, at equal times, of scheduling."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol


class Loop(Protocol):
    """A clock that jumps from event to event, as `EventLoop` is."""

    @property
    def now_ns(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def at(self, time_ns: int, callback: Callable[..., object], *args: object) -> None: ...
    def after(self, delay_ns: int, callback: Callable[..., object], *args: object) -> None: ...
    def stop(self) -> None: ...
    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int: ...


def check_time(time_ns: int, now_ns: int) -> None:
    """Raise ValueError for a time in the past, TypeError for anything but an integer."""
    if time_ns < now_ns:
        raise ValueError(f"time_ns: {time_ns} is in the past (it is {now_ns})")
    if not isinstance(time_ns, int):
        raise TypeError(f"time_ns: {time_ns!r} is not a whole number of nanoseconds")


class EventLoop:
    """A clock that jumps from event to event.

    It is not thread-safe: threads that share it hold a lock around `run`.
    """

    __slots__ = ("_events", "_running", "_scheduled", "_stopped", "now_ns")

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns
        """The present time. Callers read it and never write it."""
        self._events: list[tuple[int, int, Callable[..., object], tuple[object, ...]]] = []
        self._scheduled = 0  # breaks ties, so that callbacks are never compared
        self._running = False
        self._stopped = False

    def at(self, time_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` at `time_ns`. Raise ValueError for a time in the past, TypeError
        for anything but an integer."""
        if time_ns < self.now_ns or not isinstance(time_ns, int):
            check_time(time_ns, self.now_ns)
        self._scheduled += 1
        heappush(self._events, (time_ns, self._scheduled, callback, args))

    def after(self, delay_ns: int, callback: Callable[..., object], *args: object) -> None:
        """Call `callback(*args)` in `delay_ns`. Raise as `at` does."""
        self.at(self.now_ns + delay_ns, callback, *args)

    @property
    def pending(self) -> int:
        """Return the number of events still to come."""
        return len(self._events)

    def stop(self) -> None:
        """Make the `run` in progress return after the current callback. Do nothing without one."""
        self._stopped = self._running

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the events due up to and including `until_ns`, at most `max_events`. Return how many
        ran.

        Afterwards `now_ns` is `until_ns`, unless `stop` or `max_events` ended the run first;
        another call then continues. An exception in a callback ends the run, and its event is gone.
        Raises RuntimeError inside a callback.
        """
        if self._running:
            raise RuntimeError(
                "the event loop is already running: a callback schedules with at() or after()"
            )
        events = self._events
        last_ns = math.inf if until_ns is None else until_ns
        most = math.inf if max_events is None else max_events
        count = 0
        self._running = True
        try:
            while events and events[0][0] <= last_ns:
                if self._stopped or count >= most:
                    return count
                self.now_ns, _, callback, args = heappop(events)
                count += 1
                callback(*args)
            if until_ns is not None and not self._stopped and until_ns > self.now_ns:
                self.now_ns = until_ns
            return count
        finally:
            self._running = self._stopped = False
