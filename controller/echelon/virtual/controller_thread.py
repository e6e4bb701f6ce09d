"""A control loop on an event loop of its own, beside a testbed that runs in the calling thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from echelon.control_loop import ControlLoop
from echelon.fabric.model import Fabric
from echelon.jobs.graph import Job
from echelon.lowering.capabilities import Capabilities
from echelon.lowering.identity import FlowKey, Identity
from echelon.p4program import program
from echelon.policies.base import Policy
from echelon.southbound.queues import QueueDriver
from echelon.southbound.session import SwitchSession

T = TypeVar("T")

_LAST_STATUS_S = 1.0
"""So long is waited for what a closed channel still has to say."""


class ControllerThread:
    """Connects to every switch, writes the plan, follows digests; `stop` closes all sessions, as if it had died.

    A context manager: connected and written inside. Raises what the control loop raises.
    """

    def __init__(
        self,
        fabric: Fabric,
        jobs: Sequence[Job],
        policy: Policy,
        identities: Mapping[FlowKey, Identity],
        addresses: Mapping[str, str],
        queues: Mapping[str, QueueDriver],
        capabilities: Capabilities,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="controller", daemon=True)
        self._stack = AsyncExitStack()
        self._sessions = {
            name: SwitchSession(name, addresses[name], switch.device_id, program(), queues=queues[name])
            for name, switch in fabric.switches.items()
        }
        self.control = ControlLoop(fabric, jobs, policy, identities, self._sessions, capabilities)
        self._running = False

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = True
        try:
            self._call(self._open)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def _open(self) -> None:
        for session in self._sessions.values():
            await self._stack.enter_async_context(session)
        await self.control.start()

    async def _close(self) -> None:
        # Sessions first: as long as one is open, digests may still arrive that someone should take.
        try:
            await self._stack.aclose()
        finally:
            await self.control.stop()
            await self._end_tasks()
            await self._loop.shutdown_asyncgens()

    async def _end_tasks(self) -> None:
        # gRPC has tasks of its own, which end when a cancelled call's status has come, after its channel was closed.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, unfinished = await asyncio.wait(others, timeout=_LAST_STATUS_S)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)

    def stop(self) -> None:
        """Idempotent."""
        if not self._running:
            return
        self._running = False
        try:
            self._call(self._close)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def raise_failure(self) -> None:
        """Raise what stopped the control loop from following a switch, if anything did."""
        if self._running and (error := self.control.failure) is not None:
            raise error

    @property
    def entries(self) -> Mapping[str, int]:
        """Table entries on each switch, by what was last written."""
        return {name: session.entries for name, session in self._sessions.items()}
