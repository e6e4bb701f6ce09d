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
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def wait(turns: int) -> None:
        nonlocal timer
        if turns:
            timer = loop.call_later(timeout_s / _TURNS, wait, turns - 1)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        if within(timeout_s) is not None:
            wait(_TURNS)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()


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
