"""Runs tests that are coroutines, each in an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

import pytest

LIMIT_S = 300.0
"""Long enough for a busy machine: it is reached only by a test that hangs."""


def run(body: Awaitable[None]) -> None:
    """Run `body`, and check that nothing is left over: no task that goes on, and (warnings are
    errors) no open file or channel.
    """

    async def whole() -> None:
        async with asyncio.timeout(LIMIT_S):
            await body
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            # gRPC ends its own by itself when the last status of a closed channel has come.
            _, left = await asyncio.wait(others, timeout=LIMIT_S)
            assert not left

    asyncio.run(whole())


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
