"""The state of the service for people, load balancers and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from echelon.service.api.answers import RequestError, errors
from echelon.service.api.routing import TheService, router
from echelon.service.resources import EventResource, StatusResource
from echelon.service.trail import KEPT


class Alive(BaseModel):
    alive: Literal[True] = True


class Ready(BaseModel):
    ready: Literal[True] = True


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
    """Return whether this controller leads, or stands by, as it should; 503 says why it does not. Needs no token."""
    problems = service.problems()
    if problems:
        raise RequestError(503, "; ".join(problems))
    return Ready()


@status.get("/events", responses=errors())
async def list_events(
    service: TheService,
    limit: Annotated[int, Query(ge=1, le=KEPT, description="Return so many of the latest.")] = 100,
) -> Sequence[EventResource]:
    """List the latest changes that clients asked for, oldest first."""
    return service.events()[-limit:]


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
