"""The last hour of jobs and ports, as this controller saw it since it leads."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

from echelon.plan import LEVELS
from echelon.service.api.settings import Resource
from echelon.service.history import STEP_S, STEPS, Steps

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.service.controller import ControllerService

LARGEST_ANSWER = 100
_DIGITS = 6

Values = tuple[float | None, ...]
"""A value for each step, oldest first; null: nothing was seen."""


class JobHistory(Resource):
    job: str
    iteration_s: Values
    """The longest iteration that ended in the step."""
    tardiness_s: Values
    """The largest tardiness that was seen in the step."""


class PortHistory(Resource):
    switch: str
    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    queues: tuple[Values, ...]
    """The part of the link's rate that each queue sent, the lowest level first."""


class HistoryResource(Resource):
    """The last hour in steps of equal length. The last step has not ended."""

    from_s: float
    """When the first step began."""
    step_s: float
    jobs: tuple[JobHistory, ...]
    """Those first whose longest iteration was longest against the job alone."""
    ports: tuple[PortHistory, ...]
    """Those first that sent the most."""


def _column(steps: Steps, place: int) -> Values:
    return tuple(None if one[place] is None else round(one[place] or 0.0, _DIGITS) for one in steps)


def _slowest(jobs: Mapping[str, Steps], alone_s: Mapping[str, float | None], limit: int) -> Iterable[JobHistory]:
    def slowdown(name: str) -> float:
        return max((one or 0.0 for one, _ in jobs[name]), default=0.0) / (alone_s[name] or float("inf"))

    for name in sorted(jobs, key=lambda name: (-slowdown(name), name))[:limit]:
        yield JobHistory(job=name, iteration_s=_column(jobs[name], 0), tardiness_s=_column(jobs[name], 1))


def _busiest(
    ports: Mapping[tuple[str, int], Steps], to: Mapping[tuple[str, int], str], limit: int
) -> Iterable[PortHistory]:
    sent = {key: sum(one or 0.0 for step in steps for one in step) for key, steps in ports.items()}
    for switch, port in sorted(ports, key=lambda key: (-sent[key], key))[:limit]:
        columns = tuple(_column(ports[switch, port], queue) for queue in range(LEVELS))
        yield PortHistory(switch=switch, port=port, to=to[switch, port], queues=columns)


async def read(service: "ControllerService", job: str | None, switch: str | None, limit: int) -> HistoryResource:
    """Return the last hour of a job, or of the slowest ones, and of the busiest ports, of a switch or of all."""
    history, machine, now_s = service.leader.history, service.machine, time.monotonic()
    to = {key: other for key, other in service.fabric.neighbour.items() if switch in (None, key[0])}
    jobs = {name: steps for name, steps in history.jobs.read(now_s) if job in (None, name)}
    ports = {key: steps for key, steps in history.ports.read(now_s) if key in to}
    alone_s = {name: machine.alone_iteration_s(name) for name in jobs}

    def made() -> HistoryResource:
        return HistoryResource(
            from_s=time.time() - now_s % STEP_S - (STEPS - 1) * STEP_S,
            step_s=STEP_S,
            jobs=tuple(_slowest(jobs, alone_s, limit)),
            ports=tuple(_busiest(ports, to, limit)),
        )

    # A thousand ports have more than a million values.
    return await asyncio.to_thread(made)


def routes() -> "APIRouter":
    """Return the endpoint."""
    from fastapi import Query

    from echelon.service.api.answers import errors
    from echelon.service.api.routing import TheService, router

    made = router("live")

    @made.get("/history", responses=errors(404))
    async def show_history(
        service: TheService,
        job: Annotated[str | None, Query(description="Return only this job.")] = None,
        switch: Annotated[str | None, Query(description="Return only ports of this switch.")] = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_ANSWER, description="Return so many of each at most.")] = 20,
    ) -> HistoryResource:
        """Return the last hour of the slowest jobs and of the busiest ports. It is kept in memory, in 10 MB at most."""
        if job is not None:
            service.machine.jobs.known(job)
        if switch is not None:
            service.leader.switches[switch]
        return await read(service, job, switch, limit)

    return made
