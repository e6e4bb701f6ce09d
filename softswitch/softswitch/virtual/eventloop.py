"""Virtual time: callbacks in order of time and, at equal times, of scheduling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Loop(Protocol):
    """A clock that jumps from event to event.

    It is not thread-safe: threads that share it hold a lock around `run`.
    """

    @property
    def now_ns(self) -> int:
        """The present time."""

    @property
    def pending(self) -> int:
        """Return the number of events still to come."""

    def call_at(
        self,
        time_ns: int,
        callback: Callable[..., object],
        *args: object,
    ) -> None:
        """Call `callback(*args)` at `time_ns`.

        Raise ValueError for a time in the past, TypeError for anything but an integer.
        """

    def after(
        self,
        delay_ns: int,
        callback: Callable[..., object],
        *args: object,
    ) -> None:
        """Call `callback(*args)` in `delay_ns`. Raise as `call_at` does."""

    def stop(self) -> None:
        """Make the `run` in progress return after the current callback. Do nothing without one."""

    def run(self, until_ns: int | None = None, max_events: int | None = None) -> int:
        """Run the events due up to and including `until_ns`, at most `max_events`.

        Return how many ran.

        Afterwards `now_ns` is `until_ns`, unless `stop` or `max_events` ended the run first;
        another call then continues. An exception in a callback ends the run, and its event is gone.
        Raises RuntimeError inside a callback.
        """


def check_time(time_ns: int, now_ns: int) -> None:
    """Raise ValueError for a time in the past, TypeError for anything but an integer."""
    if time_ns < now_ns:
        raise ValueError(f"time_ns: {time_ns} is in the past (it is {now_ns})")
    if not isinstance(time_ns, int):
        raise TypeError(f"time_ns: {time_ns!r} is not a whole number of nanoseconds")
