"""The service as a whole: its state for people and programs, and the audit trail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from echelon.controller.machine.errors import UnknownError
from echelon.controller.names import short_list
from echelon.controller.resources.status import Alive, EventResource, Ready, StatusResource
from echelon.controller.service.api.answers import RequestError, errors
from echelon.controller.service.api.routing import TheService, next_page, router
from echelon.controller.service.trail import KEPT

if TYPE_CHECKING:
    from echelon.controller.service.controller import ControllerService
    from echelon.controller.service.leader import Leader
    from echelon.switches.southbound.connection import ConnectionSnapshot

STUCK_S = 120.0
"""Seconds without its intent after which a switch is stuck (alert `EchelonSwitchStuck`)."""

_NAMED = 4
"""The most links that are named in one line."""

version = cache(metadata.version)
"""The version of a distribution, which is read from a file: once, and not for each request."""


def status_resource(service: ControllerService) -> StatusResource:
    """Return the service as it is now."""
    if service.leading is None:
        return _standby_status(service)
    return _leader_status(service, service.leading)


def _standby_status(service: ControllerService) -> StatusResource:
    return StatusResource(
        version=version("echelon-p4"),
        fabric=service.config.fabric.name,
        role="standby",
        term=None,
        leader=service.leader_url,
        started_at=service.started_at,
        policy=service.config.policy.name,
        jobs=0,
        installed_jobs=0,
        plan=0,
        problems=tuple(_problems(service)),
        plan_problem=service.problem,
        switches={},
    )


def _leader_status(service: ControllerService, leader: Leader) -> StatusResource:
    machine = leader.machine
    counts = machine.progress.counts()
    plan = 0 if machine.in_force is None else machine.in_force.planned.version
    return StatusResource(
        version=version("echelon-p4"),
        fabric=service.config.fabric.name,
        role="leader",
        term=leader.term,
        leader=leader.url,
        started_at=service.started_at,
        policy=str(machine.jobs.policy),
        jobs=len(machine.jobs.jobs),
        installed_jobs=counts.get("installed", 0),
        jobs_by_state=dict(counts),
        problems=(*_problems(service), *_concerns(leader)),
        plan=plan,
        plan_problem=machine.plan_problem,
        settled=machine.settled,
        searching=machine.searching,
        switches=leader.switches.states(),
    )


def events(service: ControllerService) -> Sequence[EventResource]:
    """Return the changes that clients asked for, oldest first."""
    records = service.leader.trail.records
    return [EventResource.model_validate(record, from_attributes=True) for record in records]


def _problems(service: ControllerService) -> Sequence[str]:
    """Return why the service is not ready; empty: it is ready.

    No leader is known, the store is gone, or there is no plan yet.
    """
    if service.leading is None:
        reason = service.beginning or service.problem
        if reason is not None:
            return [reason]
        if service.leader_url is None:
            return ["no controller leads"]
        return []

    leader = service.leading
    problems = []
    if leader.store_problem is not None:
        problems.append(leader.store_problem)
    if leader.machine.in_force is None:
        problems.append(leader.machine.plan_problem or "there is no plan yet")
    return problems


def _concerns(leader: Leader) -> Iterator[str]:
    """Yield what does not keep the service from its work, but may keep jobs from theirs."""
    machine = leader.machine
    if machine.in_force is not None and machine.plan_problem is not None:
        yield f"plan: {machine.plan_problem}"
    if machine.moves.waits is not None:
        yield f"links move: {machine.moves.waits}"
    if machine.outages.links:
        outages = sorted(machine.outages.links.items())
        links = [f"{a} - {b} ({why})" for (a, b), why in outages]
        yield f"links down: {short_list(links, _NAMED)}"
    yield from machine.disturbances.problems
    for switch in leader.switches.snapshots():
        concern = _switch_concern(switch)
        if concern is not None:
            yield f"switch {switch.name}: {concern}"


def _switch_concern(switch: ConnectionSnapshot) -> str | None:
    if switch.problem is not None:
        return switch.problem.removeprefix(f"switch {switch.name}: ")
    if switch.state not in ("ready", "writing"):
        return switch.state
    if switch.unwatched is not None:
        return f"links of ports that are down are not noticed ({switch.unwatched})"
    return None


def _stuck(service: ControllerService) -> Iterator[str]:
    """Yield the switches that have not held their intents for long, one line each."""
    if service.leading is None:
        return
    # No repair of these holds.
    yield from service.leading.machine.disturbances.problems
    times_s = service.leading.switches.unready_s()
    for name, unready_s in times_s.items():
        if unready_s >= STUCK_S:
            hint = f"echelon switch show {name}"
            yield f"switch {name} has not held its intent for {unready_s:.0f} s ({hint})"


EventLimit = Annotated[
    int,
    Query(
        ge=1,
        le=KEPT,
        description="Return at most this many of the latest.",
    ),
]
OnlyClient = Annotated[
    str | None, Query(description="Return only changes by the token of this name.")
]
OnlyObject = Annotated[
    str | None,
    Query(
        alias="object",
        description="Return only changes of this job, link, policy or switch.",
    ),
]
BeforeRequest = Annotated[
    str | None, Query(description="Return only changes before that of this request.")
]

NO_TOKEN: dict[str, Any] = {"security": []}

routes = router("status")


@routes.get("/status", responses=errors())
async def show_status(service: TheService) -> StatusResource:
    """Return the service at a glance."""
    return status_resource(service)


@routes.get(
    "/healthz",
    responses=errors(422, 500, common=()),
    openapi_extra=NO_TOKEN,
)
async def is_alive() -> Alive:
    """Answer as long as the controller's event loop runs. Needs no token."""
    return Alive()


@routes.get(
    "/readyz",
    responses=errors(422, 500, 503, common=()),
    openapi_extra=NO_TOKEN,
)
async def is_ready(service: TheService) -> Ready:
    """Return whether this controller leads or stands by as it should; 503 says why it does not.

    Needs no token. Switches that are stuck do not make it unready: it serves all others, and its
    API is needed to find out more.
    """
    problems = _problems(service)
    if problems:
        raise RequestError(503, "; ".join(problems))
    return Ready(stuck=tuple(_stuck(service)))


@routes.get("/events", responses=errors(404))
async def list_events(
    service: TheService,
    request: Request,
    response: Response,
    limit: EventLimit = 100,
    client: OnlyClient = None,
    subject: OnlyObject = None,
    before: BeforeRequest = None,
) -> Sequence[EventResource]:
    """List the latest changes that clients asked for, oldest first.

    If there are older ones, the header `Link` names the page before this one.
    """
    page = events(service)
    if before is not None:
        requests = [event.request for event in page]
        if before not in requests:
            reason = f"no change of request '{before}' is kept (begin again without 'before')"
            raise UnknownError(reason, "before")
        page = page[: requests.index(before)]
    if client is not None:
        page = [event for event in page if event.client == client]
    if subject is not None:
        page = [event for event in page if _concerns_object(event, subject)]
    if len(page) > limit:
        next_page(request, response, before=page[-limit].request)
    return page[-limit:]


def _concerns_object(event: EventResource, name: str) -> bool:
    # What follows a name says what of it has changed.
    return event.object == name or event.object.startswith(f"{name} ")


def metrics_routes(metrics: Callable[[], tuple[bytes, str]], *, is_open: bool) -> APIRouter:
    """Return the endpoint of the metrics. With `is_open` it requires no token."""
    metrics_router = router("status")
    success = {
        "description": "Prometheus' text format.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }

    @metrics_router.get(
        "/metrics",
        response_class=Response,
        responses={200: success, **errors()},
        openapi_extra=NO_TOKEN if is_open else None,
    )
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        # With hundreds of switches, they take longer than the event loop may be held up.
        content, content_type = await asyncio.to_thread(metrics)
        return Response(content, headers={"Content-Type": content_type})

    return metrics_router
