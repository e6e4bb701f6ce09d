"""Group commit: changes that arrive while one is being written are written together, as one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from echelon.service.store.base import Leadership
from echelon.service.store.encoding import EncodedChanges, in_order


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of one write; a single change may exceed them."""

    count: int
    """Maximum number of documents."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    leadership: Leadership
    changes: EncodedChanges
    done: asyncio.Future[None]


class GroupCommit:
    """A queue of commits with one write at a time, in the order of the calls.

    A write that fails fails every change in it, and no other.
    """

    def __init__(self, write: Callable[[Leadership, EncodedChanges], Awaitable[None]], limits: GroupLimits) -> None:
        self._write = write
        self._limits = limits
        self._waiting: deque[_Waiting] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def commit(self, leadership: Leadership, changes: EncodedChanges) -> None:
        """Return when `changes` are written. Cancelling this does not cancel the write."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(leadership, changes, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all(), name="store: group commit")
        await done

    async def idle(self) -> None:
        """Wait until everything that was requested is written or has failed."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write_some(self._next())
        finally:
            self._writer = None
            # None are left, unless this task was cancelled.
            for waiting in self._waiting:
                waiting.done.cancel()
            self._waiting.clear()

    async def _write_some(self, group: list[_Waiting]) -> None:
        try:
            await self._write(group[0].leadership, in_order(waiting.changes for waiting in group))
        except asyncio.CancelledError:
            for waiting in group:
                waiting.done.cancel()
            raise
        except Exception as error:
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_exception(error)
        else:
            for waiting in group:
                if not waiting.done.done():
                    waiting.done.set_result(None)

    def _next(self) -> list[_Waiting]:
        """Return the longest run of changes of one leadership that is within the limits, at least one."""
        group = [self._waiting.popleft()]
        count, size_bytes = group[0].changes.count, group[0].changes.size_bytes
        while self._waiting and self._waiting[0].leadership is group[0].leadership:
            candidate = self._waiting[0].changes
            count, size_bytes = count + candidate.count, size_bytes + candidate.size_bytes
            if count > self._limits.count or size_bytes > self._limits.size_bytes:
                break
            group.append(self._waiting.popleft())
        return group
