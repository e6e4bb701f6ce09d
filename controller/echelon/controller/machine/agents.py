"""Checks of what the agents of hosts report of a job."""

from __future__ import annotations

from echelon.controller.machine.errors import RefusedError, UnknownError
from echelon.controller.machine.events import ReportIterations
from echelon.controller.machine.jobs import RegisteredJob
from echelon.model.documents import suggestion
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.spec import JobSpec

MOST_ITERATIONS = 16
"""The most iterations that a host may report at a time."""
MOST_SIZES = 4096
"""The most sizes in such a report: destinations, over all its iterations."""
BUFFERED_BITS = 1 << 29
"""The bits that a host may count as sent before its link has carried them."""


def addresses(spec: JobSpec, fabric: Fabric) -> dict[str, str]:
    """Return the hosts of a job by their addresses.

    Hosts that the fabric does not have are left out.
    """
    return {fabric.hosts[host].ipv4: host for host in spec.hosts if host in fabric.hosts}


def reported_protocol(spec: JobSpec) -> str | None:
    """Return the protocol of the connections that agents report of a job: tcp or roce.

    None: they report none.
    """
    if spec.recognition.by != "agent":
        return None
    return spec.recognition.protocol or "tcp"


def check_iterations(
    report: ReportIterations,
    job: RegisteredJob,
    fabric: Fabric,
) -> None:
    """Check what an agent reports of a job's iterations. Raise `ServiceError`."""
    check_host(job, report.host)
    if len(report.iterations) > MOST_ITERATIONS:
        raise RefusedError(
            f"these are {len(report.iterations)} iterations, and a host may report"
            f" {MOST_ITERATIONS} at a time (report the latest)",
            "iterations",
            code="limit-reached",
        )
    sizes = sum(len(iteration.sent_bytes) for iteration in report.iterations)
    if sizes > MOST_SIZES:
        raise RefusedError(
            f"these are {sizes} sizes, and a host may report {MOST_SIZES} at a time (report fewer"
            " iterations)",
            "iterations",
            code="limit-reached",
        )
    peers = job.spec.hosts.keys() - {report.host}
    rate_bps = _link_rate_bps(report.host, fabric)
    for index, iteration in enumerate(report.iterations):
        path = f"iterations[{index}]"
        for host in iteration.sent_bytes:
            if host not in peers:
                raise UnknownError(
                    f"'{host}' is not another host of job '{job.name}' ({suggestion(host, peers)})",
                    f"{path}.sent",
                    code="unknown-host",
                )
        sent_bits = 8 * (sum(iteration.sent_bytes.values()) + iteration.retransmitted_bytes)
        if rate_bps is not None and sent_bits > rate_bps * iteration.duration_s + BUFFERED_BITS:
            raise RefusedError(
                f"the link of '{report.host}' does not carry {sent_bits // 8} bytes in"
                f" {float(iteration.duration_s):g} s (report the bytes of one iteration, and how"
                " long it took)",
                path,
                code="out-of-range",
            )


def _link_rate_bps(host: str, fabric: Fabric) -> int | None:
    """Return the rate of the first link of a host; None: it has none."""
    for cable in fabric.cables:
        if host in (cable.a.node, cable.b.node):
            return cable.rate_bps
    return None


def check_host(job: RegisteredJob, host: str) -> None:
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
