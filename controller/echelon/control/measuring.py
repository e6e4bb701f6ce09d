"""What the hosts of jobs measure of iterations, as their agents report it, checked."""

from __future__ import annotations

from echelon.control.errors import RefusedError, UnknownError
from echelon.control.events import ReportIterations
from echelon.control.jobs import RegisteredJob
from echelon.documents import suggestion
from echelon.fabric.model import Fabric

MOST_ITERATIONS = 16
"""The most iterations that a host may report at a time."""
MOST_SIZES = 4096
"""The most sizes in such a report: destinations, over all its iterations."""
BUFFERED_BITS = 1 << 29
"""What a host may count as sent before its link has carried it."""


def check(report: ReportIterations, job: RegisteredJob, fabric: Fabric) -> None:
    """Check what an agent reports of a job's iterations. Raise `ServiceError`."""
    check_host(job, report.host)
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


def check_host(job: RegisteredJob, host: str) -> None:
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
