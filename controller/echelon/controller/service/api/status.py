"""The service as a whole: its state for people, load balancers and Prometheus, and what clients
changed.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from echelon.controller.machine.errors import UnknownError
from echelon.controller.machine.lines import JobState
from echelon.controller.service.api.settings import Resource
from echelon.switches.southbound.lifecycle import State

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.service.controller import ControllerService
    from echelon.controller.service.leader import Leader

STUCK_S = 120.0
"""Seconds after which a switch that does not hold its intent is stuck, as for the alert
`EchelonSwitchStuck`.
"""

_NAMED = 4
"""The most links that are named in one line."""

version = cache(metadata.version)
"""The version of a distribution, which is read from a file: once, and not for each request."""


class StatusResource(Resource):
    """The service at a glance."""

    version: str
    fabric: str
    role: Literal["leader", "standby"]
    term: int | None
    """Election id of this leader's sessions; None: standby."""
    leader: str | None
    """URL of the controller that leads, where known."""
    started_at: float
    policy: str
    jobs: int
    installed_jobs: int
    jobs_by_state: dict[JobState, int] = Field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What an operator has to look at, one line each; `/readyz` has those that keep the service
    from its work.
    """
    plan: int
    """Number of the plan in force; 0: none yet."""
    plan_problem: str | None = None
    settled: bool = False
    """Whether nothing is under way: the plan includes all that was accepted, and every switch that
    has a session has acknowledged it, or refuses part of it."""
    searching: bool = False
    """Whether a better plan may come soon."""
    switches: dict[State, int]

    @classmethod
    def of(cls, service: "ControllerService") -> "StatusResource":
        """Return the service as it is now."""
        leader = service.leading
        if leader is None:
            return cls(
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
        machine = leader.machine
        by_state = machine.progress.counts()
        return cls(
            version=version("echelon-p4"),
            fabric=service.config.fabric.name,
            role="leader",
            term=leader.term,
            leader=leader.url,
            started_at=service.started_at,
            policy=str(machine.jobs.policy),
            jobs=len(machine.jobs.jobs),
            installed_jobs=by_state.get("installed", 0),
            jobs_by_state=dict(by_state),
            problems=(*_problems(service), *_concerns(leader)),
            plan=0 if machine.in_force is None else machine.in_force.planned.version,
            plan_problem=machine.plan_problem,
            settled=machine.settled,
            searching=machine.searching,
            switches=leader.switches.states(),
        )


class EventResource(Resource):
    """A change that a client asked for, or another plan, other links or a takeover of which the
    service tells.
    """

    at: float
    action: str
    """What was done: `register job`, `replace job`, `remove job`, `report distances`, `choose
    policy`, `drain link`, `restore link`, `move links`, `take switch`; `links moved`, by a client
    or the service; or by the service alone `choose plan`, `links down`, `links up`, and `switch
    taken` or `switch left` (to another controller)."""
    object: str
    """What it was done to."""
    request: str
    """The request's id, as in the header `X-Request-Id` of its answer and in the log."""
    client: str | None
    """Name of the token; null: no tokens were configured."""
    address: str | None
    """Address of the client; null: a Unix socket."""


class Alive(BaseModel):
    alive: Literal[True] = True


class Ready(BaseModel):
    ready: Literal[True] = True
    stuck: tuple[str, ...] = ()
    """The switches that have not held their intents for two minutes. All else goes on meanwhile."""


def events(service: "ControllerService") -> Sequence[EventResource]:
    """Return the changes that clients asked for, oldest first."""
    return [
        EventResource.model_validate(one, from_attributes=True)
        for one in service.leader.trail.records
    ]


def _problems(service: "ControllerService") -> Sequence[str]:
    """Return why the service is not ready (no leader known, store gone, no plan yet); empty: it is
    ready.
    """
    leader = service.leading
    if leader is None:
        if service.beginning is not None or service.problem is not None:
            return [service.beginning or service.problem or ""]
        if service.leader_url is not None:
            return []
        return ["no controller leads"]
    if leader.store_problem is None:
        problems = []
    else:
        problems = [leader.store_problem]
    if leader.machine.in_force is None:
        problems.append(leader.machine.plan_problem or "there is no plan yet")
    return problems


def _concerns(leader: "Leader") -> Iterator[str]:
    """Yield what does not keep the service from its work, but may keep jobs from theirs."""
    if leader.machine.in_force is not None and leader.machine.plan_problem is not None:
        yield f"plan: {leader.machine.plan_problem}"
    if (waits := leader.machine.moves.waits) is not None:
        yield f"links move: {waits}"
    if links := leader.machine.outages.links:
        named = [f"{a} - {b} ({why})" for (a, b), why in sorted(links.items())]
        yield f"links down: {', '.join(named[:_NAMED])}" + (
            f" and {len(named) - _NAMED} more" * (len(named) > _NAMED)
        )
    for seen in leader.switches.snapshots():
        if seen.problem is not None:
            prefix = f"switch {seen.name}: "
            yield seen.problem if seen.problem.startswith(prefix) else f"{prefix}{seen.problem}"
        elif seen.state not in ("ready", "writing"):
            yield f"switch {seen.name}: {seen.state}"
        elif seen.unwatched is not None:
            yield (
                f"switch {seen.name}: links of ports that are down are not noticed"
                f" ({seen.unwatched})"
            )


def _stuck(service: "ControllerService") -> Iterator[str]:
    """Yield the switches that have not held their intents for long, one line each."""
    if service.leading is not None:
        for name, unready_s in service.leading.switches.unready_s().items():
            if unready_s >= STUCK_S:
                yield (
                    f"switch {name} has not held its intent for {unready_s:.0f} s (echelon switch"
                    f" show {name})"
                )


def routes() -> "APIRouter":
    """Return the endpoints, but for that of the metrics."""
    from fastapi import Query, Request, Response

    from echelon.controller.service.api.answers import RequestError, errors
    from echelon.controller.service.api.routing import TheService, next_page, router
    from echelon.controller.service.trail import KEPT

    made = router("status")

    @made.get("/status", responses=errors())
    async def show_status(service: TheService) -> StatusResource:
        """Return the service at a glance."""
        return StatusResource.of(service)

    @made.get("/healthz", responses=errors(422, 500, common=()), openapi_extra={"security": []})
    async def is_alive() -> Alive:
        """Answer as long as the controller's event loop runs. Needs no token."""
        return Alive()

    @made.get("/readyz", responses=errors(422, 500, 503, common=()), openapi_extra={"security": []})
    async def is_ready(service: TheService) -> Ready:
        """Return whether this controller leads, or stands by, as it should; 503 says why it does
        not. Needs no token.

        Switches that are stuck do not make it unready: it serves all others, and its API is needed
        to find out more.
        """
        problems = _problems(service)
        if problems:
            raise RequestError(503, "; ".join(problems))
        return Ready(stuck=tuple(_stuck(service)))

    @made.get("/events", responses=errors(404))
    async def list_events(
        service: TheService,
        request: Request,
        response: Response,
        limit: Annotated[
            int, Query(ge=1, le=KEPT, description="Return so many of the latest.")
        ] = 100,
        client: Annotated[
            str | None, Query(description="Return only changes by the token of this name.")
        ] = None,
        of: Annotated[
            str | None,
            Query(
                alias="object",
                description="Return only changes of this job, link, policy or switch.",
            ),
        ] = None,
        before: Annotated[
            str | None, Query(description="Return only changes before that of this request.")
        ] = None,
    ) -> Sequence[EventResource]:
        r"""\ List the latest changes that clients asked for, oldest first. If there are older ones,
        the header `Link` names the page before this one."""
        found = events(service)
        if before is not None:
            places = [place for place, event in enumerate(found) if event.request == before]
            if not places:
                raise UnknownError(
                    f"no change of request '{before}' is kept (begin again without 'before')",
                    "before",
                )
            found = found[: places[0]]
        wanted = [
            event
            for event in found
            if client in (None, event.client)
            and (of is None or event.object == of or event.object.startswith(f"{of} "))
        ]
        if len(wanted) > limit:
            next_page(request, response, before=wanted[-limit].request)
        return wanted[-limit:]

    return made


def metrics_routes(metrics: Callable[[], tuple[bytes, str]], *, is_open: bool) -> "APIRouter":
    """Return the endpoint of the metrics. With `is_open` it requires no token."""
    from fastapi import Response

    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import router

    made = router("status")

    @made.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus' text format.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **errors(),
        },
        openapi_extra={"security": []} if is_open else None,
    )
    async def show_metrics() -> Response:
        """Return metrics for Prometheus."""
        content, content_type = metrics()
        return Response(content, headers={"Content-Type": content_type})

    return made
