"""The state of the service for people, load balancers and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from echelon.control.errors import UnknownError
from echelon.service.api.answers import RequestError, errors
from echelon.service.api.routing import TheService, next_page, router
from echelon.service.resources import EventResource, StatusResource
from echelon.service.trail import KEPT


class Alive(BaseModel):
    alive: Literal[True] = True


class Ready(BaseModel):
    ready: Literal[True] = True
    stuck: tuple[str, ...] = ()
    """The switches that have not held their intents for two minutes. All else goes on meanwhile."""


status = router("status")


@status.get("/status", responses=errors())
async def show_status(service: TheService) -> StatusResource:
    """Return the service at a glance."""
    return service.status()


@status.get("/healthz", responses=errors(422, 500, common=()), openapi_extra={"security": []})
async def is_alive() -> Alive:
    """Answer as long as the controller's event loop runs. Needs no token."""
    return Alive()


@status.get("/readyz", responses=errors(422, 500, 503, common=()), openapi_extra={"security": []})
async def is_ready(service: TheService) -> Ready:
    """Return whether this controller leads, or stands by, as it should; 503 says why it does not. Needs no token.

    Switches that are stuck do not make it unready: it serves all others, and its API is needed to find out more.
    """
    problems = service.problems()
    if problems:
        raise RequestError(503, "; ".join(problems))
    return Ready(stuck=tuple(service.stuck()))


@status.get("/events", responses=errors(404))
async def list_events(
    service: TheService,
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=KEPT, description="Return so many of the latest.")] = 100,
    client: Annotated[str | None, Query(description="Return only changes by the token of this name.")] = None,
    of: Annotated[
        str | None,
        Query(alias="object", description="Return only changes of this job, link or policy."),
    ] = None,
    before: Annotated[str | None, Query(description="Return only changes before that of this request.")] = None,
) -> Sequence[EventResource]:
    """List the latest changes that clients asked for, oldest first. If there are older ones, the header `Link` names
    the page before this one."""
    found = service.events()
    if before is not None:
        places = [place for place, event in enumerate(found) if event.request == before]
        if not places:
            raise UnknownError(f"no change of request '{before}' is kept (begin again without 'before')", "before")
        found = found[: places[0]]
    wanted = [
        event
        for event in found
        if client in (None, event.client) and (of is None or event.object == of or event.object.startswith(f"{of} "))
    ]
    if len(wanted) > limit:
        next_page(request, response, before=wanted[-limit].request)
    return wanted[-limit:]


def metrics_router(metrics: Callable[[], tuple[bytes, str]], *, is_open: bool) -> APIRouter:
    """Return the router of the metrics. With `is_open` it requires no token."""
    made = router("status")

    @made.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **errors(),
        },
        openapi_extra={"security": []} if is_open else None,
    )
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        content, content_type = metrics()
        return Response(content, headers={"Content-Type": content_type})

    return made
