"""The state of the service for those who follow it live: looked at once for all of them, and only
while there are any. The endpoint tells clients what changes, as server-sent events.

Each part of the state is a mapping of keys to JSON texts. A part, and the text of what has not
changed, stays the same object, so that each follower finds quickly what is new for it. A slow
follower skips what has changed twice meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from echelon.controller.machine.errors import ServiceError
from echelon.controller.machine.machine import Machine
from echelon.controller.service import logs
from echelon.controller.service.api import jobs, links, switches
from echelon.controller.service.api.answers import RETRY_AFTER_S, RequestError, errors
from echelon.controller.service.api.policy import PolicyResource
from echelon.controller.service.api.routing import Stopping, router
from echelon.controller.service.api.status import StatusResource, events
from echelon.controller.service.api.switches import PortUse, SwitchQueues
from echelon.controller.service.api.tokens import Principal
from echelon.controller.service.controller import ControllerService
from echelon.controller.service.history import STEP_S

Part = Mapping[str, str]
"""Things of one kind: their JSON by key."""

STATE_S = 0.5
"""Shortest time between two looks at the state."""
PORTS_S = 2.0
"""Shortest time between two readings of the switches' counters."""
SHARE = 0.05
"""Largest part of the time that looking takes."""
SELDOM = 10
"""The most periods between two looks, however long a look takes."""
READING_S = 5.0
"""Longest time that a switch has to tell its counters."""
EVENTS = 200
"""Number of the latest changes that followers get."""
_PAGE = 250
"""Jobs that are looked at in one go; then other work of the event loop has its turn."""
FOLLOWERS = 100
"""Maximum number of clients that follow at a time."""
LONGEST_S = 600.0
"""After this time a stream ends, and its client asks again: a token that was withdrawn reads no
longer than that.
"""
SILENT_S = 15.0
"""After this time without news comes a comment, so that nothing on the way takes the connection for
dead.
"""
PIECE = 500
"""Things in one event."""
MEDIA_TYPE = "text/event-stream"

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

    def __init__(self, service: Callable[[], ControllerService]) -> None:
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
                asyncio.create_task(_again(self._read_ports(self._show_ports), PORTS_S)),
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

    def change(self) -> Coroutine[Any, Any, object]:
        """Return what waits for the next change after this call."""
        return self._news.wait()

    def _take(self, name: str, found: Iterable[tuple[str, BaseModel]]) -> None:
        before = self._parts.get(name, {})
        part = {}
        for key, resource in found:
            text = resource.model_dump_json()
            known = before.get(key)
            part[key] = known if known == text else text
        self._put(name, part)

    def _put(self, name: str, part: Part) -> None:
        if part == self._parts.get(name):
            return
        self._parts[name] = part
        news = self._news
        self._news = asyncio.Event()
        news.set()

    async def _look_at_state(self) -> None:
        service = self._service()
        self._take("status", [("status", StatusResource.of(service))])
        try:
            machine = service.machine
            self._take("policy", [("policy", PolicyResource.of(machine.jobs.policy))])
            self._take("switches", ((one.name, one) for one in switches.listed(service)))
            self._take("links", ((f"{one.a}/{one.b}", one) for one in links.listed(service)))
            self._take("events", ((one.request, one) for one in events(service)[-EVENTS:]))
            self._put("flows", {"flows": f'{{"count":{machine.flow_log.count}}}'})
            await self._look_at_jobs(machine)
        except ServiceError:
            # A standby knows nothing but its status.
            for name in [name for name in self._parts if name != "status"]:
                self._put(name, {})

    async def _look_at_jobs(self, machine: Machine) -> None:
        before = self._parts.get("jobs", {})
        part: dict[str, str] = {}
        after: str | None = None
        while True:
            page = jobs.listed(machine, after=after, limit=_PAGE)
            for job in page:
                text = job.model_dump_json()
                known = before.get(job.name)
                part[job.name] = known if known == text else text
            if len(page) < _PAGE:
                break
            after = page[-1].name
            await asyncio.sleep(0)
        self._put("jobs", part)

    async def record(self) -> None:
        """Take note of what ports send, whether or not anyone follows.

        Runs until it is cancelled.
        """
        await _again(self._read_ports(self._note_ports), STEP_S)

    def _show_ports(self, uses: Sequence[PortUse]) -> None:
        self._take("ports", ((f"{use.switch}/{use.port}", use) for use in uses))

    def _note_ports(self, uses: Sequence[PortUse]) -> None:
        ports = self._service().leader.history.ports
        now_s = time.monotonic()
        for use in uses:
            ports.put((use.switch, use.port), now_s, [bps / use.rate_bps for bps in use.queues_bps])

    def _read_ports(
        self, take: Callable[[Sequence[PortUse]], None]
    ) -> Callable[[], Awaitable[None]]:
        """Return a function that reads all switches, and lets `take` have what their ports sent
        since its last call.
        """
        before: dict[str, SwitchQueues] = {}

        async def read_ports() -> None:
            service = self._service()
            try:
                names = [
                    one.name
                    for one in switches.listed(service)
                    if one.state in ("ready", "writing", "refused")
                ]
            except ServiceError:
                return
            readings = await asyncio.gather(*(_reading(service, name) for name in names))
            now = {one.switch: one for one in readings if one is not None and one.reachable}
            with suppress(ServiceError):  # it may have ceased to lead meanwhile
                take(switches.uses(before, now))
            before.clear()
            before.update(now)

        return read_ports


class Follower:
    """A client that follows the state, with what it has been told."""

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

    def change(self) -> Coroutine[Any, Any, object]:
        """Return what waits for the next change after this call."""
        return self._live.change()


async def _reading(service: ControllerService, switch: str) -> SwitchQueues | None:
    with suppress(ServiceError, TimeoutError):
        async with asyncio.timeout(READING_S):
            return await switches.queues(service, switch)
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


stream = router("live")


@stream.get(
    "/stream",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        **errors(),
    },
)
async def follow(request: Request, stopping: Stopping) -> StreamingResponse:
    """Return what there is, and then what changes, as server-sent events, for ten minutes at most.

    The event `hello` says which token asks (`token`, `role`). The others are named after a part of
    the state: `status`, `policy`, `switches`, `links`, `ports` (what ports send), `jobs`, `events`,
    `flows` (how many were seen). Their data is `{"changed": [...], "removed": [...]}`: resources
    that are new or have changed, and keys of those that are gone.
    """
    live: Live = request.app.state.live
    if live.followers >= FOLLOWERS:
        reason = f"{FOLLOWERS} clients follow already (come back later)"
        raise RequestError(429, reason, headers={"Retry-After": str(RETRY_AFTER_S)})
    principal: Principal | None = request.scope.get("principal")
    return StreamingResponse(_told(live, stopping, principal), media_type=MEDIA_TYPE)


async def _told(
    live: Live, stopping: asyncio.Event, principal: Principal | None
) -> AsyncIterator[str]:
    ends_at = time.monotonic() + LONGEST_S
    who = {
        "token": None if principal is None else principal.token,
        "role": None if principal is None else principal.role,
    }
    yield f"event: hello\ndata: {json.dumps(who)}\n\n"
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        async with live.followed() as follower:
            while not stopping.is_set() and (left_s := ends_at - time.monotonic()) > 0:
                change = asyncio.ensure_future(follower.change())
                try:
                    said = False
                    for news in follower.news():
                        for event in _events(news):
                            said = True
                            yield event
                    if not said:
                        done, _ = await asyncio.wait(
                            (change, stopped),
                            timeout=min(SILENT_S, left_s),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                        if not done:
                            yield ": nothing new\n\n"
                finally:
                    change.cancel()
                    with suppress(asyncio.CancelledError):
                        await change
    finally:
        stopped.cancel()


def _events(news: News) -> Iterator[str]:
    removed = json.dumps(news.removed)
    for at in range(0, len(news.changed) or 1, PIECE):
        changed = ",".join(news.changed[at : at + PIECE])
        yield f'event: {news.part}\ndata: {{"changed":[{changed}],"removed":{removed}}}\n\n'
        removed = "[]"
