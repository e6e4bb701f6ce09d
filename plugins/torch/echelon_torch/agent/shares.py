"""The share of a job's bytes on each connection, which tells control traffic from data.

A job's hosts have more connections than those of its collectives: to a store (TCPStore), to the
rendezvous of torchrun, for heart-beats. Ports do not tell them apart: stores and the transports of
collectives listen at ports of anybody's choice, and each of both is opened by whoever comes later.
Bytes do: what a store answers to a thread that polls it is little beside gradients. So a connection
counts as control traffic once those beside it, between the same two hosts, have carried a lot since
it opened, both directions together, and it has not. If it carries more later, it is data.

Both ends see the same bytes, but for what is on its way, and so come to the same conclusion.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.sockets import TcpCounters

LEAST_BYTES = 1 << 18
"""The bytes that others have to carry before a connection can be called control traffic."""
SHARE = 32
"""Control traffic is less than this part of what others carry: less than the 5 % of an iteration's
bytes that may be missing at its end."""


@dataclass(slots=True)
class _Seen:
    carried: int
    """The bytes that the connection had carried and that do not count."""
    between: int
    """The bytes that all connections between its hosts had carried when it was first seen."""


@dataclass
class Shares:
    """The bytes that connections carry beside each other, from one list of sockets to the next.

    `is_late` is whether connections of the first list may have opened long before; what they
    carried until then does not count.
    """

    is_late: bool = False
    control: frozenset[TcpConnection] = frozenset()
    """The connections that count as control traffic."""
    _carried: dict[TcpConnection, int] = field(default_factory=dict)
    _first: dict[TcpConnection, _Seen] = field(default_factory=dict)
    _missing: frozenset[TcpConnection] | set[TcpConnection] = frozenset()
    """The connections that the last list lacked."""
    _carried_between: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The bytes that the connections between two addresses have carried while observed.

    They include those of connections that have closed.
    """

    def observe(self, counters: Mapping[TcpConnection, TcpCounters]) -> None:
        """Take what the connections have carried until now.

        Those that are missing twice in a row have closed.
        """
        now: dict[TcpConnection, int] = {}
        new: list[TcpConnection] = []
        for connection, counts in counters.items():
            carried = counts.bytes_sent + counts.bytes_received
            now[connection] = carried
            before = self._carried.get(connection)
            # A connection that carries less than before is another one with the same ports.
            if before is None or carried < before:
                new.append(connection)
            else:
                self._carried_between[_hosts(connection)] += carried - before
        self._note_first(new, now)

        missing = self._carried.keys() - now.keys()
        for connection in missing & self._missing:
            del self._carried[connection], self._first[connection]
        self._missing = missing - self._missing
        self._carried |= now
        self.control = frozenset(filter(self._is_control, now))

    def _note_first(self, new: list[TcpConnection], now: Mapping[TcpConnection, int]) -> None:
        # None of the new connections was there before another, so no sum has bytes of them yet.
        for connection in new:
            carried = now[connection] if self.is_late else 0
            self._first[connection] = _Seen(carried, self._carried_between[_hosts(connection)])

        for connection in new:
            carried = now[connection] - self._first[connection].carried
            self._carried_between[_hosts(connection)] += carried
        self.is_late = self.is_late and not now

    def _is_control(self, connection: TcpConnection) -> bool:
        first = self._first[connection]
        carried = self._carried[connection] - first.carried
        rest = self._carried_between[_hosts(connection)] - first.between - carried
        return rest >= LEAST_BYTES and carried * SHARE < rest


def _hosts(connection: TcpConnection) -> tuple[str, str]:
    return connection.local, connection.remote
