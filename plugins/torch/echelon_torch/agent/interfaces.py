"""A host of several interfaces, each of which is a host of the fabric, as in a rail-optimised one.

NCCL opens connections from the address of each of a server's NICs. The service wants them by the
host that has the address, so one agent reports for all of its server's.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.iterations import MeasuredIteration
from echelon_torch.agent.reporting import Counts, Reporter


class Interfaces:
    """The reporters of the interfaces of one host, with the methods of one of them.

    Each reports the connections from its own address. Bytes are not told apart by interface, so
    iterations are not reported.
    """

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = tuple(reporters)

    @property
    def counts(self) -> Counts:
        """Return the reports of all interfaces."""
        reports = 0
        failures = 0
        for reporter in self._reporters:
            reports += reporter.counts.reports
            failures += reporter.counts.failures
        return Counts(reports, failures)

    def start(self) -> None:
        for reporter in self._reporters:
            reporter.start()

    def update(self, connections: frozenset[TcpConnection]) -> None:
        for reporter in self._reporters:
            reporter.update(connections)

    def measured(self, iteration: MeasuredIteration) -> None:
        """Do nothing: an iteration has the bytes of all interfaces together."""

    def stop(self, timeout_s: float) -> None:
        """Let all report what is left, at the same time."""
        for reporter in self._reporters:
            reporter.stop(0.0)
        for reporter in self._reporters:
            reporter.stop(timeout_s)

    def is_peer(self, connection: TcpConnection) -> bool:
        """Return whether the connection joins one of the interfaces and another host of the job."""
        return any(reporter.is_peer(connection) for reporter in self._reporters)
