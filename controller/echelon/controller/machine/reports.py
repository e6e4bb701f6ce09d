"""Reports of what jobs do.

What switches report of flows becomes facts about jobs, and corrections of their profiles. What the
agents of hosts report is checked: connections, of which switches learn, and measured iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import compress, filterfalse
from operator import is_not, or_

from echelon.controller.machine.errors import ConflictError, RefusedError, UnknownError
from echelon.controller.machine.events import Instant, ReportConnections, ReportIterations
from echelon.controller.machine.facts import (
    DigestsReceived,
    Fact,
    IterationTimed,
    JobLeft,
    JobSeen,
    TardinessSeen,
)
from echelon.controller.machine.jobs import RegisteredJob, reverse
from echelon.controller.machine.planning import Planned
from echelon.model.documents import suggestion
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec
from echelon.planning.plan import FlowPlan
from echelon.planning.rankings.deadline import Deadline
from echelon.switches.lowering.identity import FiveTuple
from echelon.switches.telemetry.events import Decoder, FlowEvent
from echelon.switches.telemetry.flow_log import FlowLog
from echelon.switches.telemetry.tracker import JobView, Tracker, paths_of


@dataclass(frozen=True, slots=True)
class DecodedReport:
    """A list of digests, decoded."""

    events: tuple[FlowEvent, ...]
    facts: tuple[Fact, ...]
    corrected: tuple[str, ...]
    """Jobs whose corrections have changed."""


@dataclass
class _Followed:
    """A job as the tracker knows it, for as long as it is in the plan."""

    registered: RegisteredJob
    flows: tuple[FlowPlan, ...]
    """Its flows in the plan."""
    head_at: float | None = None
    """When its head flow started last, in seconds since the epoch."""

    @cached_property
    def by_name(self) -> Mapping[str, FlowPlan]:
        """The flows by name, of a job that was seen under this plan."""
        return {flow.flow: flow for flow in self.flows}


class Following:
    """The telemetry of all jobs in the plan."""

    def __init__(self) -> None:
        self.log = FlowLog()
        """The flows that switches saw last."""
        self._tracker = Tracker()
        self._decoder = Decoder()
        self._jobs: dict[str, _Followed] = {}
        self._followed: tuple[Mapping[str, RegisteredJob], Mapping[str, tuple[FlowPlan, ...]]] = (
            {},
            {},
        )
        """The jobs of the last plan, and their flows."""

    def follow_plan(self, planned: Planned, now_s: float) -> tuple[list[Fact], list[str]]:
        """Follow the jobs of a new plan and no others.

        Returns the facts that follow, and the jobs whose observations call for a correction that is
        not in the plan.
        """
        self.learn_numbers(planned, now_s)
        by_job = planned.plan.by_job
        facts: list[Fact] = []
        for name in [*filterfalse(by_job.__contains__, self._jobs)]:
            self._tracker.remove(name)
            del self._jobs[name]
            facts.append(JobLeft(name))
        corrected = []
        jobs = {job.name: job for job in planned.registered if job.name in by_job}
        jobs_before, flows_before = self._followed
        self._followed = jobs, by_job
        other_jobs = map(is_not, jobs.values(), map(jobs_before.get, jobs))
        other_flows = map(is_not, map(by_job.get, jobs), map(flows_before.get, jobs))
        for name in compress(jobs, map(or_, other_jobs, other_flows)):
            registered = jobs[name]
            flows = by_job[name]
            known = self._jobs.get(name)
            self._jobs[name] = _Followed(
                registered, flows, None if known is None else known.head_at
            )
            paths = paths_of(flows).get(name, {})
            self._tracker.add(
                registered.reported, paths, numbered_by_sender=registered.is_numbered_by_sender
            )
            if self._tracker.corrections(name) != registered.observed_s:
                corrected.append(name)
        return facts, corrected

    def learn_numbers(self, planned: Planned, now_s: float) -> None:
        """Learn the flow numbers of intents before any switch has them."""
        for intent in planned.intents.values():
            self._decoder.hold(intent, now_s)

    def reconnected(self, switch: str) -> None:
        """Note a new session: events of the switch were missed, and its clock may be another
        one.
        """
        self._tracker.reconnected(switch)
        self.log.reconnected(switch)

    def note_digests(
        self, switch: str, digests: Sequence[Mapping[str, int]], now: Instant
    ) -> DecodedReport:
        """Decode a list of digests and take note of it."""
        decoded = self._decoder.decode(switch, digests, now.s)
        facts: list[Fact] = [DigestsReceived(switch, len(decoded.events), decoded.unknown)]
        corrected = []
        for event in decoded.events:
            if event.job not in self._tracker:
                # The last packets of a job are reported after it has left.
                continue
            facts.append(JobSeen(event.job))
            seen = self._tracker.observe(event)
            self._note(event, now.at)
            if seen.iteration_s is not None:
                facts.append(IterationTimed(event.job, float(seen.iteration_s)))
                self._jobs[event.job].head_at = self.log.at(switch, float(event.time_s)) or now.at
            if seen.tardiness_s is not None:
                facts.append(TardinessSeen(event.job, float(seen.tardiness_s)))
            if seen.corrected:
                corrected.append(event.job)
        return DecodedReport(decoded.events, tuple(facts), tuple(corrected))

    def _note(self, event: FlowEvent, at: float) -> None:
        flow = self._jobs[event.job].by_name.get(event.flow)
        if flow is not None:
            self.log.observe(event, flow.path, at, has_deadline=isinstance(flow.ranking, Deadline))

    def corrections(self, job: RegisteredJob) -> Mapping[str, tuple[Fraction, ...]] | None:
        """Return the offsets (seconds) by EchelonFlow that should replace those of the job.

        None: the observations are not of this job, but of a former one of its name.
        """
        known = self._jobs.get(job.name)
        is_same = known is not None and known.registered.is_expected_as(job)
        if is_same:
            return self._tracker.corrections(job.name)
        return None

    def head_at(self, job: str) -> float | None:
        """Return when the head flow of a job started last, in seconds since the epoch; None: it was
        not seen.
        """
        known = self._jobs.get(job)
        return None if known is None else known.head_at

    def view(self, job: str) -> JobView | None:
        """Return what was seen of a job; None: the job is in no plan."""
        if job in self._tracker:
            return self._tracker.view(job)
        return None


MOST_CONNECTIONS = 4096
"""The most connections of one job that one host may report.

The tables of the smallest switches hold as many.
"""
MOST_ITERATIONS = 16
"""The most iterations that a host may report at a time."""
MOST_SIZES = 4096
"""The most sizes in such a report: destinations, over all its iterations."""
BUFFERED_BITS = 1 << 29
"""The bits that a host may count as sent before its link has carried them."""


def addresses(spec: JobSpec, fabric: Fabric) -> dict[str, str]:
    """Return the hosts of a job by their addresses; hosts that the fabric does not have are left
    out.
    """
    return {fabric.hosts[host].ipv4: host for host in spec.hosts if host in fabric.hosts}


def reported_protocol(spec: JobSpec) -> str | None:
    """Return the protocol of the connections that agents report of a job, tcp or roce; None: they
    report none.
    """
    if spec.recognition.by != "agent":
        return None
    return spec.recognition.protocol or "tcp"


def checked_connections(
    report: ReportConnections, job: RegisteredJob, jobs: Iterable[RegisteredJob], fabric: Fabric
) -> frozenset[FiveTuple]:
    """Return the connections that an agent reports of a job, if they are of none of the other
    `jobs`.

    Raise `ServiceError`.
    """
    _check_host(job, report.host)
    if len(report.connections) > MOST_CONNECTIONS:
        raise RefusedError(
            f"these are {len(report.connections)} connections, and a host may report"
            f" {MOST_CONNECTIONS} of a job (report only those between its hosts)",
            "connections",
            code="limit-reached",
        )
    known = addresses(job.spec, fabric)
    protocol = reported_protocol(job.spec) or "tcp"
    for index, (_, local, remote, *ports) in enumerate(report.connections):
        if protocol == "tcp" and max(ports) >= 1 << 16:
            raise RefusedError(
                f"{max(ports)} is not a port of TCP (give one between 1 and 65535)",
                f"connections[{index}]",
                code="out-of-range",
            )
        if known.get(local) != report.host:
            raise RefusedError(
                f"{local} is not the address of '{report.host}' in fabric '{fabric.name}' "
                f"({fabric.hosts[report.host].ipv4} is)",
                f"connections[{index}].local",
                code="not-allowed",
            )
        if known.get(remote, report.host) == report.host:
            raise RefusedError(
                f"{remote} is not the address of another host of job '{job.name}' (GET"
                " /jobs/NAME/connections has their addresses)",
                f"connections[{index}].remote",
                code="not-allowed",
            )
    seen = frozenset((protocol, *one[1:]) for one in report.connections)
    _check_owners(seen - job.connections.get(report.host, frozenset()), job, jobs, fabric)
    return seen


def kept_connections(
    before: RegisteredJob | None, spec: JobSpec, fabric: Fabric
) -> dict[str, frozenset[FiveTuple]]:
    """Return the reported connections that stay when the job's file is replaced by `spec`: those
    between its hosts.
    """
    protocol = reported_protocol(spec)
    if before is None or protocol is None:
        return {}
    known = addresses(spec, fabric)
    still = {
        host: frozenset(
            one
            for one in seen
            if one[0] == protocol and known.get(one[1]) == host and one[2] in known
        )
        for host, seen in before.connections.items()
    }
    return {host: seen for host, seen in still.items() if seen}


def _check_owners(
    new: frozenset[FiveTuple], job: RegisteredJob, jobs: Iterable[RegisteredJob], fabric: Fabric
) -> None:
    """Raise `ConflictError` for a connection of another job."""
    if not new:
        return
    both_ways = new | {reverse(one) for one in new}
    ports = {one[3:] for one in new}
    for other in jobs:
        if other.name == job.name:
            continue
        theirs = [seen & both_ways for seen in other.connections.values()]
        recognition = other.spec.recognition
        if recognition.by == "bytes" and (
            recognition.source_port,
            recognition.destination_port,
        ) in {
            *ports,
            *(port[::-1] for port in ports),
        }:
            hosts = addresses(other.spec, fabric)
            theirs.append(frozenset(one for one in new if one[1] in hosts and one[2] in hosts))
        for protocol, src, dst, src_port, dst_port in frozenset().union(*theirs):
            raise ConflictError(
                f"{protocol} {src}:{src_port} to {dst}:{dst_port} is a connection of job"
                f" '{other.name}' already (report each connection for one job)",
                "connections",
                code="duplicate",
            )


def check_iterations(report: ReportIterations, job: RegisteredJob, fabric: Fabric) -> None:
    """Check what an agent reports of a job's iterations. Raise `ServiceError`."""
    _check_host(job, report.host)
    if len(report.iterations) > MOST_ITERATIONS:
        raise RefusedError(
            f"these are {len(report.iterations)} iterations, and a host may report"
            f" {MOST_ITERATIONS} at a time (report the latest)",
            "iterations",
            code="limit-reached",
        )
    sizes = sum(len(one.sent_bytes) for one in report.iterations)
    if sizes > MOST_SIZES:
        raise RefusedError(
            f"these are {sizes} sizes, and a host may report {MOST_SIZES} at a time (report fewer"
            " iterations)",
            "iterations",
            code="limit-reached",
        )
    cable = next((one for one in fabric.cables if report.host in (one.a.node, one.b.node)), None)
    others = job.spec.hosts.keys() - {report.host}
    for index, one in enumerate(report.iterations):
        for other in one.sent_bytes:
            if other not in others:
                raise UnknownError(
                    f"'{other}' is not another host of job '{job.name}'"
                    f" ({suggestion(other, others)})",
                    f"iterations[{index}].sent",
                    code="unknown-host",
                )
        sent_bits = 8 * (sum(one.sent_bytes.values()) + one.retransmitted_bytes)
        if cable is not None and sent_bits > cable.rate_bps * one.duration_s + BUFFERED_BITS:
            raise RefusedError(
                f"the link of '{report.host}' does not carry {sent_bits // 8} bytes in"
                f" {float(one.duration_s):g} s (report the bytes of one iteration, and how long it"
                " took)",
                f"iterations[{index}]",
                code="out-of-range",
            )


def _check_host(job: RegisteredJob, host: str) -> None:
    """Raise `ServiceError` unless agents report of the job, and `host` is one of its hosts."""
    if job.spec.recognition.by != "agent":
        raise RefusedError(
            f"job '{job.name}' is recognised by {job.spec.recognition.by}, not by what agents"
            " report (write 'recognition: {by: agent, idle_gap: ...}' in its file)",
            code="not-allowed",
        )
    if host not in job.spec.hosts:
        raise UnknownError(
            f"'{host}' is not a host of job '{job.name}' ({suggestion(host, job.spec.hosts)})",
            code="unknown-host",
        )
