"""The loop around the machine of `echelon.controller.machine`, in real and in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from echelon.controller.machine.effects import Effect
from echelon.controller.machine.events import Digests, Event
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.machine import Machine


class MachineLoop(ABC):
    """A machine on an event loop, with the events that wait for it and the tasks of its effects."""

    def __init__(self) -> None:
        self.machine: Machine
        """The state, for reading."""
        self._numbers = itertools.count(1)
        """The numbers of requests and reports."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: deque[Event] = deque()
        self._handling = False
        self._reports: dict[int, asyncio.Future[None]] = {}

    def submit(self, event: Event) -> None:
        """Let the machine handle the event, and carry out its effects.

        May be called from within.
        """
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                self._handle(self._events.popleft())
        finally:
            self._handling = False

    def _handle(self, event: Event) -> None:
        for effect in self.machine.handle(event, self._now()):
            self._carry_out(effect)

    async def _report(self, switch: str, digests: Sequence[Mapping[str, int]]) -> None:
        """Submit what a switch reports, and wait until it was dealt with.

        Then the switch gets an acknowledgement.
        """
        number = next(self._numbers)
        dealt_with = asyncio.get_running_loop().create_future()
        self._reports[number] = dealt_with
        try:
            self.submit(Digests(number, switch, digests))
            await dealt_with
        finally:
            del self._reports[number]

    def _end_report(self, number: int) -> None:
        """Note that a report was dealt with. Its session may have ended meanwhile."""
        dealt_with = self._reports.get(number)
        if dealt_with is not None and not dealt_with.done():
            dealt_with.set_result(None)

    def _start(
        self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]] | None = None
    ) -> None:
        """Run in the background, as one of the `tasks`.

        A failure is fatal, because nothing else handles it.
        """
        tasks = self._tasks if tasks is None else tasks

        def ended(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                self._fail(error)

        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(ended)

    @abstractmethod
    def _now(self) -> Instant: ...

    @abstractmethod
    def _carry_out(self, effect: Effect) -> None: ...

    @abstractmethod
    def _fail(self, error: BaseException) -> None:
        """End the loop, because a task has failed."""
