"""The endpoint that tells clients live what changes, as server-sent events; and flows, and who waits for whom."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import StreamingResponse

from echelon.service.api.answers import RETRY_AFTER_S, RequestError, errors
from echelon.service.api.routing import Stopping, TheService, router
from echelon.service.api.tokens import Principal
from echelon_web.live import Live, News
from echelon.service.resources import FlowTable, WaitsResource

FOLLOWERS = 100
"""Maximum number of clients that follow at a time."""
LONGEST_S = 600.0
"""After this time a stream ends, and its client asks again: a token that was withdrawn reads no longer than that."""
SILENT_S = 15.0
"""After this time without news comes a comment, so that nothing on the way takes the connection for dead."""
PIECE = 500
"""Things in one event."""

MEDIA_TYPE = "text/event-stream"

stream = router("live")


@stream.get(
    "/stream",
    response_class=StreamingResponse,
    responses={
        200: {"description": "Server-sent events.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
        **errors(),
    },
)
async def follow(request: Request, stopping: Stopping) -> StreamingResponse:
    """Return what there is, and then what changes, as server-sent events, for ten minutes at most.

    The event `hello` says which token asks (`token`, `role`). The others are named after a part of the state: `status`,
    `policy`, `switches`, `links`, `ports` (what ports send), `jobs`, `events`, `flows` (how many were seen). Their data
    is `{"changed": [...], "removed": [...]}`: resources that are new or have changed, and keys of those that are gone.
    """
    live: Live = request.app.state.live
    if live.followers >= FOLLOWERS:
        reason = f"{FOLLOWERS} clients follow already (come back later)"
        raise RequestError(429, reason, headers={"Retry-After": str(RETRY_AFTER_S)})
    principal: Principal | None = request.scope.get("principal")
    return StreamingResponse(_told(live, stopping, principal), media_type=MEDIA_TYPE)


@stream.get("/flows", responses=errors(404))
async def list_flows(
    service: TheService,
    after: Annotated[int, Query(ge=0, le=1 << 53, description="Return only flows with higher numbers.")] = 0,
    job: Annotated[str | None, Query(description="Return only flows of this job.")] = None,
) -> FlowTable:
    """Return the flows that switches saw last, 10,000 at most, by column."""
    return service.flows(after, job)


@stream.get("/waits", responses=errors())
async def show_waits(service: TheService) -> WaitsResource:
    """Return which jobs waited for which others, by the flows that switches saw last."""
    return await service.waits()


async def _told(live: Live, stopping: asyncio.Event, principal: Principal | None) -> AsyncIterator[str]:
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
                            (change, stopped), timeout=min(SILENT_S, left_s), return_when=asyncio.FIRST_COMPLETED
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
