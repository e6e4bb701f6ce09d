"""Jobs: what is registered, what switches and hosts have measured of it, and what clients and
agents report.
"""

import ipaddress
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from echelon.controller.machine.lines import JobState
from echelon.controller.service.api.dryruns import DryRunResource, rehearsed
from echelon.controller.service.api.settings import Resource
from echelon.model.documents import (
    Duration,
    Durations,
    Name,
    PositiveDuration,
    Section,
    Size,
    StepName,
)
from echelon.model.jobs.paradigm import registered
from echelon.model.jobs.spec import JobSpec
from echelon.model.quantities import QuantityError, shown
from echelon.switches.telemetry.sizes import HostIteration, Measured, profiled_bytes

if TYPE_CHECKING:
    from fastapi import APIRouter

    from echelon.controller.machine import effects, events
    from echelon.controller.machine.jobs import RegisteredJob
    from echelon.controller.machine.machine import Machine
    from echelon.controller.service.controller import ControllerService
    from echelon.model.fabric.model import Fabric
    from echelon.switches.telemetry.tracker import JobView

MAX_WAIT_S = 60
LARGEST_PAGE = 1000


class Timings(Resource):
    """The durations of the phases of a change, from its acceptance to the last acknowledged
    entry.
    """

    queued_s: float
    """Time before planning began: coalescing, and a plan that was still being made."""
    policy_s: float
    lowering_s: float
    encoding_s: float
    """Time of encoding entries, all switches together."""
    rpc_s: float
    """Time of the slowest switch's writes."""
    total_s: float


class EchelonFlowReport(Resource):
    """The observations of one EchelonFlow by switches."""

    name: str
    flows: int
    offsets_s: tuple[float, ...]
    """The arrangement function in force: ideal finish times of its flows after the reference
    time.
    """
    observed_distances_s: tuple[float, ...] | None = None
    """Smoothed observed starts of its flows after the head flow's; None: not seen (by one clock)
    yet.
    """
    tardiness_s: tuple[float, ...] = ()
    """Tardiness in the latest iterations, oldest first."""

    @classmethod
    def of(cls, job: "RegisteredJob", seen: "JobView | None") -> "tuple[EchelonFlowReport, ...]":
        """Return what switches saw of a job's EchelonFlows."""
        reports = []
        for one in () if job.graph is None else job.graph.echelonflows:
            if seen is None:
                view = None
            else:
                view = seen.echelonflows.get(one.name)
            distances_s = None if view is None else view.distances_s
            reports.append(
                cls(
                    name=one.name,
                    flows=len(one.flows),
                    offsets_s=_floats(one.offsets_s),
                    observed_distances_s=None if distances_s is None else _floats(distances_s),
                    tardiness_s=() if view is None else _floats(view.tardiness_s),
                )
            )
        return tuple(reports)


def _floats(values: Iterable[Fraction]) -> tuple[float, ...]:
    return tuple(map(float, values))


class FlowNumbers(Resource):
    """The numbers that a sender writes into the shim header of a flow's packets
    (docs/data-plane.md).
    """

    name: str
    src: str
    dst: str
    size_bytes: int
    number: int

    @classmethod
    def of(cls, job: "RegisteredJob") -> "Iterator[FlowNumbers]":
        """Yield all flows of a job."""
        for number, flow in enumerate(() if job.graph is None else job.graph.flows):
            yield cls(
                name=flow.name,
                src=flow.src,
                dst=flow.dst,
                size_bytes=flow.size_bytes,
                number=number,
            )


class HostMeasurement(Resource):
    """The latest iterations of a job as one of its hosts measured them. Its agent reports them."""

    host: str
    iteration_times_s: tuple[float, ...]
    """Durations, oldest first."""
    sent_bytes: dict[str, int]
    """The bytes that the host sent in the latest of them, by destination. Each byte counts once."""
    retransmitted_bytes: int
    """The bytes that it sent again in the latest of them."""
    stalled_s: float
    """The time in the latest of them in which the host had data to send and its send buffers were
    too small.
    """

    @classmethod
    def of(cls, host: str, iterations: Sequence[HostIteration]) -> "HostMeasurement":
        """Return what a host measured."""
        if iterations:
            latest = iterations[-1]
        else:
            latest = HostIteration(Fraction(0), {})
        return cls(
            host=host,
            iteration_times_s=_floats(one.duration_s for one in iterations),
            sent_bytes=dict(latest.sent_bytes),
            retransmitted_bytes=latest.retransmitted_bytes,
            stalled_s=float(latest.stalled_s),
        )


class SizeReport(Resource):
    """The bytes of an iteration from one host to another."""

    src: str
    dst: str
    profiled_bytes: int
    """The size in the job's file."""
    measured_bytes: int
    """The bytes that the host sent in the latest iteration."""
    used_bytes: int
    """The size that plans go by: the file's, or the measured one where it replaces that
    (`telemetry.correct_sizes`).
    """

    @classmethod
    def of(cls, job: "RegisteredJob", measured: Measured) -> "Iterator[SizeReport]":
        """Yield the sizes of an iteration in each direction in which a host measured them."""
        if not measured or job.graph is None:
            return
        profiled = profiled_bytes(job.profiled)
        used = profiled_bytes(job.reported)
        for host, iterations in sorted(measured.items()):
            for other, sent_bytes in (
                sorted(iterations[-1].sent_bytes.items()) if iterations else ()
            ):
                yield cls(
                    src=host,
                    dst=other,
                    profiled_bytes=profiled.get((host, other), 0),
                    measured_bytes=sent_bytes,
                    used_bytes=used.get((host, other), 0),
                )


class JobResource(Resource):
    name: str
    number: int
    """The job's number in the shim header of its packets."""
    spec: dict[str, Any]
    """The job's mapping as registered."""
    state: JobState
    problem: str | None = None
    accepted_at: float
    installed_at: float | None = None
    workers: tuple[str, ...]
    """All hosts of the job, including a parameter server."""
    flow_count: int
    """0: not counted yet since the start, or too large to be built (`problem`)."""
    alone_iteration_s: float | None = None
    """Duration of an iteration on an otherwise empty fabric, in the fluid model; None: not computed
    yet.
    """
    iteration_times_s: tuple[float, ...] = ()
    """Durations of the latest iterations as switches saw them, oldest first."""
    echelonflows: tuple[EchelonFlowReport, ...] = ()
    measurements: tuple[HostMeasurement, ...] = ()
    """The measurements of the hosts on which agents run."""
    sizes: tuple[SizeReport, ...] = ()
    """The sizes that hosts measured, beside those of the file."""
    flows: tuple[FlowNumbers, ...] = ()
    """The job's flows and their numbers. Only present where a single job is requested."""
    trees: tuple[dict[str, Any], ...] = ()
    """What the hosts of each tree of switches have to know, which adds up what the job's flows
    bring (docs/aggregation.md)."""
    ranked_at_hosts: tuple[dict[str, Any], ...] = ()
    """How its senders rank its flows, where switches do not (docs/ranking-at-hosts.md)."""
    timings: Timings | None = None
    """Timings of the change that last installed it."""

    @classmethod
    def of(cls, job: "RegisteredJob", machine: "Machine") -> "JobResource":
        """Return all that is known of a job but its flows."""
        state, problem = machine.progress.state(job.name)
        times, installed_at = machine.progress.times(job.name)
        seen = machine.view(job.name)
        measured = machine.measured(job)
        return cls(
            name=job.name,
            number=job.number,
            spec=dict(job.document),
            state=state,
            problem=problem,
            accepted_at=job.accepted_at,
            installed_at=installed_at,
            workers=tuple(job.spec.hosts),
            flow_count=job.flow_count,
            alone_iteration_s=machine.alone_iteration_s(job.name),
            iteration_times_s=() if seen is None else _floats(seen.iteration_times_s),
            echelonflows=EchelonFlowReport.of(job, seen),
            measurements=tuple(
                HostMeasurement.of(host, latest) for host, latest in sorted(measured.items())
            ),
            sizes=tuple(SizeReport.of(job, measured)),
            trees=tuple(machine.told_of_trees(job.name)),
            ranked_at_hosts=tuple(machine.ranked_at_hosts(job.name)),
            timings=None if times is None else Timings.model_validate(times, from_attributes=True),
        )


class JobSummary(Resource):
    name: str
    state: JobState
    problem: str | None = None
    parallelism: str
    workers: tuple[str, ...]
    flow_count: int
    """0: not counted yet since the start, or too large to be built (`problem`)."""
    alone_iteration_s: float | None = None
    """Duration of an iteration on an otherwise empty fabric, in the fluid model; None: not computed
    yet.
    """
    last_iteration_s: float | None = None
    last_tardiness_s: float | None = None
    """The largest tardiness of its EchelonFlows, in the latest iteration that was seen whole."""
    alone_tardiness_s: float | None = None
    """The same on an otherwise empty fabric, in the fluid model; null: not computed yet."""
    waiting_for: tuple[str, ...] = ()
    """The switches that a `planned` job's flows pass and that do not hold the plan yet, or are
    away.
    """

    @classmethod
    def of(cls, job: "RegisteredJob", machine: "Machine") -> "JobSummary":
        """Return a job in short."""
        state, problem = machine.progress.state(job.name)
        seen = machine.view(job.name)
        return cls(
            name=job.name,
            state=state,
            problem=problem,
            parallelism=job.spec.parallelism,
            workers=tuple(job.spec.hosts),
            flow_count=job.flow_count,
            alone_iteration_s=machine.alone_iteration_s(job.name),
            last_iteration_s=(
                float(seen.iteration_times_s[-1]) if seen and seen.iteration_times_s else None
            ),
            last_tardiness_s=(
                float(seen.tardiness_s) if seen and seen.tardiness_s is not None else None
            ),
            alone_tardiness_s=machine.alone_tardiness_s(job.name),
            waiting_for=machine.progress.waiting_for(job.name) if state == "planned" else (),
        )


_ENDPOINT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3}){3}):([0-9]{1,8})")


def _endpoint(value: object) -> tuple[str, int]:
    if isinstance(value, str):
        found = _ENDPOINT.fullmatch(value)
    else:
        found = None
    try:
        if found is None:
            address = None
        else:
            address = str(ipaddress.IPv4Address(found[1]))
    except ValueError:
        address = None
    if found is None or address is None:
        raise QuantityError(
            f"{shown(value)} is not an endpoint (write it as 10.0.0.1:29500)", code="not-an-address"
        )
    if not 1 <= int(found[2]) < 1 << 24:
        raise QuantityError(
            f"{shown(value)} has neither a port nor the number of a queue pair (give that of the"
            " connection)",
            code="out-of-range",
        )
    return address, int(found[2])


Endpoint = Annotated[
    tuple[str, int],
    PlainValidator(_endpoint),
    PlainSerializer(lambda endpoint: f"{endpoint[0]}:{endpoint[1]}", return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{_ENDPOINT.pattern}$", "examples": ["10.0.0.1:29500"]}
    ),
]
"""One end of a connection, an IPv4 address and a port, or the number of a queue pair:
``10.0.0.1:29500``.
"""


class ReportedConnection(Section):
    """A TCP connection, or a pair of connected queue pairs, as the host at one of its ends sees
    it.
    """

    local: Annotated[
        Endpoint, Field(description="the host's own address and port, as 10.0.0.1:41234")
    ]
    remote: Annotated[Endpoint, Field(description="the other host's address and port")]


class ConnectionReport(Section):
    """All connections of a job that a host has now with the job's other hosts. They replace those
    that it reported before."""

    connections: Annotated[
        tuple[ReportedConnection, ...],
        Field(description="the connections, as [{local: ..., remote: ...}]"),
    ]


class ConnectionsResource(Resource):
    """The connections by which switches recognise a job."""

    job: str
    by: str
    """The way in which switches recognise the job: shim, bytes or agent, or roce for agent over
    RoCE. With agent, agents report its connections; with roce, somebody reports its queue pairs."""
    idle_gap_s: float | None
    """Silence after which the job's first connection starts a new iteration; null: the sender
    tells.
    """
    addresses: dict[str, str]
    """The address of each host of the job. Only connections between them are reported."""
    connections: dict[str, tuple[ReportedConnection, ...]]
    """The last report of each host's agent."""

    @classmethod
    def of(
        cls, job: "RegisteredJob", fabric: "Fabric", host: str | None = None
    ) -> "ConnectionsResource":
        """Return the reported connections of a job, or only those of one host."""
        from echelon.controller.machine.reports import addresses, reported_protocol

        gap_s = job.spec.recognition.idle_gap
        return cls(
            job=job.name,
            by="roce" if reported_protocol(job.spec) == "roce" else job.spec.recognition.by,
            idle_gap_s=None if gap_s is None else float(gap_s),
            addresses={name: address for address, name in addresses(job.spec, fabric).items()},
            connections={
                name: tuple(
                    ReportedConnection.model_construct(
                        local=(one[1], one[3]), remote=(one[2], one[4])
                    )
                    for one in sorted(seen)
                )
                for name, seen in job.connections.items()
                if host in (None, name)
            },
        )


class ReportedIteration(Section):
    """An iteration of a job, as one of its hosts measured it."""

    duration: Annotated[PositiveDuration, Field(description="how long it took, as '205 ms'")]
    sent: Annotated[
        dict[Name, Size],
        Field(
            default_factory=dict,
            description="what the host sent to each other host, each byte once: {h2: '40 MB'}",
        ),
    ]
    retransmitted: Annotated[Size | None, Field(description="what it sent again")] = None
    stalled: Annotated[
        Duration,
        Field(description="the time in which send buffers were too small, over all connections"),
    ] = Fraction(0)

    @staticmethod
    def written(one: HostIteration) -> dict[str, Any]:
        """Return an iteration as it is reported."""
        return {
            "duration": f"{float(one.duration_s):.9f} s",
            "sent": {other: f"{size} B" for other, size in one.sent_bytes.items() if size},
            **(
                {"retransmitted": f"{one.retransmitted_bytes} B"} if one.retransmitted_bytes else {}
            ),
            "stalled": f"{float(one.stalled_s):.9f} s",
        }

    def read(self) -> HostIteration:
        """Return the iteration that was reported."""
        return HostIteration(self.duration, self.sent, self.retransmitted or 0, self.stalled)


class IterationReport(Section):
    """The latest iterations of a job that a host measured, oldest first.

    They replace those that it reported before.
    """

    iterations: Annotated[
        tuple[ReportedIteration, ...],
        Field(description="the iterations, as [{duration: ..., sent: {h2: ...}}]"),
    ]


class DistanceReport(Section):
    """A profiled arrangement function, which replaces the one that the job's spec implies."""

    echelonflow: Annotated[
        StepName, Field(description="the EchelonFlow, as GET /jobs/NAME lists them")
    ]
    offsets: Annotated[
        Durations,
        Field(
            description=(
                "the ideal finish time of each flow after the first's, ascending, as ['0 s', '12"
                " ms']"
            )
        ),
    ]


EXAMPLES: dict[str, Any] = {
    title: example
    for paradigm in registered().sections.values()
    for title, example in paradigm.examples.items()
}
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


def listed(
    machine: "Machine",
    state: JobState | None = None,
    worker: str | None = None,
    after: str | None = None,
    limit: int | None = None,
) -> Sequence[JobSummary]:
    """Return jobs in the order of their names, and at most `limit` of them. `state`, `worker` and
    `after` leave only jobs in that state, with that host, and with later names (there need not be a
    job of that name)."""
    names = sorted(machine.jobs.jobs)
    first = 0 if after is None else bisect_right(names, after)
    jobs = (machine.jobs.jobs[name] for name in islice(names, first, None))
    # Of many jobs only those that are wanted are shown.
    found = (
        job
        for job in jobs
        if (state is None or machine.progress.state(job.name)[0] == state)
        and (worker is None or worker in job.spec.hosts)
    )
    return [JobSummary.of(job, machine) for job in islice(found, limit)]


async def registration(
    spec: Mapping[str, Any], *, replace: bool
) -> "Callable[[int], events.ChangeRequest]":
    """Return a function from the number of a request to the request for this job. Raise
    `DocumentError` if `spec` is not a job's. A small one may stand for much, so that it is read
    beside the event loop."""
    import asyncio

    from echelon.controller.machine.events import RegisterJob
    from echelon.controller.machine.jobs import NO_QUOTA, parse_job
    from echelon.controller.service.trail import ORIGIN

    parsed = await asyncio.to_thread(parse_job, spec)
    origin = ORIGIN.get()
    quota = NO_QUOTA if origin is None else origin.quota
    return lambda request: RegisterJob(request, spec, parsed, replace, quota=quota)


async def register(
    service: "ControllerService", spec: Mapping[str, Any], *, replace: bool
) -> tuple[JobResource, bool]:
    """Register a job, named by its key `job`, and return it, and whether there was none of that
    name.

    Registering the same spec again changes nothing. Another spec of that name raises
    `ConflictError`, or takes the place of the first with `replace`.
    """
    leader = service.leader

    def render(answer: "effects.Answer") -> tuple[JobResource, bool]:
        return JobResource.of(answer.value, leader.machine), answer.created

    return await leader.ask(await registration(spec, replace=replace), render)


async def installed(
    service: "ControllerService", name: str, timeout_s: float
) -> "tuple[JobResource, Iterator[FlowNumbers]]":
    """Return a job as soon as it is installed or unplanned, at the latest after `timeout_s`."""
    import asyncio

    from echelon.controller.machine.events import AwaitJob

    leader = service.leader

    def show(job: "RegisteredJob") -> "tuple[JobResource, Iterator[FlowNumbers]]":
        return JobResource.of(job, leader.machine), FlowNumbers.of(job)

    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            return await leader.ask(
                lambda request: AwaitJob(request, name), lambda answer: show(answer.value)
            )
    return show(leader.machine.jobs.known(name))


def routes() -> "APIRouter":
    """Return the endpoints."""
    import asyncio

    from fastapi import Depends, Query, Request, Response

    from echelon.controller.machine import events
    from echelon.controller.machine.jobs import five_tuple
    from echelon.controller.service.api.answers import WITH_BODY, RequestError, errors
    from echelon.controller.service.api.body import Mapping as Body
    from echelon.controller.service.api.body import described, parsed
    from echelon.controller.service.api.routing import (
        Rehearse,
        Stopping,
        TheService,
        answer,
        next_page,
        router,
        whole,
    )

    made = router("jobs")

    @made.get("/jobs", responses=errors())
    async def list_jobs(
        service: TheService,
        request: Request,
        response: Response,
        state: Annotated[
            JobState | None, Query(description="Return only jobs in this state.")
        ] = None,
        worker: Annotated[str | None, Query(description="Return only jobs with this host.")] = None,
        limit: Annotated[
            int, Query(ge=1, le=LARGEST_PAGE, description="Return so many jobs at most.")
        ] = LARGEST_PAGE,
        after: Annotated[
            str | None, Query(description="Return only jobs whose names come after this one.")
        ] = None,
    ) -> Sequence[JobSummary]:
        """List jobs in short, in the order of their names.

        If there are more, the header `Link` names the next page.
        """
        found = listed(service.machine, state, worker, after, limit + 1)
        if len(found) > limit:
            next_page(request, response, after=found[limit - 1].name)
        return found[:limit]

    async def accept(
        service: "ControllerService", spec: dict[str, Any], *, replace: bool, rehearse: bool
    ) -> Response:
        leader = service.leader
        if rehearse:
            return await rehearsed(leader, await registration(spec, replace=replace))
        job, created = await register(service, spec, replace=replace)
        if created:
            return whole(job, 201, {"Location": f"/jobs/{quote(job.name, safe='')}"})
        return whole(job)

    @made.post(
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
        """Register a job. The body is a job file's mapping as JSON; quantities are text with their
        units, as in files.

        The job is on disk before the answer comes. A different job of the same name is refused
        (409): PUT replaces it.
        """
        return await accept(service, spec, replace=False, rehearse=rehearse)

    @made.put(
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
        given = spec.get("job")
        if isinstance(given, str) and given != name:
            reason = "is not the name in the path (a job keeps its name: make both the same)"
            raise RequestError(422, reason, "job", code="conflicting-key")
        return await accept(service, spec, replace=True, rehearse=rehearse)

    @made.get("/jobs/{name}", response_model=JobResource, responses=errors(404))
    async def show_job(
        service: TheService,
        stopping: Stopping,
        name: str,
        wait_s: Annotated[
            float | None,
            Query(
                ge=0,
                le=MAX_WAIT_S,
                allow_inf_nan=False,
                description="Seconds to wait until the job is installed.",
            ),
        ] = None,
    ) -> Response:
        """Return one job. With `wait_s` the answer comes when the job is installed or refused, at
        the latest after that time."""
        if wait_s is not None:
            waiting = asyncio.ensure_future(installed(service, name, wait_s))
            stopped = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait((waiting, stopped), return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    shown, flows = await waiting
                    return answer(shown, "flows", flows)
            finally:
                waiting.cancel()
                stopped.cancel()
        machine = service.machine
        job = machine.jobs.known(name)
        return answer(JobResource.of(job, machine), "flows", FlowNumbers.of(job))

    @made.delete(
        "/jobs/{name}",
        status_code=204,
        response_model=None,
        responses={
            **errors(404),
            200: {"model": DryRunResource, "description": "What the removal would do (`dry_run`)."},
        },
        response_description="Removed.",
    )
    async def remove_job(
        service: TheService, name: str, rehearse: Rehearse = False
    ) -> Response | None:
        """Remove a job: from disk before the answer comes, from the switches with the next plan."""
        leader = service.leader

        def make(request: int) -> events.ChangeRequest:
            return events.RemoveJob(request, name)

        if rehearse:
            return await rehearsed(leader, make)
        await leader.ask(make, lambda _: None)
        return None

    @made.post(
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
        if isinstance(report.offsets, tuple):
            offsets_s = report.offsets
        else:
            offsets_s = (report.offsets,)
        return await leader.ask(
            lambda request: events.ReportDistances(request, name, report.echelonflow, offsets_s),
            lambda answer: JobResource.of(answer.value, leader.machine),
        )

    @made.get("/jobs/{name}/connections", responses=errors(404))
    async def show_connections(service: TheService, name: str) -> ConnectionsResource:
        """Return the connections of a job that agents reported, and the addresses between which
        they look for them.
        """
        return ConnectionsResource.of(service.machine.jobs.known(name), service.fabric)

    @made.put(
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
        seen = tuple(
            five_tuple("tcp", one.local[0], one.remote[0], one.local[1], one.remote[1])
            for one in report.connections
        )
        return await service.leader.ask(
            lambda request: events.ReportConnections(request, name, host, seen),
            lambda answer: ConnectionsResource.of(answer.value, service.fabric, host),
        )

    @made.put(
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
        measured = tuple(one.read() for one in report.iterations)
        return await service.leader.ask(
            lambda request: events.ReportIterations(request, name, host, measured),
            lambda _: HostMeasurement.of(host, measured),
        )

    return made
