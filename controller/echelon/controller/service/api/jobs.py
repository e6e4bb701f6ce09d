"""Jobs: what is registered, what was measured of them, and what clients and agents report."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Query, Request, Response

from echelon.controller.changes import (
    RegisterJob,
    RemoveJob,
    ReportConnections,
    ReportDistances,
)
from echelon.controller.machine.agents import addresses, reported_protocol
from echelon.controller.machine.events import AwaitJob, ReportIterations
from echelon.controller.machine.jobs import NO_QUOTA, five_tuple, parse_job
from echelon.controller.resources.dryruns import DryRunResource
from echelon.controller.resources.jobs import (
    ConnectionReport,
    ConnectionsResource,
    DistanceReport,
    EchelonFlowReport,
    FlowNumbers,
    HostMeasurement,
    IterationReport,
    JobResource,
    JobSummary,
    ReportedConnection,
    SizeReport,
    Timings,
)
from echelon.controller.service.api.answers import WITH_BODY, RequestError, errors
from echelon.controller.service.api.body import Mapping as Body
from echelon.controller.service.api.body import described, parsed
from echelon.controller.service.api.dryruns import rehearse_change
from echelon.controller.service.api.routing import (
    Rehearse,
    Stopping,
    TheService,
    answer_at_once,
    answer_in_pieces,
    next_page,
    router,
)
from echelon.controller.service.trail import ORIGIN
from echelon.controller.states import JobState
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.spec import JobSpec
from echelon.switches.telemetry.sizes import HostIteration, Measured, profiled_bytes

if TYPE_CHECKING:
    from echelon.controller.machine.change import ChangeRequest
    from echelon.controller.machine.effects import Answer
    from echelon.controller.machine.jobs import RegisteredJob
    from echelon.controller.machine.machine import Machine
    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import Fabric
    from echelon.switches.lowering.identity import FiveTuple
    from echelon.switches.telemetry.tracker import JobView

MAX_WAIT_S = 60
LARGEST_PAGE = 1000


# -- documents -------------------------------------------------------------------------------------


def job_resource(job: RegisteredJob, machine: Machine) -> JobResource:
    """Return the document of a job, without its flows."""
    state, problem = machine.progress.state(job.name)
    times, installed_at = machine.progress.times(job.name)
    view = machine.view(job.name)
    measured = machine.measured(job)
    reports = sorted(measured.items())
    measurements = [host_measurement(host, iterations) for host, iterations in reports]
    timings = None
    if times is not None:
        timings = Timings.model_validate(times, from_attributes=True)
    return JobResource(
        name=job.name,
        number=job.number,
        spec=dict(job.document),
        state=state,
        problem=problem,
        settled=machine.progress.settled(job.name),
        accepted_at=job.accepted_at,
        installed_at=installed_at,
        workers=tuple(job.spec.hosts),
        flow_count=job.flow_count,
        alone_iteration_s=machine.alone_iteration_s(job.name),
        iteration_times_s=() if view is None else _floats(view.iteration_times_s),
        echelonflows=tuple(echelonflow_reports(job, view)),
        measurements=tuple(measurements),
        sizes=tuple(size_reports(job, measured)),
        trees=tuple(machine.tree_documents(job.name)),
        ranked_at_hosts=tuple(machine.ranked_at_hosts(job.name)),
        timings=timings,
    )


def job_summary(job: RegisteredJob, machine: Machine) -> JobSummary:
    """Return a job in short."""
    state, problem = machine.progress.state(job.name)
    view = machine.view(job.name)
    last_iteration_s = None
    last_tardiness_s = None
    if view is not None and view.iteration_times_s:
        last_iteration_s = float(view.iteration_times_s[-1])
    if view is not None and view.tardiness_s is not None:
        last_tardiness_s = float(view.tardiness_s)
    waiting_for: tuple[str, ...] = ()
    if state == "planned":
        waiting_for = machine.progress.waiting_for(job.name)
    return JobSummary(
        name=job.name,
        state=state,
        problem=problem,
        parallelism=job.spec.parallelism,
        workers=tuple(job.spec.hosts),
        flow_count=job.flow_count,
        alone_iteration_s=machine.alone_iteration_s(job.name),
        last_iteration_s=last_iteration_s,
        last_tardiness_s=last_tardiness_s,
        alone_tardiness_s=machine.alone_tardiness_s(job.name),
        waiting_for=waiting_for,
    )


def flow_numbers(job: RegisteredJob) -> Iterator[FlowNumbers]:
    """Yield all flows of a job."""
    if job.graph is None:
        return
    for number, flow in enumerate(job.graph.flows):
        yield FlowNumbers(
            name=flow.name,
            src=flow.src,
            dst=flow.dst,
            size_bytes=flow.size_bytes,
            number=number,
        )


def echelonflow_reports(job: RegisteredJob, view: JobView | None) -> Iterator[EchelonFlowReport]:
    """Yield what switches saw of a job's EchelonFlows."""
    if job.graph is None:
        return
    for echelonflow in job.graph.echelonflows:
        distances_s = None
        tardiness_s: tuple[float, ...] = ()
        seen = None if view is None else view.echelonflows.get(echelonflow.name)
        if seen is not None:
            tardiness_s = _floats(seen.tardiness_s)
            if seen.distances_s is not None:
                distances_s = _floats(seen.distances_s)
        yield EchelonFlowReport(
            name=echelonflow.name,
            flows=len(echelonflow.flows),
            offsets_s=_floats(echelonflow.offsets_s),
            observed_distances_s=distances_s,
            tardiness_s=tardiness_s,
        )


def host_measurement(host: str, iterations: Sequence[HostIteration]) -> HostMeasurement:
    """Return what a host measured."""
    latest = iterations[-1] if iterations else HostIteration(Fraction(0), {})
    return HostMeasurement(
        host=host,
        iteration_times_s=_floats(iteration.duration_s for iteration in iterations),
        sent_bytes=dict(latest.sent_bytes),
        retransmitted_bytes=latest.retransmitted_bytes,
        stalled_s=float(latest.stalled_s),
    )


def size_reports(job: RegisteredJob, measured: Measured) -> Iterator[SizeReport]:
    """Yield the sizes of an iteration in each direction in which a host measured them."""
    if not measured or job.graph is None:
        return
    profiled = profiled_bytes(job.profiled)
    used = profiled_bytes(job.job)
    for src, iterations in sorted(measured.items()):
        if not iterations:
            continue
        latest = iterations[-1]
        for dst, sent_bytes in sorted(latest.sent_bytes.items()):
            yield SizeReport(
                src=src,
                dst=dst,
                profiled_bytes=profiled.get((src, dst), 0),
                measured_bytes=sent_bytes,
                used_bytes=used.get((src, dst), 0),
            )


def connections_resource(
    job: RegisteredJob,
    fabric: Fabric,
    host: str | None = None,
) -> ConnectionsResource:
    """Return the reported connections of a job, or only those of one host."""
    recognition = job.spec.recognition
    recognised_by: str = recognition.by
    if reported_protocol(job.spec) == "roce":
        recognised_by = "roce"
    connections = {}
    for name, reported in job.connections.items():
        if host is None or host == name:
            connections[name] = tuple(map(_reported_connection, sorted(reported)))
    by_address = addresses(job.spec, fabric)
    gap_s = recognition.idle_gap
    return ConnectionsResource(
        job=job.name,
        by=recognised_by,
        idle_gap_s=None if gap_s is None else float(gap_s),
        addresses={name: address for address, name in by_address.items()},
        connections=connections,
    )


def _reported_connection(connection: FiveTuple) -> ReportedConnection:
    _, src, dst, src_port, dst_port = connection
    return ReportedConnection.model_construct(
        local=(src, src_port),
        remote=(dst, dst_port),
    )


def _five_tuple(connection: ReportedConnection) -> FiveTuple:
    src, src_port = connection.local
    dst, dst_port = connection.remote
    return five_tuple("tcp", src, dst, src_port, dst_port)


def _floats(values: Iterable[Fraction]) -> tuple[float, ...]:
    return tuple(map(float, values))


# -- what the endpoints do -------------------------------------------------------------------------


def listed(
    machine: Machine,
    state: JobState | None = None,
    worker: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> Sequence[JobSummary]:
    """Return jobs in the order of their names, and at most `limit` of them.

    `state`, `worker` and `after` leave only jobs in that state, with that host, and with later
    names (there need not be a job of that name).
    """
    names = sorted(machine.jobs.jobs)
    first = 0 if after is None else bisect_right(names, after)

    def wanted() -> Iterator[RegisteredJob]:
        for name in islice(names, first, None):
            job = machine.jobs.jobs[name]
            if worker is not None and worker not in job.spec.hosts:
                continue
            if state is None or machine.progress.state(name)[0] == state:
                yield job

    # Of many jobs only those that are wanted are summarised.
    jobs = islice(wanted(), limit)
    return [job_summary(job, machine) for job in jobs]


async def registration(spec: Mapping[str, Any], *, replace: bool) -> Callable[[int], ChangeRequest]:
    """Return a function from the number of a request to the request for this job.

    Raise `DocumentError` if `spec` is not a job's.
    """
    # A small document may stand for a large job, so that it is read beside the event loop.
    job = await asyncio.to_thread(parse_job, spec)
    origin = ORIGIN.get()
    quota = NO_QUOTA if origin is None else origin.quota
    return partial(
        RegisterJob,
        document=spec,
        spec=job,
        replace=replace,
        quota=quota,
    )


async def register(
    service: ControllerService,
    spec: Mapping[str, Any],
    *,
    replace: bool,
) -> tuple[JobResource, bool]:
    """Register a job, and return it and whether it is new. Its key `job` names it.

    Registering the same spec again changes nothing. Another spec of that name raises
    `ConflictError`, or takes the place of the first with `replace`.
    """
    leader = service.leader

    def render(answer: Answer) -> tuple[JobResource, bool]:
        return job_resource(answer.value, leader.machine), answer.created

    make = await registration(spec, replace=replace)
    return await leader.ask(make, render)


async def installed(
    service: ControllerService,
    name: str,
    timeout_s: float,
) -> tuple[JobResource, Iterator[FlowNumbers]]:
    """Return a job as soon as it is settled, at the latest after `timeout_s`."""
    leader = service.leader

    def show(job: RegisteredJob) -> tuple[JobResource, Iterator[FlowNumbers]]:
        return job_resource(job, leader.machine), flow_numbers(job)

    def render(answer: Answer) -> tuple[JobResource, Iterator[FlowNumbers]]:
        return show(answer.value)

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await leader.ask(partial(AwaitJob, job=name), render)
    return show(leader.machine.jobs.find(name))


async def _accept(
    service: ControllerService,
    spec: dict[str, Any],
    *,
    replace: bool,
    rehearse: bool,
) -> Response:
    if rehearse:
        make = await registration(spec, replace=replace)
        return await rehearse_change(service.leader, make)
    job, is_new = await register(service, spec, replace=replace)
    if is_new:
        location = f"/jobs/{quote(job.name, safe='')}"
        return answer_at_once(job, 201, {"Location": location})
    return answer_at_once(job)


# -- the endpoints ---------------------------------------------------------------------------------

EXAMPLES: dict[str, Any] = {}
for _paradigm in registered().sections.values():
    EXAMPLES.update(_paradigm.examples)
DISTANCES: dict[str, Any] = {
    "profiled": {"echelonflow": "fp-0", "offsets": ["0 s", "12 ms", "24 ms"]}
}
CONNECTIONS: dict[str, Any] = {
    "seen": {"connections": [{"local": "10.0.0.1:41234", "remote": "10.0.0.2:29500"}]},
    "none": {"connections": []},
}
ITERATIONS: dict[str, Any] = {
    "measured": {"iterations": [{"duration": "205 ms", "sent": {"h2": "40 MB"}}]}
}
CREATED = {
    "model": JobResource,
    "description": "Registered.",
    "headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}},
}
REHEARSED_REMOVAL = {
    "model": DryRunResource,
    "description": "What the removal would do (`dry_run`).",
}

OnlyState = Annotated[JobState | None, Query(description="Return only jobs in this state.")]
OnlyWorker = Annotated[str | None, Query(description="Return only jobs with this host.")]
PageSize = Annotated[
    int,
    Query(
        ge=1,
        le=LARGEST_PAGE,
        description="Return at most this many jobs.",
    ),
]
AfterName = Annotated[
    str | None, Query(description="Return only jobs whose names come after this one.")
]
WaitS = Annotated[
    float | None,
    Query(
        ge=0,
        le=MAX_WAIT_S,
        allow_inf_nan=False,
        description="Seconds to wait until the job is installed.",
    ),
]

routes = router("jobs")


@routes.get("/jobs", responses=errors())
async def list_jobs(
    service: TheService,
    request: Request,
    response: Response,
    state: OnlyState = None,
    worker: OnlyWorker = None,
    limit: PageSize = LARGEST_PAGE,
    after: AfterName = None,
) -> Sequence[JobSummary]:
    """List jobs in short, in the order of their names.

    If there are more, the header `Link` names the next page.
    """
    jobs = listed(service.machine, state, worker, after, limit + 1)
    if len(jobs) > limit:
        next_page(request, response, after=jobs[limit - 1].name)
    return jobs[:limit]


@routes.post(
    "/jobs",
    response_model=JobResource | DryRunResource,
    responses={**errors(409, *WITH_BODY), 201: CREATED},
    response_description="The same job was registered already.",
    openapi_extra=described(JobSpec, **EXAMPLES),
)
async def register_job(
    service: TheService,
    spec: Body,
    rehearse: Rehearse = False,
) -> Response:
    """Register a job.

    The body is a job file's mapping as JSON; quantities are text with their units, as in files. The
    job is on disk before the answer comes. A different job of the same name is refused (409): PUT
    replaces it.
    """
    return await _accept(
        service,
        spec,
        replace=False,
        rehearse=rehearse,
    )


@routes.put(
    "/jobs/{name}",
    response_model=JobResource | DryRunResource,
    responses={**errors(*WITH_BODY), 201: CREATED},
    response_description="The job was changed, or was the same already.",
    openapi_extra=described(JobSpec, **EXAMPLES),
)
async def put_job(
    service: TheService,
    name: str,
    spec: Body,
    rehearse: Rehearse = False,
) -> Response:
    """Register a job, or replace the one that has its name."""
    spec_name = spec.get("job")
    if isinstance(spec_name, str) and spec_name != name:
        reason = "is not the name in the path (a job keeps its name: make both the same)"
        raise RequestError(422, reason, "job", code="conflicting-key")
    return await _accept(
        service,
        spec,
        replace=True,
        rehearse=rehearse,
    )


@routes.get(
    "/jobs/{name}",
    response_model=JobResource,
    responses=errors(404),
)
async def show_job(
    service: TheService,
    stopping: Stopping,
    name: str,
    wait_s: WaitS = None,
) -> Response:
    """Return one job.

    With `wait_s` the answer comes when the job is installed or refused, at the latest after that
    time.
    """
    if wait_s is not None:
        # When the server stops, the client gets the job as it is.
        waiting = asyncio.ensure_future(installed(service, name, wait_s))
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                resource, flows = await waiting
                return answer_in_pieces(resource, "flows", flows)
        finally:
            waiting.cancel()
            stopped.cancel()
    job = service.machine.jobs.find(name)
    resource = job_resource(job, service.machine)
    return answer_in_pieces(resource, "flows", flow_numbers(job))


@routes.delete(
    "/jobs/{name}",
    status_code=204,
    response_model=None,
    responses={**errors(404), 200: REHEARSED_REMOVAL},
    response_description="Removed.",
)
async def remove_job(
    service: TheService,
    name: str,
    rehearse: Rehearse = False,
) -> Response | None:
    """Remove a job: from disk before the answer comes, from the switches with the next plan."""
    leader = service.leader
    make = partial(RemoveJob, job=name)
    if rehearse:
        return await rehearse_change(leader, make)
    await leader.ask(make, lambda _: None)
    return None


@routes.post(
    "/jobs/{name}/distances",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(DistanceReport, **DISTANCES),
)
async def report_distances(
    service: TheService,
    name: str,
    report: Annotated[DistanceReport, Depends(parsed(DistanceReport))],
) -> JobResource:
    """Replace the arrangement function of one EchelonFlow by a measured one."""
    leader = service.leader
    offsets_s = report.offsets
    if not isinstance(offsets_s, tuple):
        offsets_s = (offsets_s,)
    make = partial(
        ReportDistances,
        job=name,
        echelonflow=report.echelonflow,
        offsets_s=offsets_s,
    )

    def render(answer: Answer) -> JobResource:
        return job_resource(answer.value, leader.machine)

    return await leader.ask(make, render)


@routes.get("/jobs/{name}/connections", responses=errors(404))
async def show_connections(service: TheService, name: str) -> ConnectionsResource:
    """Return the connections of a job that agents reported, and the addresses of its hosts."""
    job = service.machine.jobs.find(name)
    return connections_resource(job, service.fabric)


@routes.put(
    "/jobs/{name}/connections/{host}",
    responses=errors(404, 409, *WITH_BODY),
    openapi_extra=described(ConnectionReport, **CONNECTIONS),
)
async def report_connections(
    service: TheService,
    name: str,
    host: str,
    report: Annotated[ConnectionReport, Depends(parsed(ConnectionReport))],
) -> ConnectionsResource:
    """Replace the connections of a job that a host sees.

    The answer has those of this host; they are on disk.
    """
    connections = tuple(map(_five_tuple, report.connections))
    make = partial(
        ReportConnections,
        job=name,
        host=host,
        connections=connections,
    )

    def render(answer: Answer) -> ConnectionsResource:
        return connections_resource(answer.value, service.fabric, host)

    return await service.leader.ask(make, render)


@routes.put(
    "/jobs/{name}/iterations/{host}",
    responses=errors(404, *WITH_BODY),
    openapi_extra=described(IterationReport, **ITERATIONS),
)
async def report_iterations(
    service: TheService,
    name: str,
    host: str,
    report: Annotated[IterationReport, Depends(parsed(IterationReport))],
) -> HostMeasurement:
    """Replace what a host measured of a job's latest iterations.

    It is kept in memory; `GET /jobs/NAME` has it.
    """
    iterations = tuple(iteration.read() for iteration in report.iterations)
    make = partial(
        ReportIterations,
        job=name,
        host=host,
        iterations=iterations,
    )
    await service.leader.ask(make, lambda _: None)
    return host_measurement(host, iterations)
