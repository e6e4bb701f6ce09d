"""Accepted jobs: what a client sent, what the store keeps of it, and what policies see."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from echelon.controller.machine.errors import RefusedError
from echelon.model.documents import DocumentError, parse_document, path_text, suggestion
from echelon.model.fabric.model import Fabric
from echelon.model.jobs import build_job
from echelon.model.jobs.analysis import with_offsets
from echelon.model.jobs.graph import GraphError, Job, limited_work
from echelon.model.jobs.spec import UNBUILT, JobSpec
from echelon.model.kept import altered
from echelon.switches.lowering.identity import FiveTuple, Identity, identities_of, reverse
from echelon.switches.telemetry.sizes import Direction, profiled_bytes, with_sizes

MOST_BUILT = 100_000
"""The most steps of a graph that the controller builds, by `Paradigm.step_count`: some seconds."""
MOST_WORK = 20_000_000
"""The most dependencies that are followed to build it: some seconds, too."""
LIGHT_STEPS = 2_000
"""The most steps of a graph that is built beside the event loop: some tenths of a second."""
MOST_WAITS = 2_000_000
"""The most dependencies that it has then. Planning follows each a dozen times."""
LAST_NUMBER = 0xFFFF
"""The highest job number: the shim header has 16 bits for it, and 0 means no job."""


Connections = frozenset[FiveTuple]


@dataclass(frozen=True)
class BuiltJob:
    """An iteration graph to plan with in place of the one that the spec implies.

    A run uses it to give the controller a profile that is wrong on purpose.
    """

    graph: Job
    identities: Mapping[str, Identity]
    """The identities by flow."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that one client may have registered; None: no limit."""

    owner: str | None = None
    """The name of the client; None: clients are not known."""
    jobs: int | None = None
    flows: int | None = None
    """The flows of all jobs of the client together."""

    def check(self, job: RegisteredJob, besides: Collection[RegisteredJob]) -> None:
        """Raise `RefusedError` for a job that is too much besides the client's other jobs."""
        if self.jobs is not None and len(besides) >= self.jobs:
            raise RefusedError(
                f"token '{self.owner}' has {len(besides)} jobs, and may have {self.jobs} "
                "(remove some, or raise its limits.jobs in the tokens file)",
                code="limit-reached",
            )
        flows = sum(registered.flow_count for registered in besides)
        if self.flows is not None and flows + job.flow_count > self.flows:
            raise RefusedError(
                f"the job has {job.flow_count} flows, and token '{self.owner}' has {flows} of the"
                f" {self.flows} that it may have (remove jobs, or raise its limits.flows in the"
                " tokens file)",
                "workers",
                code="limit-reached",
            )


NO_QUOTA = Quota()


@dataclass(frozen=True)
class RegisteredJob:
    """A job that was accepted."""

    name: str
    number: int
    """Identifies the job in the shim header of its packets."""
    accepted_at: float
    """Seconds since the epoch."""
    document: Mapping[str, Any]
    """The job file's mapping, as the client sent it."""
    spec: JobSpec
    offsets_s: Mapping[str, tuple[Fraction, ...]]
    """Reported arrangement functions, by EchelonFlow, in seconds.

    They replace those that the spec implies.
    """
    size_factors: Mapping[Direction, Fraction] = field(default_factory=dict)
    """Factors of the sizes of flows by direction, where hosts measured others. They are not stored:
    agents will report them again."""
    built: BuiltJob | None = None
    owner: str | None = None
    """The client that registered the job first; None: not known."""
    connections: Mapping[str, Connections] = field(default_factory=dict)
    """The connections that each host's agent sees, from that host to the other one."""
    counted: int = 0
    """The flows of the graph as they were counted before it was stored."""

    @property
    def flow_count(self) -> int:
        """Return how many flows the graph has; 0 if it was never built.

        Nothing is built to count.
        """
        if "profiled" in vars(self):
            return len(self.profiled.flows)
        return self.counted

    @property
    def graph(self) -> Job | None:
        """Return the graph that policies see, if it is built.

        Building it is no work for the event loop.
        """
        if "job" in vars(self):
            return self.job
        return None

    @property
    def is_judged(self) -> bool:
        """Return whether the graph is built, or known to be impossible."""
        return "_implied" in vars(self)

    @property
    def is_light(self) -> bool:
        """Return whether building the graph holds up nothing else in the same process."""
        return (
            self.is_judged or self.spec.paradigm.step_count(len(self.spec.workers)) <= LIGHT_STEPS
        )

    @cached_property
    def profiled(self) -> Job:
        """The graph that the spec implies, with the reported arrangement functions.

        Raises `DocumentError` where a report does not fit, and for a job that is too large
        (`MOST_BUILT`). Building a job of many flows takes time.
        """
        graph = self._implied
        if isinstance(graph, DocumentError):
            raise copy(graph)
        return with_offsets(graph, self.offsets_s)

    @cached_property
    def _implied(self) -> Job | DocumentError:
        """The graph that the spec implies, or why there is none: each plan asks again."""
        try:
            if self.built is None:
                return _bounded(self.spec)
            return self.built.graph
        except DocumentError as error:
            # The trace of an error that is kept would keep this job and what was built of its
            # graph, in a cycle.
            return copy(error)

    @cached_property
    def job(self) -> Job:
        """The graph that policies see, with the measured sizes. Raises as `profiled` does."""
        return with_sizes(self.profiled, self.size_factors)

    @property
    def is_numbered_by_sender(self) -> bool:
        """Whether packets carry their iteration in the shim.

        Then all switches count the same iterations.
        """
        return self.spec.recognition.by == "shim"

    def identities(self, fabric: Fabric) -> Mapping[str, Identity]:
        """Return how switches recognise the packets of each flow, by flow."""
        if self.built is not None:
            return self.built.identities
        return identities_of(self.job, self.number, self.spec, fabric, self.five_tuples)

    @property
    def five_tuples(self) -> Connections:
        """The reported connections, once in each direction."""
        forth = frozenset().union(*self.connections.values())
        return forth | {reverse(connection) for connection in forth}

    def to_document(self) -> dict[str, Any]:
        """Return the document that the store keeps. It is exact."""
        offsets_s = {}
        for name, offsets in self.offsets_s.items():
            offsets_s[name] = [str(offset) for offset in offsets]
        connections = {}
        for host, seen in self.connections.items():
            connections[host] = [list(connection) for connection in sorted(seen)]
        return {
            "number": self.number,
            "accepted_at": self.accepted_at,
            "spec": dict(self.document),
            "offsets_s": offsets_s,
            "owner": self.owner,
            "flows": self.flow_count,
            "connections": connections,
        }

    def with_reported(self, echelonflow: str, offsets_s: tuple[Fraction, ...]) -> RegisteredJob:
        """Return the job with another arrangement function.

        `with_graph` says whether it fits.
        """
        return replace(self, offsets_s={**self.offsets_s, echelonflow: offsets_s})

    def with_connections(self, host: str, seen: Connections) -> RegisteredJob:
        """Return the job with other connections of a host.

        It has the same graph, which is not built again.
        """
        connections = {**self.connections, host: seen}
        if not seen:
            del connections[host]
        return altered(self, connections=connections)

    def with_size_factors(self, factors: Mapping[Direction, Fraction]) -> RegisteredJob:
        """Return the job with other sizes of its flows."""
        twin = altered(self, size_factors=factors)
        vars(twin).pop("job", None)
        return twin

    def with_graph(self) -> RegisteredJob:
        """Return the job with its graph: this one if it has it, or else another one.

        Raises as `profiled` does.
        """
        if "job" in vars(self):
            return self
        twin = altered(self)
        _ = twin.job
        return twin

    def with_graph_of(self, copied: RegisteredJob) -> RegisteredJob:
        """Return the job with the graph that was built for a copy of it."""
        graphs = {name: vars(copied)[name] for name in ("_implied", "profiled", "job")}
        return altered(self, **graphs)


def parse_job(document: Mapping[str, Any]) -> JobSpec:
    """Return the spec that a job file's mapping holds. Raises `DocumentError`."""
    return parse_document(JobSpec, dict(document), "job", {UNBUILT: True})


def _bounded(spec: JobSpec) -> Job:
    """Build the graph of a job.

    Raises `DocumentError`, before anything is built if there would be too many steps.
    """
    advice = "merge layers or micro-batches, or use fewer workers or ranks"
    steps = spec.paradigm.step_count(len(spec.workers))
    if steps > MOST_BUILT:
        reason = f"the job makes up to {steps} steps, a controller builds at most {MOST_BUILT}"
        raise DocumentError("job", spec.parallelism, f"{reason} ({advice})", code="limit-reached")
    try:
        with limited_work(MOST_WORK):
            graph = build_job(spec)
    except GraphError as error:
        raise DocumentError("job", spec.parallelism, str(error), code=error.code) from None
    waits = sum(len(unit.after) for unit in graph.computes)
    waits += sum(len(flow.after) for flow in graph.flows)
    if waits > MOST_WAITS:
        reason = (
            f"the job has {waits} dependencies between steps, a controller plans with at most"
            f" {MOST_WAITS}"
        )
        raise DocumentError("job", spec.parallelism, f"{reason} ({advice})", code="too-large")
    most_bytes = max(profiled_bytes(graph).values(), default=0)
    refusal = spec.carried_refusal(most_bytes)
    if refusal:
        raise DocumentError("job", "recognition.by", refusal, code="too-large")
    return graph


def from_document(document: Mapping[str, Any]) -> RegisteredJob:
    """Return the job that `RegisteredJob.to_document` wrote.

    Raises `DocumentError` for a spec that this version does not understand.
    """
    spec = parse_job(document["spec"])
    offsets_s = {}
    for name, offsets in document["offsets_s"].items():
        offsets_s[name] = tuple([Fraction(offset) for offset in offsets])
    connections = {}
    for host, seen in document.get("connections", {}).items():
        connections[host] = frozenset(five_tuple(*connection) for connection in seen)
    return RegisteredJob(
        name=spec.job,
        number=int(document["number"]),
        accepted_at=float(document["accepted_at"]),
        document=document["spec"],
        spec=spec,
        offsets_s=offsets_s,
        owner=document.get("owner"),
        counted=int(document.get("flows", 0)),
        connections=connections,
    )


def five_tuple(
    protocol: str,
    src: str,
    dst: str,
    src_port: int,
    dst_port: int,
) -> FiveTuple:
    """Return the connection with these ends."""
    return protocol, src, dst, src_port, dst_port


def check_hosts(spec: JobSpec, fabric: Fabric) -> None:
    """Raise `DocumentError` for a host of the job that the fabric does not have."""
    for host, path in spec.hosts.items():
        if host not in fabric.hosts:
            hint = suggestion(host, fabric.hosts)
            reason = f"'{host}' is not a host of fabric '{fabric.name}' ({hint})"
            raise DocumentError("job", path_text(path), reason)


def check_size(job: RegisteredJob, flows_per_job: int) -> None:
    """Raise `RefusedError` for a job of too many flows, whose graph is built."""
    if job.flow_count > flows_per_job:
        raise RefusedError(
            f"the job has {job.flow_count} flows, this service takes at most {flows_per_job} a job "
            "(use fewer workers or micro-batches, or raise limits.flows_per_job)",
            "workers",
            code="limit-reached",
        )


def free_number(taken: Collection[int], last: int) -> int:
    """Return the first number after `last`, cyclically, that is not `taken`.

    A number comes back as late as possible, because packets of a removed job may still be under
    way. Raises `RefusedError` when no number is left.
    """
    for step in range(LAST_NUMBER):
        number = (last + step) % LAST_NUMBER + 1
        if number not in taken:
            return number
    raise RefusedError(
        f"all {LAST_NUMBER} job numbers are taken (remove jobs)", code="numbers-exhausted"
    )
