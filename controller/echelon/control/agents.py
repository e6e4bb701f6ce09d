"""What the agents of hosts report of jobs, checked: connections, of which switches learn, and measured iterations."""

from __future__ import annotations

from collections.abc import Iterable

from echelon.control.errors import ConflictError, RefusedError, UnknownError
from echelon.control.events import ReportConnections, ReportIterations
from echelon.control.jobs import RegisteredJob, reverse
from echelon.documents import suggestion
from echelon.fabric.model import Fabric
from echelon.jobs.spec import JobSpec
from echelon.lowering.identity import FiveTuple

MOST_CONNECTIONS = 4096
"""The most connections of one job that one host may report. The tables of the smallest switches hold as many."""
MOST_ITERATIONS = 16
"""The most iterations that a host may report at a time."""
MOST_SIZES = 4096
"""The most sizes in such a report: destinations, over all its iterations."""
BUFFERED_BITS = 1 << 29
"""The bits that a host may count as sent before its link has carried them."""


def addresses(spec: JobSpec, fabric: Fabric) -> dict[str, str]:
    """Return the hosts of a job by their addresses; hosts that the fabric does not have are left out."""
    return {fabric.hosts[host].ipv4: host for host in spec.hosts if host in fabric.hosts}


def checked_connections(
    report: ReportConnections, job: RegisteredJob, jobs: Iterable[RegisteredJob], fabric: Fabric
) -> frozenset[FiveTuple]:
    """Return the connections that an agent reports of a job, if they are of none of the other `jobs`.

    Raise `ServiceError`.
    """
    _check_host(job, report.host)
    if len(report.connections) > MOST_CONNECTIONS:
        raise RefusedError(
            f"these are {len(report.connections)} connections, and a host may report {MOST_CONNECTIONS} of a job "
            "(report only those between its hosts)",
            "connections",
            code="limit-reached",
        )
    known = addresses(job.spec, fabric)
    for index, (_, local, remote, *_) in enumerate(report.connections):
        if known.get(local) != report.host:
            raise RefusedError(
                f"{local} is not the address of '{report.host}' in fabric '{fabric.name}' "
                f"({fabric.hosts[report.host].ipv4} is)",
                f"connections[{index}].local",
                code="not-allowed",
            )
        if known.get(remote, report.host) == report.host:
            raise RefusedError(
                f"{remote} is not the address of another host of job '{job.name}' (GET /jobs/NAME/connections has "
                "their addresses)",
                f"connections[{index}].remote",
                code="not-allowed",
            )
    seen = frozenset(report.connections)
    _check_owners(seen - job.connections.get(report.host, frozenset()), job, jobs, fabric)
    return seen


def kept_connections(before: RegisteredJob | None, spec: JobSpec, fabric: Fabric) -> dict[str, frozenset[FiveTuple]]:
    """Return the reported connections that stay when the job's file is replaced by `spec`: those between its hosts."""
    if before is None or spec.recognition.by != "agent":
        return {}
    known = addresses(spec, fabric)
    still = {
        host: frozenset(one for one in seen if known.get(one[1]) == host and one[2] in known)
        for host, seen in before.connections.items()
    }
    return {host: seen for host, seen in still.items() if seen}


def _check_owners(new: frozenset[FiveTuple], job: RegisteredJob, jobs: Iterable[RegisteredJob], fabric: Fabric) -> None:
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
        if recognition.by == "bytes" and (recognition.source_port, recognition.destination_port) in {
            *ports,
            *(port[::-1] for port in ports),
        }:
            hosts = addresses(other.spec, fabric)
            theirs.append(frozenset(one for one in new if one[1] in hosts and one[2] in hosts))
        for protocol, src, dst, src_port, dst_port in frozenset().union(*theirs):
            raise ConflictError(
                f"{protocol} {src}:{src_port} to {dst}:{dst_port} is a connection of job '{other.name}' already "
                "(report each connection for one job)",
                "connections",
                code="duplicate",
            )


def check_iterations(report: ReportIterations, job: RegisteredJob, fabric: Fabric) -> None:
    """Check what an agent reports of a job's iterations. Raise `ServiceError`."""
    _check_host(job, report.host)
    if len(report.iterations) > MOST_ITERATIONS:
        raise RefusedError(
            f"these are {len(report.iterations)} iterations, and a host may report {MOST_ITERATIONS} at a time "
            "(report the latest)",
            "iterations",
            code="limit-reached",
        )
    sizes = sum(len(one.sent_bytes) for one in report.iterations)
    if sizes > MOST_SIZES:
        raise RefusedError(
            f"these are {sizes} sizes, and a host may report {MOST_SIZES} at a time (report fewer iterations)",
            "iterations",
            code="limit-reached",
        )
    cable = next((one for one in fabric.cables if report.host in (one.a.node, one.b.node)), None)
    others = job.spec.hosts.keys() - {report.host}
    for index, one in enumerate(report.iterations):
        for other in one.sent_bytes:
            if other not in others:
                raise UnknownError(
                    f"'{other}' is not another host of job '{job.name}' ({suggestion(other, others)})",
                    f"iterations[{index}].sent",
                    code="unknown-host",
                )
        sent_bits = 8 * (sum(one.sent_bytes.values()) + one.retransmitted_bytes)
        if cable is not None and sent_bits > cable.rate_bps * one.duration_s + BUFFERED_BITS:
            raise RefusedError(
                f"the link of '{report.host}' does not carry {sent_bits // 8} bytes in {float(one.duration_s):g} s "
                "(report the bytes of one iteration, and how long it took)",
                f"iterations[{index}]",
                code="out-of-range",
            )


def _check_host(job: RegisteredJob, host: str) -> None:
    """Raise `ServiceError` unless agents report of the job, and `host` is one of its hosts."""
    if job.spec.recognition.by != "agent":
        raise RefusedError(
            f"job '{job.name}' is recognised by {job.spec.recognition.by}, not by what agents report (write "
            "'recognition: {by: agent, idle_gap: ...}' in its file)",
            code="not-allowed",
        )
    if host not in job.spec.hosts:
        raise UnknownError(
            f"'{host}' is not a host of job '{job.name}' ({suggestion(host, job.spec.hosts)})", code="unknown-host"
        )
