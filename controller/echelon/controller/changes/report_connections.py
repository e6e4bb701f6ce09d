"""The agent of a host reports the connections of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from echelon.controller.changes.job_change import JobChange, keep
from echelon.controller.machine.agents import addresses, check_host, reported_protocol
from echelon.controller.machine.change import AppliedChange, ControllerState
from echelon.controller.machine.errors import ConflictError, RefusedError
from echelon.controller.machine.facts import Fact, LogLine, StoryLines, of_job
from echelon.controller.machine.instant import Instant
from echelon.controller.machine.jobs import Connections, RegisteredJob
from echelon.model.fabric.model import Fabric
from echelon.switches.lowering.identity import FiveTuple, reverse

MOST_CONNECTIONS = 4096
"""The most connections of one job that one host may report.

The tables of the smallest switches hold as many.
"""


@dataclass(frozen=True, slots=True)
class ConnectionsReported(Fact):
    """The agent of a host reported other connections of a job than before."""

    job: str
    host: str
    opened: int
    closed: int

    def story(self) -> StoryLines:
        counts = f"new: {self.opened}, gone: {self.closed}"
        return of_job(self.job, f"host {self.host} reports connections ({counts})")

    def log_line(self) -> LogLine:
        fields = {
            "job": self.job,
            "host": self.host,
            "opened": self.opened,
            "closed": self.closed,
        }
        return "connections reported", fields


@dataclass(frozen=True, slots=True)
class ReportConnections(JobChange):
    """The agent of a host reports all connections of a job that it sees now.

    They are those from its host to others.
    """

    job: str
    host: str
    connections: tuple[FiveTuple, ...]

    @property
    def queue(self) -> str:
        return self.job

    def check(self, state: ControllerState, now: Instant) -> RegisteredJob:
        job = state.jobs.find(self.job)
        # Of jobs whose change is on its way, both states count: the change may fail.
        jobs = [*state.jobs.jobs.values(), *state.changing_jobs]
        seen = self._checked(job, jobs, state.jobs.whole_fabric)
        if seen == job.connections.get(self.host, frozenset()):
            return job
        return job.with_connections(self.host, seen)

    def apply(
        self,
        target: RegisteredJob,
        state: ControllerState,
        now: Instant,
    ) -> AppliedChange:
        # What hosts measured may have changed the job meanwhile.
        job = state.jobs.find(self.job)
        before = job.connections.get(self.host, frozenset())
        after = target.connections.get(self.host, frozenset())
        changed = job.with_connections(self.host, after)
        keep(changed, state, now)
        opened = len(after - before)
        closed = len(before - after)
        return AppliedChange(changed, [ConnectionsReported(self.job, self.host, opened, closed)])

    def trail_entry(self) -> None:
        # No person asked for it, and many such records would take the place of others.
        return None

    def _checked(
        self,
        job: RegisteredJob,
        jobs: Iterable[RegisteredJob],
        fabric: Fabric,
    ) -> Connections:
        """Return the connections, if none is a connection of the other `jobs`.

        Raises `ServiceError`.
        """
        check_host(job, self.host)
        if len(self.connections) > MOST_CONNECTIONS:
            raise RefusedError(
                f"these are {len(self.connections)} connections, and a host may report"
                f" {MOST_CONNECTIONS} of a job (report only those between its hosts)",
                "connections",
                code="limit-reached",
            )
        protocol = reported_protocol(job.spec) or "tcp"
        by_address = addresses(job.spec, fabric)
        for index, connection in enumerate(self.connections):
            _check_ports(connection, protocol, f"connections[{index}]")
            self._check_ends(connection, by_address, fabric, f"connections[{index}]")

        seen = frozenset((protocol, *connection[1:]) for connection in self.connections)
        new = seen - job.connections.get(self.host, frozenset())
        if new:
            other_jobs = [other for other in jobs if other.name != job.name]
            _check_owners(new, other_jobs, fabric)
        return seen

    def _check_ends(
        self,
        connection: FiveTuple,
        by_address: Mapping[str, str],
        fabric: Fabric,
        path: str,
    ) -> None:
        """Raise `RefusedError` unless the connection is from the host to another one of the job."""
        _, local, remote, *_ = connection
        if by_address.get(local) != self.host:
            raise RefusedError(
                f"{local} is not the address of '{self.host}' in fabric '{fabric.name}' "
                f"({fabric.hosts[self.host].ipv4} is)",
                f"{path}.local",
                code="not-allowed",
            )
        if by_address.get(remote, self.host) == self.host:
            raise RefusedError(
                f"{remote} is not the address of another host of job '{self.job}' (GET"
                " /jobs/NAME/connections has their addresses)",
                f"{path}.remote",
                code="not-allowed",
            )


def _check_ports(
    connection: FiveTuple,
    protocol: str,
    path: str,
) -> None:
    """Raise `RefusedError` for a port that TCP does not have."""
    port = max(connection[3:])
    if protocol == "tcp" and port >= 1 << 16:
        raise RefusedError(
            f"{port} is not a port of TCP (give one between 1 and 65535)",
            path,
            code="out-of-range",
        )


def _check_owners(
    new: Connections,
    jobs: Iterable[RegisteredJob],
    fabric: Fabric,
) -> None:
    """Raise `ConflictError` for a connection of another job."""
    both_ways = new | {reverse(connection) for connection in new}
    ports = {connection[3:] for connection in both_ways}
    for other in jobs:
        theirs = set[FiveTuple]().union(*other.connections.values()) & both_ways
        recognition = other.spec.recognition
        own_ports = (recognition.source_port, recognition.destination_port)
        if recognition.by == "bytes" and own_ports in ports:
            hosts = addresses(other.spec, fabric)
            theirs |= {
                connection
                for connection in new
                if connection[1] in hosts and connection[2] in hosts
            }
        for protocol, src, dst, src_port, dst_port in theirs:
            raise ConflictError(
                f"{protocol} {src}:{src_port} to {dst}:{dst_port} is a connection of job"
                f" '{other.name}' already (report each connection for one job)",
                "connections",
                code="duplicate",
            )
