"""Places for what is heavy for a controller with many switches: to open sessions, and to read."""

from __future__ import annotations

import asyncio

_PLACES = 16
_HELD_S = 3.0
"""The longest time for which a place is held."""


class Places:
    """The places for work of one kind.

    A session that is opened may push a program of megabytes, and a switch may have a hundred
    thousand entries. If 300 switches did so at once, on one event loop, most would miss deadlines,
    and begin once more.

    A place is held for some seconds at most. Whoever takes longer goes on without it, so that
    switches that are stuck do not keep the others waiting.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_PLACES)

    async def take(self) -> HeldPlace:
        """Wait for a place, in the order of the calls."""
        await self._free.acquire()
        return HeldPlace(self._free)


class HeldPlace:
    """A place that is taken. As a context manager, it is given up at the end of its block."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = loop.call_later(_HELD_S, self.give_up)

    def give_up(self) -> None:
        """Let another one have the place. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._free.release()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.give_up()


class SharedPlaces:
    """The places of all connections of a service.

    Whoever reads does not wait for switches with which no session opens.
    """

    def __init__(self) -> None:
        self.opening = Places()
        self.reading = Places()
