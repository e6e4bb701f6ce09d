"""Deadlines of calls to switches in real time; in virtual time there are none.

A switch of a run in virtual time shares its process with its controller. On a busy machine it is
slow, not stuck, and the result of the run must not depend on how slow it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

from echelon.switches.southbound.errors import UnansweredError

_TURNS = 10
"""The timers that a timeout is made of; an answer needs a handful of the loop's turns."""

_waived: ContextVar[bool] = ContextVar("waived", default=False)


@contextmanager
def no_deadlines() -> Iterator[None]:
    """Give calls inside, and in tasks that are started inside, all the time that they need."""
    token = _waived.set(True)
    try:
        yield
    finally:
        _waived.reset(token)


def within(timeout_s: float) -> float | None:
    """Return the timeout for gRPC or asyncio: `timeout_s`, or None inside `no_deadlines`."""
    if _waived.get():
        return None
    return timeout_s


@asynccontextmanager
async def patience(timeout_s: float) -> AsyncIterator[None]:
    """Give the block `timeout_s` seconds of this event loop. Raise TimeoutError.

    A loop that is late has not seen yet what came in time. So the time is that of several timers,
    each of which begins when the loop has come to the one before.
    """
    async with asyncio.timeout(None) as limit:
        turns = _Turns(limit, timeout_s / _TURNS)
        if within(timeout_s) is not None:
            turns.begin(_TURNS)
        try:
            yield
        finally:
            turns.cancel()


class _Turns:
    """Timers of equal length, one after the other, the last of which reaches a limit.

    A nested function that names itself would leave a ring of objects behind each call.
    """

    def __init__(self, limit: asyncio.Timeout, turn_s: float) -> None:
        self._limit = limit
        self._turn_s = turn_s
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, turns: int) -> None:
        """Begin the first of so many timers."""
        loop = asyncio.get_running_loop()
        if turns:
            self._timer = loop.call_later(self._turn_s, self.begin, turns - 1)
        else:
            self._limit.reschedule(loop.time())

    def cancel(self) -> None:
        """Cancel the timer that runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@asynccontextmanager
async def deadline(
    timeout_s: float,
    switch: str,
    action: str,
) -> AsyncIterator[None]:
    """Give the block `timeout_s` seconds.

    Raise `UnansweredError`, which says that `action` had no answer in time.
    """
    try:
        async with patience(timeout_s):
            yield
    except TimeoutError:
        raise UnansweredError(
            f"switch {switch}: {action}: no answer within {timeout_s:g} s;"
            " the switch may be stuck (restart it)"
        ) from None
