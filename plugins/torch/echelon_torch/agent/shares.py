"""The share of a job's bytes that each connection carries, by which control traffic is told from
data.

A job's hosts have more connections than those of its collectives: to a store (TCPStore), to the
rendezvous of torchrun, for heart-beats. Ports do not tell them apart: stores and the transports of
collectives listen at ports of anybody's choice, and each of both is opened by whoever comes later.
Bytes do: what a store answers to a thread that polls it is little beside gradients. So a connection
counts as control traffic once those beside it, between the same two hosts, have carried a lot since
it opened, both directions together, and it has not. If it carries more later, it is data.

Both ends see the same bytes, but for what is on its way, and so come to the same conclusion.
"""

from __future__ import annotations

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
    """What the connection had carried that does not count."""
    beside: int
    """What all connections between its hosts had carried when it was first seen."""


@dataclass
class Shares:
    """What connections have carried beside each other, from one list of sockets to the next.

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
    _between: dict[tuple[str, str], int] = field(default_factory=dict)
    """What the connections between two addresses have carried since they are observed, also those
    that have closed.
    """

    def observe(self, found: Mapping[TcpConnection, TcpCounters]) -> None:
        """Take what the connections have carried until now.

        Those that are missing twice in a row have closed.
        """
        now = {
            one: counters.bytes_sent + counters.bytes_received for one, counters in found.items()
        }
        # A connection that carries less than before is another one with the same ports.
        new = [one for one, carried in now.items() if carried < self._carried.get(one, carried + 1)]
        for one in now.keys() - set(new):
            pair = one.local, one.remote
            self._between[pair] = self._between.get(pair, 0) + now[one] - self._carried[one]
        for one in new:
            self._first[one] = _Seen(
                now[one] if self.is_late else 0, self._between.get((one.local, one.remote), 0)
            )
        for one in new:
            pair = one.local, one.remote
            self._between[pair] = self._between.get(pair, 0) + now[one] - self._first[one].carried
        self.is_late = self.is_late and not now
        missing = self._carried.keys() - now.keys()
        for one in missing & self._missing:
            del self._carried[one], self._first[one]
        self._missing = missing - self._missing
        self._carried |= now
        self.control = frozenset(one for one in now if self._is_control(one))

    def _is_control(self, one: TcpConnection) -> bool:
        first = self._first[one]
        own = self._carried[one] - first.carried
        others = self._between.get((one.local, one.remote), 0) - first.beside - own
        return others >= LEAST_BYTES and own * SHARE < others
