"""The documents of the API: the service's state. Times are seconds since the epoch (UTC), durations seconds, sizes
bytes, rates bits per second."""

from __future__ import annotations

import ipaddress
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema

from echelon.control.progress import JobState
from echelon.documents import Duration, Durations, Name, PositiveDuration, Section, Size, StepName
from echelon.quantities import QuantityError, shown


class Resource(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Timings(Resource):
    """The durations of the phases of a change, from its acceptance to the last acknowledged entry."""

    queued_s: float
    """Time before planning began: coalescing, and a plan that was still being made."""
    policy_s: float
    lowering_s: float
    encoding_s: float
    """Time of encoding entries, all switches together."""
    rpc_s: float
    """Time of the slowest switch's writes."""
    total_s: float


class EventResource(Resource):
    """A change that a client asked for, or another plan that was chosen by simulation."""

    at: float
    action: str
    """What was done: `register job`, `replace job`, `remove job`, `report distances`, `choose policy`, `drain link`,
    `restore link`, or by the service itself `choose plan`."""
    object: str
    """What it was done to."""
    request: str
    """The request's id, as in the header `X-Request-Id` of its answer and in the log."""
    client: str | None
    """Name of the token; null: no tokens were configured."""
    address: str | None
    """Address of the client; null: a Unix socket."""


class EchelonFlowReport(Resource):
    """The observations of one EchelonFlow by switches."""

    name: str
    flows: int
    offsets_s: tuple[float, ...]
    """The arrangement function in force: ideal finish times of its flows after the reference time."""
    observed_distances_s: tuple[float, ...] | None = None
    """Smoothed observed starts of its flows after the head flow's; None: not seen (by one clock) yet."""
    tardiness_s: tuple[float, ...] = ()
    """Tardiness in the latest iterations, oldest first."""


class FlowNumbers(Resource):
    """The numbers that a sender writes into the shim header of a flow's packets (docs/data-plane.md)."""

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
    """The time in the latest of them in which the host had data to send and its send buffers were too small."""


class SizeReport(Resource):
    """The bytes of an iteration from one host to another."""

    src: str
    dst: str
    profiled_bytes: int
    """The size in the job's file."""
    measured_bytes: int
    """The bytes that the host sent in the latest iteration."""
    used_bytes: int
    """The size that plans go by: the file's, or the measured one where it replaces that (`telemetry.correct_sizes`)."""


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
    alone_iteration_s: float | None = None
    """Duration of an iteration on an otherwise empty fabric, in the fluid model; None: not computed yet."""
    iteration_times_s: tuple[float, ...] = ()
    """Durations of the latest iterations as switches saw them, oldest first."""
    echelonflows: tuple[EchelonFlowReport, ...] = ()
    measurements: tuple[HostMeasurement, ...] = ()
    """The measurements of the hosts on which agents run."""
    sizes: tuple[SizeReport, ...] = ()
    """The sizes that hosts measured, beside those of the file."""
    flows: tuple[FlowNumbers, ...] = ()
    """The job's flows and their numbers. Only present where a single job is requested."""
    timings: Timings | None = None
    """Timings of the change that last installed it."""


class JobSummary(Resource):
    name: str
    state: JobState
    problem: str | None = None
    parallelism: str
    workers: tuple[str, ...]
    flow_count: int
    alone_iteration_s: float | None = None
    """Duration of an iteration on an otherwise empty fabric, in the fluid model; None: not computed yet."""
    last_iteration_s: float | None = None
    last_tardiness_s: float | None = None
    """The largest tardiness of its EchelonFlows, in the latest iteration that was seen whole."""


_ENDPOINT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3}){3}):([0-9]{1,6})")


def _endpoint(value: object) -> tuple[str, int]:
    found = _ENDPOINT.fullmatch(value) if isinstance(value, str) else None
    try:
        address = None if found is None else str(ipaddress.IPv4Address(found[1]))
    except ValueError:
        address = None
    if found is None or address is None:
        raise QuantityError(f"{shown(value)} is not an endpoint (write it as 10.0.0.1:29500)", code="not-an-address")
    if not 1 <= int(found[2]) <= 65535:
        raise QuantityError(
            f"{shown(value)} has a port that is not between 1 and 65535 (give that of the connection)",
            code="out-of-range",
        )
    return address, int(found[2])


TcpEndpoint = Annotated[
    tuple[str, int],
    PlainValidator(_endpoint),
    PlainSerializer(lambda endpoint: f"{endpoint[0]}:{endpoint[1]}", return_type=str),
    WithJsonSchema({"type": "string", "pattern": f"^{_ENDPOINT.pattern}$", "examples": ["10.0.0.1:29500"]}),
]
"""One end of a TCP connection, an IPv4 address and a port: ``10.0.0.1:29500``."""


class ReportedConnection(Section):
    """A TCP connection, as the host at one of its ends sees it."""

    local: Annotated[TcpEndpoint, Field(description="the host's own address and port, as 10.0.0.1:41234")]
    remote: Annotated[TcpEndpoint, Field(description="the other host's address and port")]


class ConnectionReport(Section):
    """All connections of a job that a host has now with the job's other hosts. They replace those that it reported
    before."""

    connections: Annotated[
        tuple[ReportedConnection, ...], Field(description="the connections, as [{local: ..., remote: ...}]")
    ]


class ConnectionsResource(Resource):
    """The connections by which switches recognise a job."""

    job: str
    by: str
    """The way in which switches recognise the job: shim, bytes or agent. With agent, agents report its connections."""
    idle_gap_s: float | None
    """Silence after which the job's first connection starts a new iteration; null: the sender tells."""
    addresses: dict[str, str]
    """The address of each host of the job. Only connections between them are reported."""
    connections: dict[str, tuple[ReportedConnection, ...]]
    """The last report of each host's agent."""


class ReportedIteration(Section):
    """An iteration of a job, as one of its hosts measured it."""

    duration: Annotated[PositiveDuration, Field(description="how long it took, as '205 ms'")]
    sent: Annotated[
        dict[Name, Size],
        Field(default_factory=dict, description="what the host sent to each other host, each byte once: {h2: '40 MB'}"),
    ]
    retransmitted: Annotated[Size | None, Field(description="what it sent again")] = None
    stalled: Annotated[
        Duration, Field(description="the time in which send buffers were too small, over all connections")
    ] = Fraction(0)


class IterationReport(Section):
    """The latest iterations of a job that a host measured, oldest first. They replace those that it reported before."""

    iterations: Annotated[
        tuple[ReportedIteration, ...], Field(description="the iterations, as [{duration: ..., sent: {h2: ...}}]")
    ]


class DistanceReport(Section):
    """A profiled arrangement function, which replaces the one that the job's spec implies."""

    echelonflow: Annotated[StepName, Field(description="the EchelonFlow, as GET /jobs/NAME lists them")]
    offsets: Annotated[
        Durations,
        Field(description="the ideal finish time of each flow after the first's, ascending, as ['0 s', '12 ms']"),
    ]


class PolicySetting(Section):
    """A policy by name, with its parameters."""

    name: Annotated[str, Field(max_length=64, description="the policy, e.g. echelon")]
    parameters: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=64)]] = Field(
        default_factory=dict
    )


class PolicyResource(Resource):
    name: str
    parameters: dict[str, str]
    choices: dict[str, dict[str, tuple[str, ...]]]
    """Every policy with its parameters, and for each the values that it takes, the default first, or a range."""


class RankingResource(Resource):
    kind: str
    """The ranking, e.g. fixed or deadline."""
    parameters: dict[str, Any]
    """Its parameters, with the unit in the name: `offset_s` is in seconds."""


class FlowPlanResource(Resource):
    job: str
    flow: str
    path: tuple[str, ...]
    ranking: RankingResource


class CandidateResource(Resource):
    """A way to plan a group of jobs, as it was simulated."""

    plan: str
    mean: float | None
    """Mean slowdown of the jobs: the time of an iteration over that alone. Null: it was not simulated."""
    worst: float | None
    """The slowdown of the job that is slowed down most."""
    score: float | None
    """What candidates are compared by: lower is better."""
    draws: int
    """In how many draws of what is not known it was simulated. Those that look bad at first get fewer."""
    problem: str | None
    """The reason why it cannot be planned or simulated."""


class ChoiceResource(Resource):
    """Why a group of jobs, which share links, is planned as it is."""

    jobs: tuple[str, ...]
    plan: str
    """The plan in force."""
    searched_at: float | None
    """When the last search ended; null: there was none since the service started."""
    search_s: float | None
    before: str | None
    """The plan that was in force before that search."""
    problem: str | None
    """The reason why the best plan is not in force."""
    slowdowns: dict[str, float]
    """What was predicted for the best plan, by job."""
    tried: tuple[CandidateResource, ...]
    """The best first."""


class PlanResource(Resource):
    number: int
    """Number of the plan, counted by this leader."""
    made_at: float
    policy: str
    jobs: int
    flows: tuple[FlowPlanResource, ...]
    problem: str | None = None
    """The reason why the newest jobs, policy or fabric have no plan; this is then the last good one."""
    why: tuple[ChoiceResource, ...] = ()
    """Why it is as it is, for each group of jobs that share links, where the policy chooses by simulation."""


class EntryResource(Resource):
    """A table entry, in the words of P4Info."""

    table: str
    match: dict[str, str]
    action: str
    priority: int = 0
    owner: str | None = None
    """The part of the intent that it belongs to: a job's name, or `fabric`."""


class QueueResource(Resource):
    port: int
    queue: int
    level: int
    weight: int
    min_rate_bps: int
    max_rate_bps: int | None


class IntentResource(Resource):
    switch: str
    entries: tuple[EntryResource, ...]
    queues: tuple[QueueResource, ...]


class SwitchDifference(Resource):
    """The difference between a switch and its intent, which is not written."""

    switch: str
    reachable: bool
    problem: str | None = None
    inserts: tuple[EntryResource, ...] = ()
    modifies: tuple[EntryResource, ...] = ()
    deletes: tuple[EntryResource, ...] = ()
    foreign: int = 0
    """Number of others' entries, which are left alone."""


class QueueChange(Resource):
    before: QueueResource
    after: QueueResource


class SwitchChange(Resource):
    """What a change writes to one switch."""

    switch: str
    inserts: tuple[EntryResource, ...]
    modifies: tuple[EntryResource, ...]
    """Entries that get another action, with that action."""
    deletes: tuple[EntryResource, ...]
    queues: tuple[QueueChange, ...]


class JobForecast(Resource):
    """What a change means for one job."""

    job: str
    before: float | None
    """Slowdown before the change: mean time of an iteration over that of the job alone on the whole fabric, in the
    fluid model. None: the job is in no plan, or was not simulated."""
    after: float | None
    """Slowdown after the change."""
    problem: str | None = None
    """The reason why the job is in no plan after the change."""


class DryRunResource(Resource):
    """What a change would do, which was neither stored nor written."""

    switches: tuple[SwitchChange, ...]
    """The switches that are written to."""
    jobs: tuple[JobForecast, ...]
    """The jobs that change, and those that share links with them, directly or through others."""
    unpredicted: str | None = None
    """The reason why there are no slowdowns."""


SwitchState = Literal["connecting", "backup", "writing", "ready", "away", "refused"]
"""connecting: no session yet. backup: another controller is primary. writing: being brought to its intent. ready: holds
it. away: had a session; being tried again. refused: up, but part of the intent was refused (`problem`)."""


class SwitchResource(Resource):
    name: str
    address: str
    target: str
    device_id: int
    state: SwitchState
    problem: str | None = None
    since: float
    """Time at which the switch came into that state."""
    election_id: int | None = None
    entries: int = 0
    """Number of our entries on the switch."""
    foreign_entries: int = 0
    wanted_entries: int = 0
    sessions: int = 0
    """Number of sessions opened so far."""
    drift_found: int = 0
    """Number of entries that an audit found different from what had been written, and repaired."""
    last_audit_at: float | None = None
    last_written_at: float | None = None


class QueueUse(Resource):
    """What has passed one queue of an egress port since the switch started."""

    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    rate_bps: int
    """The rate of that link."""
    queue: int
    packets: int
    size_bytes: int
    dropped_packets: int


class SwitchQueues(Resource):
    """The counters of a switch's queues, read at this moment."""

    switch: str
    reachable: bool
    problem: str | None = None
    at: float
    """Time of the reading."""
    queues: tuple[QueueUse, ...] = ()
    """Empty if the switch's target does not count."""


class PortUse(Resource):
    """What an egress port has sent between the latest two readings of its switch."""

    switch: str
    port: int
    to: str
    """The host or switch at the other end of the port's link."""
    rate_bps: int
    """The rate of that link."""
    queues_bps: tuple[float, ...]
    """Bits per second of each queue, the lowest level first."""
    drops_per_s: float

    @property
    def use(self) -> float:
        """The part of the link's rate."""
        return sum(self.queues_bps) / self.rate_bps


class FlowTable(Resource):
    """Flows that finished, by column: a flow has the same place in each of them. Times are on one clock, to within the
    delay of a switch's report."""

    count: int
    """Number of flows that this leader has seen so far, more than are kept."""
    jobs: tuple[str, ...]
    """The names that `job` counts, from 0."""
    flows: tuple[str, ...]
    """The names that `flow` counts, from 0."""
    number: tuple[int, ...]
    """The flow's place among all that were seen, from 1."""
    job: tuple[int, ...]
    flow: tuple[int, ...]
    iteration: tuple[int, ...]
    """The iteration; in a running service modulo 256, as switches count."""
    start_s: tuple[float, ...]
    finish_s: tuple[float, ...]
    tardiness_s: tuple[float | None, ...]
    """How long after its ideal finish time it finished; null: the plan gives it none."""


class WaitResource(Resource):
    """The time that a job's flows lost while flows of a job were on the same links."""

    job: str
    other: str
    """The other job, or the job itself."""
    wait_s: float
    links: tuple[tuple[str, str], ...]
    """The links where they met, as a node and the next one; the longest meeting first."""


class WaitsResource(Resource):
    """Who waits for whom, by the flows that were seen last. This is an estimate: it divides the time that a flow takes
    beyond its time alone over those that were on its links meanwhile."""

    flows: int
    """Number of flows that this comes from."""
    from_s: float | None
    """Start of the first of them."""
    to_s: float | None
    """Finish of the last."""
    waits: tuple[WaitResource, ...]
    """The longest first."""


class LinkResource(Resource):
    a: str
    b: str
    rate_bps: int
    delay_s: float
    state: Literal["up", "drained"]


class LinkSetting(Section):
    state: Annotated[Literal["up", "drained"], Field(description="'up' or 'drained'")]
    force: Annotated[bool, Field(description="Drain the link even if jobs have no other path.")] = False


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
    """What an operator has to look at, one line each; `/readyz` has those that keep the service from its work."""
    plan: int
    """Number of the plan in force; 0: none yet."""
    plan_problem: str | None = None
    settled: bool = False
    """Whether nothing is under way: the plan includes all that was accepted, and every switch that has a session has
    acknowledged it, or refuses part of it."""
    searching: bool = False
    """Whether a better plan may come soon."""
    switches: dict[SwitchState, int]
