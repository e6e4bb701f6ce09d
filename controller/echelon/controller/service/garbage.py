"""The collection of garbage, at times when it holds nothing up.

A plan is made of very many objects, hardly any of which are garbage in cycles. By its own rule
Python's collector would look at them again and again while more are made. Here it looks at new
objects when nothing is under way, unless there are very many, and then leaves them alone until a
full collection. That holds up the event loop, so it is rare, and takes a small share of the time,
however many objects there are. It is due also while changes never end, so that garbage cannot fill
the memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

_COLLECT_PERIOD_S = 0.1
_FEW_OBJECTS = 50_000
"""The number of new objects up to which a collection is not worth its time."""
_MANY_OBJECTS = 100_000
"""The number of new objects that are left to the next full collection.

To look at them holds up the event loop.
"""
_MOST_UNSEEN = 10_000_000
"""The number of new objects that nobody has looked at from which a full collection is due."""
_FULL_PERIOD_S = 3600.0
"""The longest time between two full collections, unless their share of the time is too large."""
_FULL_SHARE = 1 / 1000
"""The largest share of the time that full collections take."""


async def collect_when_quiet(is_quiet: Callable[[], bool], is_starting: Callable[[], bool]) -> None:
    """Collect garbage whenever `is_quiet` has been true for a while. Runs until it is cancelled.

    While `is_starting`, nothing limits the number of new objects: the first plan makes them, and
    they stay. Only full collections look at them.
    """
    gc.disable()
    try:
        collector = _Collector()
        while True:
            await asyncio.sleep(_COLLECT_PERIOD_S)
            collector.step(
                is_quiet=is_quiet(),
                is_starting=is_starting(),
            )
    finally:
        gc.unfreeze()
        gc.enable()


class _Collector:
    """The state of the collection. Times are in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._was_quiet = False
        self._was_starting = False
        self._has_started = False
        """The first plan was made, and its entries may not all be written yet."""
        self._unseen = 0
        """The number of objects that no collection has looked at."""
        self._allowed_at_s = time.monotonic()
        """The time from which a full collection takes no more than its share."""
        self._due_at_s = self._allowed_at_s + _FULL_PERIOD_S
        # Modules make hardly any garbage, and to look at all of them would hold up the start.
        gc.freeze()

    def step(self, *, is_quiet: bool, is_starting: bool) -> None:
        """Collect what may be collected now."""
        stays_quiet = is_quiet and self._was_quiet
        ends_start = self._was_starting and not is_starting
        if ends_start or (self._has_started and stays_quiet):
            # To look for garbage among what the first plan has made, and the first entries of all
            # switches, would hold up the event loop for seconds.
            gc.freeze()
            self._has_started = self._was_starting
        self._was_quiet = is_quiet
        self._was_starting = is_starting

        new = gc.get_count()[0]
        are_many = new > _MANY_OBJECTS and not is_starting
        if self._is_full_collection_due(stays_quiet or are_many):
            self._collect_all()
        elif are_many:
            gc.freeze()
            self._unseen += new
        elif stays_quiet and new > _FEW_OBJECTS:
            gc.collect()
            gc.freeze()

    def _is_full_collection_due(self, is_good_moment: bool) -> bool:
        now_s = time.monotonic()
        if self._unseen > _MOST_UNSEEN:
            return now_s >= self._allowed_at_s
        return is_good_moment and now_s >= self._due_at_s

    def _collect_all(self) -> None:
        """Look at all objects."""
        began_s = time.monotonic()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        ended_s = time.monotonic()
        pause_s = (ended_s - began_s) / _FULL_SHARE
        self._allowed_at_s = ended_s + pause_s
        self._due_at_s = max(self._allowed_at_s, ended_s + _FULL_PERIOD_S)
        self._unseen = 0
