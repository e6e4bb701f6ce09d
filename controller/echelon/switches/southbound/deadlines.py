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
async def deadline(
    timeout_s: float,
    switch: str,
    action: str,
) -> AsyncIterator[None]:
    """Give the block `timeout_s` seconds.

    Raise `UnansweredError`, which says that `action` had no answer in time.
    """
    try:
        async with asyncio.timeout(within(timeout_s)):
            yield
    except TimeoutError:
        raise UnansweredError(
            f"switch {switch}: {action}: no answer within {timeout_s:g} s;"
            " the switch may be stuck (restart it)"
        ) from None
