"""Keeps the service up to date about a job's connections on this host, in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from echelon.agent.connection import TcpConnection
from echelon.client import ClientError
from echelon.service.resources import ConnectionsResource

REFRESH_S = 10.0
"""Time after which the same is reported again: the job may have been removed and registered anew."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class ConnectionService(Protocol):
    """The calls of `echelon.client.Client` that the agent makes."""

    def connections(self, job: str) -> ConnectionsResource: ...

    def report_connections(self, job: str, host: str, connections: list[TcpConnection]) -> ConnectionsResource: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of reports to the service."""

    reports: int = 0
    failures: int = 0


class Reporter:
    """A reporter of one job's connections on one host. It reports the latest state, again and again until the service
    has taken it.

    Of the connections it reports those to other hosts of the job; the service knows their addresses. `say` takes one
    line for the operator whenever the outcome differs from the last.
    """

    def __init__(self, service: ConnectionService, job: str, host: str, say: Callable[[str], None]) -> None:
        self._service = service
        self._job = job
        self._host = host
        self._say = say
        self._said = ""
        self._changed = threading.Condition()
        self._wanted: frozenset[TcpConnection] = frozenset()
        self._told: frozenset[TcpConnection] | None = None
        """The connections that the service has acknowledged; None: not known."""
        self._addresses: dict[str, str] = {}
        self._over = False
        self.counts = Counts()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, connections: frozenset[TcpConnection]) -> None:
        """Report these connections from now on."""
        with self._changed:
            if connections != self._wanted:
                self._wanted = connections
                self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Report what is not reported yet, for at most that time, and end."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def is_peer(self, connection: TcpConnection) -> bool:
        """Return whether the connection is between this host and another one of the job, as far as is known."""
        own = self._addresses.get(self._host)
        return connection.local == own and connection.remote != own and connection.remote in self._addresses.values()

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                wanted, over = self._wanted, self._over
            try:
                self._report(wanted)
            except ClientError as error:
                self.counts = Counts(self.counts.reports, self.counts.failures + 1)
                self._tell(f"cannot report to the service, and will try again: {error}")
                self._told, self._addresses = None, {}
                if over:
                    return
                self._wait(wanted, pause_s, even_if_new=True)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S
                if over:
                    return
                self._wait(wanted, REFRESH_S, even_if_new=False)

    def _report(self, wanted: frozenset[TcpConnection]) -> None:
        if not self._addresses or wanted == self._told:
            self._addresses = dict(self._service.connections(self._job).addresses)
            self._told = None
        reported = sorted(filter(self.is_peer, wanted))
        self._service.report_connections(self._job, self._host, reported)
        self._told = wanted
        self.counts = Counts(self.counts.reports + 1, self.counts.failures)
        self._tell("reports to the service")

    def _wait(self, known: frozenset[TcpConnection], time_s: float, *, even_if_new: bool) -> None:
        """Wait that long, or until the agent ends, or, unless `even_if_new`, until there is something new."""
        until = time.monotonic() + time_s
        with self._changed:
            while not self._over and (even_if_new or self._wanted == known):
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def _tell(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)
