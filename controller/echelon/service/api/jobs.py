"""Endpoints of jobs: register, change, show, remove; and the distances that a profiler measured."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Query, Request, Response

from echelon.control.progress import JobState
from echelon.jobs.paradigms.registry import registered
from echelon.jobs.spec import JobSpec
from echelon.service.api.answers import WITH_BODY, RequestError, errors
from echelon.service.api.body import checked, described, parsed
from echelon.service.api.routing import Rehearse, Stopping, TheService, next_page, router
from echelon.service.interface import JobQuery, Registered, Registration, Removal
from echelon.service.resources import (
    ConnectionReport,
    ConnectionsResource,
    DistanceReport,
    DryRunResource,
    HostMeasurement,
    IterationReport,
    JobResource,
    JobSummary,
)

MAX_WAIT_S = 60
LARGEST_PAGE = 1000

EXAMPLES: dict[str, Any] = {
    title: example for paradigm in registered().sections.values() for title, example in paradigm.examples.items()
}
DISTANCES: dict[str, Any] = {"profiled": {"echelonflow": "fp-0", "offsets": ["0 s", "12 ms", "24 ms"]}}
CONNECTIONS: dict[str, Any] = {
    "seen": {"connections": [{"local": "10.0.0.1:41234", "remote": "10.0.0.2:29500"}]},
    "none": {"connections": []},
}
ITERATIONS: dict[str, Any] = {"measured": {"iterations": [{"duration": "205 ms", "sent": {"h2": "40 MB"}}]}}

LOCATION = {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}}
CREATED = {"model": JobResource, "description": "Registered.", **LOCATION}

JobMapping = Annotated[dict[str, Any], Depends(checked(JobSpec))]

jobs = router("jobs")


@jobs.get("/jobs", responses=errors())
async def list_jobs(
    service: TheService,
    request: Request,
    response: Response,
    state: Annotated[JobState | None, Query(description="Return only jobs in this state.")] = None,
    worker: Annotated[str | None, Query(description="Return only jobs with this host.")] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="Return so many jobs at most.")] = LARGEST_PAGE,
    after: Annotated[str | None, Query(description="Return only jobs whose names come after this one.")] = None,
) -> Sequence[JobSummary]:
    """List jobs in short, in the order of their names. If there are more, the header `Link` names the next page."""
    found = service.jobs(JobQuery(state, worker, after, limit + 1))
    if len(found) > limit:
        next_page(request, response, after=found[limit - 1].name)
    return found[:limit]


@jobs.post(
    "/jobs",
    responses={**errors(409, *WITH_BODY), 201: CREATED},
    response_description="The same job was registered already.",
    openapi_extra=described(JobSpec, **EXAMPLES),
)
async def register_job(
    service: TheService, spec: JobMapping, response: Response, rehearse: Rehearse = False
) -> JobResource | DryRunResource:
    """Register a job. The body is a job file's mapping as JSON; quantities are text with their units, as in files.

    The job is on disk before the answer comes. A different job of the same name is refused (409): PUT replaces it.
    """
    if rehearse:
        return await service.rehearse(Registration(spec, replace=False))
    return _answer(await service.register(spec, replace=False), response)


@jobs.put(
    "/jobs/{name}",
    responses={**errors(*WITH_BODY), 201: CREATED},
    response_description="The job was changed, or was the same already.",
    openapi_extra=described(JobSpec, **EXAMPLES),
)
async def put_job(
    service: TheService, name: str, spec: JobMapping, response: Response, rehearse: Rehearse = False
) -> JobResource | DryRunResource:
    """Register a job, or replace the one that has its name."""
    given = spec.get("job")
    if isinstance(given, str) and given != name:
        raise RequestError(
            422, "is not the name in the path (a job keeps its name: make both the same)", "job", code="conflicting-key"
        )
    if rehearse:
        return await service.rehearse(Registration(spec, replace=True))
    return _answer(await service.register(spec, replace=True), response)


@jobs.get("/jobs/{name}", responses=errors(404))
async def show_job(
    service: TheService,
    stopping: Stopping,
    name: str,
    wait_s: Annotated[
        float | None,
        Query(ge=0, le=MAX_WAIT_S, allow_inf_nan=False, description="Seconds to wait until the job is installed."),
    ] = None,
) -> JobResource:
    """Return one job. With `wait_s` the answer comes when the job is installed or refused, at the latest after that
    time."""
    if wait_s is None:
        return service.job(name)
    waiting = asyncio.ensure_future(service.installed(name, wait_s))
    stopped = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
        return await waiting if waiting.done() else service.job(name)
    finally:
        waiting.cancel()
        stopped.cancel()


@jobs.delete(
    "/jobs/{name}",
    status_code=204,
    response_model=None,
    responses={**errors(404), 200: {"model": DryRunResource, "description": "What the removal would do (`dry_run`)."}},
    response_description="Removed.",
)
async def remove_job(
    service: TheService, name: str, response: Response, rehearse: Rehearse = False
) -> DryRunResource | None:
    """Remove a job: from disk before the answer comes, from the switches with the next plan."""
    if rehearse:
        response.status_code = 200
        return await service.rehearse(Removal(name))
    await service.remove(name)
    return None


@jobs.post(
    "/jobs/{name}/distances",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(DistanceReport, **DISTANCES),
)
async def report_distances(
    service: TheService, name: str, report: Annotated[DistanceReport, Depends(parsed(DistanceReport))]
) -> JobResource:
    """Replace the arrangement function of one EchelonFlow by a measured one."""
    return await service.report_distances(name, report)


@jobs.get("/jobs/{name}/connections", responses=errors(404))
async def show_connections(service: TheService, name: str) -> ConnectionsResource:
    """Return the connections of a job that agents reported, and the addresses between which they look for them."""
    return service.connections(name)


@jobs.put(
    "/jobs/{name}/connections/{host}",
    responses=errors(404, 409, *WITH_BODY),
    openapi_extra=described(ConnectionReport, **CONNECTIONS),
)
async def report_connections(
    service: TheService, name: str, host: str, report: Annotated[ConnectionReport, Depends(parsed(ConnectionReport))]
) -> ConnectionsResource:
    """Replace the connections of a job that a host sees. The answer has those of this host; they are on disk."""
    return await service.report_connections(name, host, report)


@jobs.put(
    "/jobs/{name}/iterations/{host}",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(IterationReport, **ITERATIONS),
)
async def report_iterations(
    service: TheService, name: str, host: str, report: Annotated[IterationReport, Depends(parsed(IterationReport))]
) -> HostMeasurement:
    """Replace what a host measured of a job's latest iterations. It is kept in memory; `GET /jobs/NAME` has it."""
    return await service.report_iterations(name, host, report)


def _answer(registered: Registered, response: Response) -> JobResource:
    if registered.created:
        response.status_code = 201
        response.headers["Location"] = f"/jobs/{quote(registered.job.name, safe='')}"
    return registered.job
