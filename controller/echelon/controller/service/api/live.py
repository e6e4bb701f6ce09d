"""The state of the service for those who follow it live.

It is looked at once for all of them, and only while there are any. The endpoint sends clients what
changes, as server-sent events.

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
from echelon.controller.resources.switches import PortUse, SwitchQueues
from echelon.controller.resources.switches import uses as port_uses
from echelon.controller.service import logs
from echelon.controller.service.api import jobs, links, switches
from echelon.controller.service.api.answers import RETRY_AFTER_S, RequestError, errors
from echelon.controller.service.api.policy import policy_resource
from echelon.controller.service.api.routing import Stopping, router
from echelon.controller.service.api.status import events, status_resource
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
"""The longest time of a stream. Its client asks again: a token may have been withdrawn."""
SILENT_S = 15.0
"""The time without news after which a comment keeps the connection from seeming dead."""
PIECE = 500
"""Things in one event."""
_CONNECTED = ("ready", "writing", "refused")
"""The states of a switch in which its counters can be read."""
MEDIA_TYPE = "text/event-stream"

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class News:
    """The changes of one part."""

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
            self._parts = {}
            self._news = asyncio.Event()
            self._tasks = [
                asyncio.create_task(_repeat(self._look_at_state, STATE_S)),
                asyncio.create_task(_repeat(self._read_ports(self._show_ports), PORTS_S)),
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

    def _take(self, name: str, resources: Mapping[str, BaseModel]) -> None:
        self._put(name, self._texts(name, resources))

    def _texts(self, name: str, resources: Mapping[str, BaseModel]) -> Part:
        """Return resources as JSON; a text that has not changed is the object that was there."""
        before = self._parts.get(name, {})
        texts = {}
        for key, resource in resources.items():
            text = resource.model_dump_json()
            former = before.get(key)
            texts[key] = former if former == text else text
        return texts

    def _put(self, name: str, part: Part) -> None:
        if part == self._parts.get(name):
            return
        self._parts[name] = part
        # A new event comes first: who wakes up by the old one waits for the next change.
        news = self._news
        self._news = asyncio.Event()
        news.set()

    async def _look_at_state(self) -> None:
        service = self._service()
        self._take("status", {"status": status_resource(service)})
        try:
            machine = service.machine
            policy = policy_resource(machine.jobs.policy)
            listed_switches = switches.listed(service)
            listed_links = links.listed(service)
            latest_events = events(service)[-EVENTS:]
            self._take("policy", {"policy": policy})
            self._take("switches", {switch.name: switch for switch in listed_switches})
            self._take("links", {f"{link.a}/{link.b}": link for link in listed_links})
            self._take("events", {event.request: event for event in latest_events})
            self._put("flows", {"flows": f'{{"count":{machine.flow_log.count}}}'})
            await self._look_at_jobs(machine)
        except ServiceError:
            # A standby knows nothing but its status.
            for name in list(self._parts):
                if name != "status":
                    self._put(name, {})

    async def _look_at_jobs(self, machine: Machine) -> None:
        texts: dict[str, str] = {}
        after: str | None = None
        while True:
            page = jobs.listed(machine, after=after, limit=_PAGE)
            page_texts = self._texts("jobs", {job.name: job for job in page})
            texts.update(page_texts)
            if len(page) < _PAGE:
                break
            after = page[-1].name
            await asyncio.sleep(0)
        self._put("jobs", texts)

    async def record(self) -> None:
        """Take note of what ports send, whether or not anyone follows.

        Runs until it is cancelled.
        """
        await _repeat(self._read_ports(self._note_ports), STEP_S)

    def _show_ports(self, uses: Sequence[PortUse]) -> None:
        self._take("ports", {f"{use.switch}/{use.port}": use for use in uses})

    def _note_ports(self, uses: Sequence[PortUse]) -> None:
        ports = self._service().leader.history.ports
        now_s = time.monotonic()
        for use in uses:
            shares = [queue_bps / use.rate_bps for queue_bps in use.queues_bps]
            ports.put((use.switch, use.port), now_s, shares)

    def _read_ports(
        self, take: Callable[[Sequence[PortUse]], None]
    ) -> Callable[[], Awaitable[None]]:
        """Return a function that reads all switches.

        It lets `take` have what their ports sent since its last call.
        """
        before: dict[str, SwitchQueues] = {}

        async def read_ports() -> None:
            service = self._service()
            try:
                listed = switches.listed(service)
            except ServiceError:
                return
            reading = [
                _reading(service, switch.name) for switch in listed if switch.state in _CONNECTED
            ]
            now = {}
            for counters in await asyncio.gather(*reading):
                if counters is not None and counters.reachable:
                    now[counters.switch] = counters
            # This controller may have ceased to lead meanwhile.
            with suppress(ServiceError):
                take(port_uses(before, now))
            before.clear()
            before.update(now)

        return read_ports


class Follower:
    """A client that follows the state, with what it has got."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._parts: dict[str, Part] = {}

    def news(self) -> Iterator[News]:
        """Return what has changed since the last call."""
        for name, part in self._live.parts.items():
            before = self._parts.get(name, {})
            if part is before:
                continue
            self._parts[name] = part
            # The text of what has not changed is the same object: comparing objects is quick.
            changed = [text for key, text in part.items() if before.get(key) is not text]
            removed = [key for key in before if key not in part]
            if changed or removed:
                yield News(name, tuple(changed), tuple(removed))

    def change(self) -> Coroutine[Any, Any, object]:
        """Return what waits for the next change after this call."""
        return self._live.change()


async def _reading(service: ControllerService, switch: str) -> SwitchQueues | None:
    with suppress(ServiceError, TimeoutError):
        async with asyncio.timeout(READING_S):
            return await switches.queues(service, switch)
    return None


async def _repeat(look: Callable[[], Awaitable[None]], period_s: float) -> None:
    """Look again and again, so rarely that it costs little."""
    while True:
        # The time of the processor, and not of the clock, in which others run, too.
        began_s = time.process_time()
        try:
            await look()
        except Exception:
            log.exception("the live state could not be read")
        took_s = time.process_time() - began_s
        pause_s = max(period_s, took_s / SHARE)
        await asyncio.sleep(min(pause_s, SELDOM * period_s))


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
    return StreamingResponse(_event_stream(live, stopping, principal), media_type=MEDIA_TYPE)


async def _event_stream(
    live: Live,
    stopping: asyncio.Event,
    principal: Principal | None,
) -> AsyncIterator[str]:
    ends_at_s = time.monotonic() + LONGEST_S
    hello: dict[str, str | None] = {"token": None, "role": None}
    if principal is not None:
        hello = {"token": principal.token, "role": principal.role}
    yield f"event: hello\ndata: {json.dumps(hello)}\n\n"

    stopped = asyncio.ensure_future(stopping.wait())
    try:
        async with live.followed() as follower:
            while not stopping.is_set():
                left_s = ends_at_s - time.monotonic()
                if left_s <= 0:
                    break
                # Made before the state is looked at: else a change between that and the wait would
                # be missed.
                change = asyncio.ensure_future(follower.change())
                try:
                    is_silent = True
                    for text in _events_of_all(follower.news()):
                        is_silent = False
                        yield text
                    if is_silent:
                        timeout_s = min(SILENT_S, left_s)
                        if not await _is_any_done(change, stopped, timeout_s=timeout_s):
                            yield ": nothing new\n\n"
                finally:
                    change.cancel()
                    with suppress(asyncio.CancelledError):
                        await change
    finally:
        stopped.cancel()


async def _is_any_done(*futures: asyncio.Future[Any], timeout_s: float) -> bool:
    """Wait until one of some futures is done, and return whether one is."""
    done, _ = await asyncio.wait(
        futures,
        timeout=timeout_s,
        return_when=asyncio.FIRST_COMPLETED,
    )
    return bool(done)


def _events_of_all(news: Iterable[News]) -> Iterator[str]:
    for part_news in news:
        yield from _events(part_news)


def _events(news: News) -> Iterator[str]:
    removed = json.dumps(news.removed)
    count = len(news.changed) or 1
    for first in range(0, count, PIECE):
        changed = ",".join(news.changed[first : first + PIECE])
        yield f'event: {news.part}\ndata: {{"changed":[{changed}],"removed":{removed}}}\n\n'
        removed = "[]"
