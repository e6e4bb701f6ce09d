"""Python's garbage collector, kept from running while a change is under way.

A plan is made of very many objects, hardly any of which are garbage in cycles. By its own rule the collector would look
at them again and again while more are made. Here it looks at new objects when nothing is under way, and then leaves
them alone until a full collection. Full collections take a small share of the time, however many objects there are.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

_PERIOD_S = 1.0
_FEW_OBJECTS = 50_000
"""The number of new objects up to which a collection is not worth its time."""
_MANY_OBJECTS = 2_000_000
"""The number of new objects from which they are looked at even while a change is under way, so that garbage cannot
fill the memory."""
_FULL_PERIOD_S = 600.0
"""The least time from one full collection to the next."""
_FULL_SHARE = 1 / 1000
"""The largest share of the time that full collections take."""


async def collect_when_quiet(is_quiet: Callable[[], bool], is_starting: Callable[[], bool]) -> None:
    """Collect garbage whenever `is_quiet` has been true for a while. Runs until it is cancelled.

    While `is_starting`, nothing limits the number of new objects: the first plan makes them, and they stay.
    """
    gc.disable()
    try:
        due_s = time.monotonic() + _look_at_all()
        was_quiet = False
        while True:
            await asyncio.sleep(_PERIOD_S)
            now_quiet = is_quiet()
            new = gc.get_count()[0]
            if now_quiet and was_quiet and time.monotonic() >= due_s:
                due_s = time.monotonic() + _look_at_all()
            elif (new > _MANY_OBJECTS and not is_starting()) or (now_quiet and was_quiet and new > _FEW_OBJECTS):
                gc.collect()
                gc.freeze()
            was_quiet = now_quiet
    finally:
        gc.unfreeze()
        gc.enable()


def _look_at_all() -> float:
    """Collect among all objects, and return the seconds until that is due again."""
    began_s = time.monotonic()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return max(_FULL_PERIOD_S, (time.monotonic() - began_s) / _FULL_SHARE)
