"""The state of the service for those who follow it live: looked at once for all of them, and only while there are any.

Each part of the state is a mapping of keys to JSON texts. A part, and the text of what has not changed, stays the same
object, so that each follower finds quickly what is new for it. A slow follower skips what has changed twice meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from pydantic import BaseModel

from echelon.control.errors import ServiceError
from echelon.service import logs
from echelon.service.interface import JobQuery, Service
from echelon.service.port_use import uses
from echelon.service.resources import SwitchQueues

Part = Mapping[str, str]
"""Things of one kind: their JSON by key."""

STATE_S = 0.5
"""Shortest time between two looks at the state."""
PORTS_S = 2.0
"""Shortest time between two readings of the switches' counters."""
SHARE = 0.05
"""Largest part of the time that looking takes."""
SELDOM = 10
"""Most periods between two looks, however long they take."""
READING_S = 5.0
"""Longest time that a switch has to tell its counters."""
EVENTS = 200
"""Number of the latest changes that followers get."""
_PAGE = 250
"""Jobs that are looked at in one go; then other work of the event loop has its turn."""
_BEYOND = 1 << 62
"""A number above that of every flow."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """What has changed in one part."""

    part: str
    changed: tuple[str, ...]
    """JSON texts."""
    removed: tuple[str, ...]
    """Keys."""


class Live:
    """The state that followers share."""

    def __init__(self, service: Callable[[], Service]) -> None:
        self._service = service
        self._parts: dict[str, Part] = {}
        self._news = asyncio.Event()
        self._followers = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def followers(self) -> int:
        """The number of followers."""
        return self._followers

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[Follower]:
        """Yield a follower, which begins with everything that there is."""
        self._followers += 1
        if self._followers == 1:
            self._parts, self._news = {}, asyncio.Event()
            self._tasks = [
                asyncio.create_task(_again(self._look_at_state, STATE_S)),
                asyncio.create_task(_again(self._read_ports(), PORTS_S)),
            ]
        try:
            yield Follower(self)
        finally:
            self._followers -= 1
            if self._followers == 0:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def parts(self) -> Mapping[str, Part]:
        """The state as it was seen last."""
        return self._parts

    async def change(self) -> None:
        """Wait for the next change."""
        await self._news.wait()

    def _take(self, name: str, found: Iterable[tuple[str, BaseModel]]) -> None:
        before = self._parts.get(name, {})
        part = {}
        for key, resource in found:
            text, known = resource.model_dump_json(), before.get(key)
            part[key] = known if known == text else text
        self._put(name, part)

    def _put(self, name: str, part: Part) -> None:
        if part == self._parts.get(name):
            return
        self._parts[name] = part
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _look_at_state(self) -> None:
        service = self._service()
        self._take("status", [("status", service.status())])
        try:
            self._take("policy", [("policy", service.policy())])
            self._take("switches", ((one.name, one) for one in service.switches()))
            self._take("links", ((f"{one.a}/{one.b}", one) for one in service.links()))
            self._take("events", ((one.request, one) for one in list(service.events())[-EVENTS:]))
            self._put("flows", {"flows": f'{{"count":{service.flows(_BEYOND, None).count}}}'})
            await self._look_at_jobs(service)
        except ServiceError:
            # A standby knows nothing but its status.
            for name in [name for name in self._parts if name != "status"]:
                self._put(name, {})

    async def _look_at_jobs(self, service: Service) -> None:
        before = self._parts.get("jobs", {})
        part: dict[str, str] = {}
        after: str | None = None
        while True:
            page = service.jobs(JobQuery(after=after, limit=_PAGE))
            for job in page:
                text, known = job.model_dump_json(), before.get(job.name)
                part[job.name] = known if known == text else text
            if len(page) < _PAGE:
                break
            after = page[-1].name
            await asyncio.sleep(0)
        self._put("jobs", part)

    def _read_ports(self) -> Callable[[], Awaitable[None]]:
        """Return what reads all switches and notes what their ports have sent since it was called last."""
        before: dict[str, SwitchQueues] = {}

        async def read_ports() -> None:
            service = self._service()
            try:
                names = [one.name for one in service.switches() if one.state in ("ready", "writing", "refused")]
            except ServiceError:
                return
            readings = await asyncio.gather(*(_reading(service, name) for name in names))
            now = {one.switch: one for one in readings if one is not None and one.reachable}
            self._take("ports", ((f"{use.switch}/{use.port}", use) for use in uses(before, now)))
            before.clear()
            before.update(now)

        return read_ports


class Follower:
    """Someone who follows the state, and what has been told."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._told: dict[str, Part] = {}

    def news(self) -> Iterator[News]:
        """Return what has changed since the last call."""
        for name, part in self._live.parts.items():
            told = self._told.get(name, {})
            if part is told:
                continue
            self._told[name] = part
            changed = tuple(text for key, text in part.items() if told.get(key) is not text)
            removed = tuple(key for key in told if key not in part)
            if changed or removed:
                yield News(name, changed, removed)

    async def change(self) -> None:
        """Wait for the next change."""
        await self._live.change()


async def _reading(service: Service, switch: str) -> SwitchQueues | None:
    with suppress(ServiceError, TimeoutError):
        async with asyncio.timeout(READING_S):
            return await service.queues(switch)
    return None


async def _again(look: Callable[[], Awaitable[None]], period_s: float) -> None:
    """Look again and again, so rarely that it costs little."""
    while True:
        began_s = time.process_time()
        try:
            await look()
        except Exception:
            log.exception("the live state could not be read")
        took_s = time.process_time() - began_s
        await asyncio.sleep(min(max(period_s, took_s / SHARE), SELDOM * period_s))
