"""Runs a test's coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

LIMIT_S = 60.0


def run(body: Awaitable[None]) -> None:
    """Nothing may be left over: no task, and (warnings are errors) no open file or channel."""

    async def whole() -> None:
        async with asyncio.timeout(LIMIT_S):
            await body
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(whole())
