"""The last hour of jobs and ports, as this controller saw it since it leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from math import inf, isnan
from typing import TYPE_CHECKING, Annotated

from fastapi import Query

from echelon.controller.resources.history import HistoryResource, JobHistory, PortHistory, Values
from echelon.controller.service.api.answers import errors
from echelon.controller.service.api.routing import TheService, router
from echelon.controller.service.history import STEP_S, STEPS, Steps
from echelon.planning.plan import LEVELS

if TYPE_CHECKING:
    from echelon.controller.service.controller import ControllerService

LARGEST_ANSWER = 100
_DIGITS = 6


def _column(steps: Steps, place: int) -> Values:
    values = [step[place] for step in steps]
    return tuple(None if value is None else round(value, _DIGITS) for value in values)


def _read(
    service: ControllerService,
    job: str | None,
    switch: str | None,
    limit: int,
) -> HistoryResource:
    now_s = time.monotonic()
    this_step_s = now_s % STEP_S
    return HistoryResource(
        from_s=time.time() - this_step_s - (STEPS - 1) * STEP_S,
        step_s=STEP_S,
        jobs=tuple(_job_histories(service, job, limit, now_s)),
        ports=tuple(_port_histories(service, switch, limit, now_s)),
    )


def _job_histories(
    service: ControllerService,
    job: str | None,
    limit: int,
    now_s: float,
) -> list[JobHistory]:
    """Return the history of the slowest jobs."""
    machine = service.machine

    def slowdown(name: str, values: Sequence[float]) -> float:
        # Iteration times and tardiness take turns.
        times_s = [value for value in values[::2] if not isnan(value)]
        alone_s = machine.alone_iteration_s(name) or inf
        return max(times_s, default=0.0) / alone_s

    among = None if job is None else {job}
    rows = service.leader.history.jobs.read(now_s, slowdown, among, limit)
    histories = []
    for name, steps in rows:
        history = JobHistory(
            job=name,
            iteration_s=_column(steps, 0),
            tardiness_s=_column(steps, 1),
        )
        histories.append(history)
    return histories


def _port_histories(
    service: ControllerService,
    switch: str | None,
    limit: int,
    now_s: float,
) -> list[PortHistory]:
    """Return the history of the busiest ports."""

    def sent(_: tuple[str, int], values: Sequence[float]) -> float:
        return sum(value for value in values if not isnan(value))

    neighbours = {
        end: neighbour
        for end, neighbour in service.fabric.neighbour.items()
        if switch is None or end[0] == switch
    }
    rows = service.leader.history.ports.read(now_s, sent, neighbours, limit)
    histories = []
    for end, steps in rows:
        node, port = end
        history = PortHistory(
            switch=node,
            port=port,
            to=neighbours[end],
            queues=tuple(_column(steps, queue) for queue in range(LEVELS)),
        )
        histories.append(history)
    return histories


OnlyJob = Annotated[str | None, Query(description="Return only this job.")]
OnlySwitch = Annotated[str | None, Query(description="Return only ports of this switch.")]
Limit = Annotated[
    int,
    Query(
        ge=1,
        le=LARGEST_ANSWER,
        description="Return at most this many of each.",
    ),
]

routes = router("live")


@routes.get("/history", responses=errors(404))
async def show_history(
    service: TheService,
    job: OnlyJob = None,
    switch: OnlySwitch = None,
    limit: Limit = 20,
) -> HistoryResource:
    """Return the last hour of the slowest jobs and of the busiest ports.

    It is kept in memory, in 10 MB at most.
    """
    if job is not None:
        service.machine.jobs.find(job)
    if switch is not None:
        service.leader.switches[switch]
    # A thousand ports have more than a million values.
    return await asyncio.to_thread(_read, service, job, switch, limit)
