"""Runs a test's coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

LIMIT_S = 60.0


def run(body: Awaitable[None]) -> None:
    """Run `body`, and check that nothing is left over: no task that goes on, and (warnings are errors) no open file
    or channel.
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
