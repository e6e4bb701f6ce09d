"""The last hour of jobs and ports, as this controller saw it since it leads."""

import asyncio
import time
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated

from echelon.controller.service.api.settings import Resource
from echelon.controller.service.history import STEP_S, STEPS, Steps
from echelon.planning.plan import LEVELS

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.service.controller import ControllerService

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


def _read(
    service: "ControllerService", job: str | None, switch: str | None, limit: int
) -> HistoryResource:
    history = service.leader.history
    machine = service.machine
    now_s = time.monotonic()
    to = {key: other for key, other in service.fabric.neighbour.items() if switch in (None, key[0])}

    def slowdown(name: str, values: Sequence[float]) -> float:
        return max((one for one in values[::2] if one == one), default=0.0) / (
            machine.alone_iteration_s(name) or inf
        )

    def sent(_: tuple[str, int], values: Sequence[float]) -> float:
        return sum(one for one in values if one == one)

    jobs = history.jobs.read(now_s, slowdown, None if job is None else {job}, limit)
    ports = history.ports.read(now_s, sent, to, limit)
    return HistoryResource(
        from_s=time.time() - now_s % STEP_S - (STEPS - 1) * STEP_S,
        step_s=STEP_S,
        jobs=tuple(
            JobHistory(job=name, iteration_s=_column(steps, 0), tardiness_s=_column(steps, 1))
            for name, steps in jobs
        ),
        ports=tuple(
            PortHistory(
                switch=name,
                port=port,
                to=to[name, port],
                queues=tuple(_column(steps, queue) for queue in range(LEVELS)),
            )
            for (name, port), steps in ports
        ),
    )


def routes() -> "APIRouter":
    """Return the endpoint."""
    from fastapi import Query

    from echelon.controller.service.api.answers import errors
    from echelon.controller.service.api.routing import TheService, router

    made = router("live")

    @made.get("/history", responses=errors(404))
    async def show_history(
        service: TheService,
        job: Annotated[str | None, Query(description="Return only this job.")] = None,
        switch: Annotated[
            str | None, Query(description="Return only ports of this switch.")
        ] = None,
        limit: Annotated[
            int, Query(ge=1, le=LARGEST_ANSWER, description="Return so many of each at most.")
        ] = 20,
    ) -> HistoryResource:
        """Return the last hour of the slowest jobs and of the busiest ports.

        It is kept in memory, in 10 MB at most.
        """
        if job is not None:
            service.machine.jobs.known(job)
        if switch is not None:
            service.leader.switches[switch]
        # A thousand ports have more than a million values.
        return await asyncio.to_thread(_read, service, job, switch, limit)

    return made
