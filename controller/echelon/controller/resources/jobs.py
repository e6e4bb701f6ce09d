"""Jobs, what was measured of them, and what clients and agents report."""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from echelon.controller.resources.base import Resource
from echelon.controller.states import JobState
from echelon.model.documents import (
    Duration,
    Durations,
    Name,
    PositiveDuration,
    Section,
    Size,
    StepName,
)
from echelon.model.quantities import QuantityError, excerpt
from echelon.switches.telemetry.sizes import HostIteration


class Timings(Resource):
    """The durations of a change's phases, from its acceptance to the last acknowledged entry."""

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
    """The arrangement function in force: ideal finish times after the reference time."""
    observed_distances_s: tuple[float, ...] | None = None
    """Smoothed observed starts of its flows after the head flow's; None: not seen by one clock."""
    tardiness_s: tuple[float, ...] = ()
    """Tardiness in the latest iterations, oldest first."""


class FlowNumbers(Resource):
    """The numbers that a sender writes into the shim header (docs/data-plane.md)."""

    name: str
    src: str
    dst: str
    size_bytes: int
    number: int


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
    """The time in the latest of them in which send buffers were too small for the data to send."""


class SizeReport(Resource):
    """The bytes of an iteration from one host to another."""

    src: str
    dst: str
    profiled_bytes: int
    """The size in the job's file."""
    measured_bytes: int
    """The bytes that the host sent in the latest iteration."""
    used_bytes: int
    """The size that plans go by: the file's, or a measured one (`telemetry.correct_sizes`)."""


class JobResource(Resource):
    name: str
    number: int
    """The job's number in the shim header of its packets."""
    spec: dict[str, Any]
    """The job's mapping as registered."""
    state: JobState
    problem: str | None = None
    settled: bool = False
    """Whether nothing more is under way for it.

    It is installed or unplanned, or a switch refuses what it needs and no other path is left.
    """
    accepted_at: float
    installed_at: float | None = None
    workers: tuple[str, ...]
    """All hosts of the job, including a parameter server."""
    flow_count: int
    """0: not counted yet since the start, or too large to be built (`problem`)."""
    alone_iteration_s: float | None = None
    """Duration of an iteration alone on the fabric, in the fluid model; None: not computed yet."""
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
    """The trees of switches that add up what flows bring, for the hosts (docs/aggregation.md)."""
    ranked_at_hosts: tuple[dict[str, Any], ...] = ()
    """The rules by which senders rank flows, where switches do not (docs/ranking-at-hosts.md)."""
    timings: Timings | None = None
    """Timings of the change that last installed it."""


class JobSummary(Resource):
    name: str
    state: JobState
    problem: str | None = None
    parallelism: str
    workers: tuple[str, ...]
    flow_count: int
    """0: not counted yet since the start, or too large to be built (`problem`)."""
    alone_iteration_s: float | None = None
    """Duration of an iteration alone on the fabric, in the fluid model; None: not computed yet."""
    last_iteration_s: float | None = None
    last_tardiness_s: float | None = None
    """The largest tardiness of its EchelonFlows, in the latest iteration that was seen whole."""
    alone_tardiness_s: float | None = None
    """The same on an otherwise empty fabric, in the fluid model; null: not computed yet."""
    waiting_for: tuple[str, ...] = ()
    """The switches of a `planned` job's paths that do not hold the plan yet, or are away."""


_ENDPOINT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3}){3}):([0-9]{1,8})")


def _endpoint(value: object) -> tuple[str, int]:
    match = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not _is_ipv4(match[1]):
        raise QuantityError(
            f"{excerpt(value)} is not an endpoint (write it as 10.0.0.1:29500)",
            code="not-an-address",
        )
    address = match[1]
    number = int(match[2])
    if not 1 <= number < 1 << 24:
        raise QuantityError(
            f"{excerpt(value)} has neither a port nor the number of a queue pair (give that of the"
            " connection)",
            code="out-of-range",
        )
    return address, number


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


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
    """A TCP connection, or a pair of connected queue pairs, as the host at one end sees it."""

    local: Annotated[
        Endpoint, Field(description="the host's own address and port, as 10.0.0.1:41234")
    ]
    remote: Annotated[Endpoint, Field(description="the other host's address and port")]


class ConnectionReport(Section):
    """All connections of a job that a host has now with the job's other hosts.

    They replace those that it reported before.
    """

    connections: Annotated[
        tuple[ReportedConnection, ...],
        Field(description="the connections, as [{local: ..., remote: ...}]"),
    ]


class ConnectionsResource(Resource):
    """The connections by which switches recognise a job."""

    job: str
    by: str
    """The way in which switches recognise the job: shim, bytes, agent, or roce for agent over RoCE.

    With agent, agents report its connections; with roce, somebody reports its queue pairs.
    """
    idle_gap_s: float | None
    """Silence after which the first connection starts an iteration; null: the sender tells."""
    addresses: dict[str, str]
    """The address of each host of the job. Only connections between them are reported."""
    connections: dict[str, tuple[ReportedConnection, ...]]
    """The last report of each host's agent."""


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
    def written(iteration: HostIteration) -> dict[str, Any]:
        """Return an iteration as it is reported."""
        sent = {host: f"{size} B" for host, size in iteration.sent_bytes.items() if size}
        report: dict[str, Any] = {
            "duration": f"{float(iteration.duration_s):.9f} s",
            "sent": sent,
            "stalled": f"{float(iteration.stalled_s):.9f} s",
        }
        if iteration.retransmitted_bytes:
            report["retransmitted"] = f"{iteration.retransmitted_bytes} B"
        return report

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
