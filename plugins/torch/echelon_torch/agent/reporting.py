"""The reports to the service about a job's connections and iterations, from a thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from echelon.controller.client import ClientError
from echelon.controller.resources.jobs import ConnectionsResource, HostMeasurement
from echelon.switches.telemetry.sizes import HostIteration
from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.iterations import MeasuredIteration

REFRESH_S = 10.0
"""Time after which the same is reported again: the job may have been removed and registered anew.
"""
ITERATIONS_S = 1.0
"""The least time between two reports of iterations."""
LATEST = 16
"""The number of iterations that are reported."""
MOST_SIZES = 4096
"""The most sizes that are reported, over these iterations."""
SHORTEST_S = 1e-6
"""The least duration that is reported."""
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class ConnectionService(Protocol):
    """The calls of `echelon.controller.client.Client` that the agent makes."""

    def connections(self, job: str) -> ConnectionsResource: ...

    def report_connections(
        self,
        job: str,
        host: str,
        connections: list[TcpConnection],
    ) -> ConnectionsResource: ...

    def report_iterations(
        self,
        job: str,
        host: str,
        iterations: list[HostIteration],
    ) -> HostMeasurement: ...


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of reports to the service."""

    reports: int = 0
    failures: int = 0


class Reporter:
    """A reporter of one job's connections and iterations on one host.

    It reports the latest state, again and again until the service has taken it.

    Of the connections it reports those to other hosts of the job; the service knows their
    addresses. `say` takes one line for the operator whenever the outcome differs from the last.
    """

    def __init__(
        self,
        service: ConnectionService,
        job: str,
        host: str,
        say: Callable[[str], None],
    ) -> None:
        self._service = service
        self._job = job
        self._host = host
        self._say = say
        self._last_lines: dict[str, str] = {}
        """The last line about each kind of report."""
        self._changed = threading.Condition()
        self._wanted: frozenset[TcpConnection] = frozenset()
        self._acknowledged: frozenset[TcpConnection] | None = None
        """The connections that the service has acknowledged; None: not known."""
        self._addresses: dict[str, str] = {}
        """The address of each host of the job; empty: not known."""
        self._peers: dict[str, str] = {}
        """The other hosts by their addresses."""
        self._iterations: deque[MeasuredIteration] = deque(maxlen=LATEST)
        self._has_new = False
        """Whether iterations are to be reported."""
        self._refresh_at_s = 0.0
        """The time at which to report the same connections again."""
        self._iterations_at_s = 0.0
        """The time from which iterations may be reported again."""
        self._over = False
        self.counts = Counts()
        self._thread = threading.Thread(
            target=self._run,
            name="reporter",
            daemon=True,
        )

    def start(self) -> None:
        self._thread.start()

    def update(self, connections: frozenset[TcpConnection]) -> None:
        """Report these connections from now on."""
        with self._changed:
            if connections != self._wanted:
                self._wanted = connections
                self._changed.notify()

    def measured(self, iteration: MeasuredIteration) -> None:
        """Report this iteration with those before it."""
        with self._changed:
            self._iterations.append(iteration)
            self._has_new = True
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Report what is not reported yet, for at most that time, and end."""
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def is_peer(self, connection: TcpConnection) -> bool:
        """Return whether the connection is known to join this host and another one of the job."""
        own_address = self._addresses.get(self._host)
        return connection.local == own_address and connection.remote in self._peers

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                wanted = self._wanted
                over = self._over
            try:
                self._report(wanted)
            except ClientError as error:
                self._failed("connections", error)
                self._acknowledged = None
                self._learn({})
                if over:
                    return
                self._pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                pause_s = FIRST_PAUSE_S
                self._report_iterations()
                if over:
                    return
                self._wait_for_news(wanted)

    def _report(self, wanted: frozenset[TcpConnection]) -> None:
        now_s = time.monotonic()
        if wanted == self._acknowledged and now_s < self._refresh_at_s:
            return
        if not self._addresses or wanted == self._acknowledged:
            self._learn(self._service.connections(self._job).addresses)
            self._acknowledged = None
        reported = sorted(filter(self.is_peer, wanted))
        self._service.report_connections(self._job, self._host, reported)
        self._acknowledged = wanted
        self._refresh_at_s = now_s + REFRESH_S
        with self._changed:
            self._has_new = bool(self._iterations)
        self._succeeded("connections")

    def _learn(self, addresses: Mapping[str, str]) -> None:
        own_address = addresses.get(self._host)
        self._addresses = dict(addresses)
        self._peers = {}
        for host, address in addresses.items():
            if address != own_address:
                self._peers[address] = host

    def _report_iterations(self) -> None:
        now_s = time.monotonic()
        with self._changed:
            if not self._has_new or now_s < self._iterations_at_s:
                return
            self._has_new = False
            measured = list(self._iterations)
        try:
            self._service.report_iterations(self._job, self._host, self._by_host(measured))
        except ClientError as error:
            # Connections matter more, and are reported all the same.
            self._failed("iterations", error)
            self._iterations_at_s = now_s + LONGEST_PAUSE_S
        else:
            self._iterations_at_s = now_s + ITERATIONS_S
            self._succeeded("iterations")

    def _by_host(self, measured: Sequence[MeasuredIteration]) -> list[HostIteration]:
        """Return the latest iterations, with the job's hosts in place of their addresses."""
        iterations: list[HostIteration] = []
        sizes = 0
        for iteration in reversed(measured):
            carried = iteration.carried
            sent = {}
            for address, size in carried.sent_to.items():
                if size > 0 and address in self._peers:
                    sent[self._peers[address]] = size
            sizes += len(sent)
            if sizes > MOST_SIZES:
                break

            duration_s = Fraction(max(iteration.seen.duration_s, SHORTEST_S))
            repeated = carried.retransmitted_bytes
            stalled_s = Fraction(carried.stalled_s)
            iterations.append(HostIteration(duration_s, sent, repeated, stalled_s))
        return iterations[::-1]

    def _wait_for_news(self, reported: frozenset[TcpConnection]) -> None:
        """Wait until there is something to report, first or again, or the agent ends."""
        with self._changed:
            while not self._over and self._wanted == reported:
                if self._has_new:
                    until_s = min(self._refresh_at_s, self._iterations_at_s)
                else:
                    until_s = self._refresh_at_s
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return
                self._changed.wait(left_s)

    def _pause(self, time_s: float) -> None:
        """Wait that long, or until the agent ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._over, time_s)

    def _succeeded(self, subject: str) -> None:
        self.counts = Counts(self.counts.reports + 1, self.counts.failures)
        self._tell(subject, f"reports {subject} to the service")

    def _failed(self, subject: str, error: ClientError) -> None:
        self.counts = Counts(self.counts.reports, self.counts.failures + 1)
        self._tell(subject, f"cannot report {subject} to the service, and will try again: {error}")

    def _tell(self, subject: str, line: str) -> None:
        if line != self._last_lines.get(subject):
            self._last_lines[subject] = line
            self._say(line)
