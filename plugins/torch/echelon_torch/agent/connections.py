"""The connections of a job on this host, and what the kernel counts on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from echelon_torch.agent.connection import TcpConnection
from echelon_torch.agent.marking import SocketOptions
from echelon_torch.agent.program import Seen
from echelon_torch.agent.shares import Shares
from echelon_torch.agent.sockets import TcpCounters, TcpSocket

Owner = Callable[[], Callable[[TcpSocket], bool]]
"""A function that returns a test whether a socket is the job's at this moment."""


class Listing(Protocol):
    """A reader of all sockets (`echelon_torch.agent.sockets.SocketList`)."""

    def read(self) -> list[TcpSocket]: ...


class Telling(Protocol):
    """A source of news of connections (`echelon_torch.agent.program.KernelProgram`)."""

    def read(self) -> list[Seen]: ...


class Marking(Protocol):
    """A setter of options of sockets (`echelon_torch.agent.marking.Marker`)."""

    options: SocketOptions

    def mark(self, inodes: Collection[int]) -> int: ...


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a job's connections since the agent sees them, closed ones included."""

    sent_bytes: int = 0
    """Bytes sent for the first time."""
    retransmitted_bytes: int = 0
    retransmissions: int = 0
    busy_s: float = 0.0
    """Time with data to send, over all connections."""
    stalled_s: float = 0.0
    """Time of it in which the send buffer was too small."""
    sent_to: Mapping[str, int] = field(default_factory=dict)
    """`sent_bytes` by the address that they were sent to."""

    def plus(
        self,
        address: str,
        now: TcpCounters,
        before: TcpCounters,
    ) -> Totals:
        """Return these totals with what a connection to `address` carried between two readings."""
        repeated = now.bytes_retransmitted - before.bytes_retransmitted
        sent = now.bytes_sent - before.bytes_sent - repeated
        sent_to = self.sent_to
        if sent:
            sent_to = {**sent_to, address: sent_to.get(address, 0) + sent}

        return Totals(
            self.sent_bytes + sent,
            self.retransmitted_bytes + repeated,
            self.retransmissions + now.retransmissions - before.retransmissions,
            self.busy_s + (now.busy_us - before.busy_us) / 1e6,
            self.stalled_s + (now.stalled_us - before.stalled_us) / 1e6,
            sent_to,
        )

    def minus(self, before: Totals) -> Totals:
        """Return what was carried after these earlier totals."""
        sent_to = {}
        for address, size in self.sent_to.items():
            sent_to[address] = size - before.sent_to.get(address, 0)

        return Totals(
            self.sent_bytes - before.sent_bytes,
            self.retransmitted_bytes - before.retransmitted_bytes,
            self.retransmissions - before.retransmissions,
            self.busy_s - before.busy_s,
            self.stalled_s - before.stalled_s,
            sent_to,
        )


_NOTHING = TcpCounters()


@dataclass
class JobConnections:
    """The connections of a job, from the list of sockets and, if it can run, a kernel program.

    What connections carry is added up for those that are `is_counted` (default: all), and are no
    control traffic: neither connections to stores, nor those that `shares` tells.
    """

    listing: Listing
    owner: Owner
    program: Telling | None = None
    is_counted: Callable[[TcpConnection], bool] = lambda _: True
    marker: Marking | None = None
    """Sets what the program in the kernel cannot set."""
    totals: Totals = field(default_factory=Totals)
    since_sent_s: float = 0.0
    """The time since any of them sent data, at the last reading."""
    marked: int = 0
    """The number of connections that opened with the mark."""
    shares: Shares = field(default_factory=Shares)
    stores: Callable[[], Collection[int]] = frozenset
    """Returns the ports at which stores of the job listen."""
    _stores: dict[TcpConnection, bool] = field(default_factory=dict)
    """Whether a connection is one to a store, told by who opened it, of those that are open."""
    _open: dict[TcpConnection, TcpCounters] = field(default_factory=dict)
    _unmarked: set[TcpConnection] = field(default_factory=set)
    _missing: frozenset[TcpConnection] = frozenset()
    """The open connections that the last list did not have."""

    @property
    def open(self) -> frozenset[TcpConnection]:
        """The connections that are open."""
        return frozenset(self._open)

    @property
    def data(self) -> frozenset[TcpConnection]:
        """The connections that are open, without control traffic."""
        return self.open - self.control

    @property
    def control(self) -> frozenset[TcpConnection]:
        """The open connections that are control traffic."""
        to_stores = {connection for connection in self._open if self._stores.get(connection)}
        return self.shares.control | to_stores

    @property
    def is_marking_due(self) -> bool:
        """Whether connections have opened that the next reading marks."""
        return bool(self._unmarked)

    def hear(self) -> None:
        """Take what the program in the kernel tells."""
        if self.program is None:
            return
        news = self.program.read()
        ports: Collection[int] = ()
        if any(seen.is_open for seen in news):
            ports = self.stores()

        for seen in news:
            if seen.is_open:
                self._note_open(seen, ports)
            else:
                self._open.pop(seen.connection, None)

    def _note_open(self, seen: Seen, ports: Collection[int]) -> None:
        connection = seen.connection
        self._open[connection] = _NOTHING
        # The store is the end that did not open the connection.
        if seen.is_accepted:
            port = connection.local_port
        else:
            port = connection.remote_port
        self._stores[connection] = port in ports

        # The program in the kernel cannot mark every socket, and sets nothing but the mark.
        if self.marker is None or (seen.is_marked and not self.marker.options.needs_socket):
            self.marked += seen.is_marked
        else:
            self._unmarked.add(connection)

    def read(self) -> None:
        """Correct the open connections by the list of sockets, and add up what they carried.

        A connection that the list lacks twice in a row has closed. It may lack one for once,
        because sockets come and go while the kernel writes it. Raise what `listing` raises; then
        nothing has changed.
        """
        # What the program has told before is in the list, unless it has closed since.
        self.hear()
        is_own = self.owner()
        sockets = [tcp for tcp in self.listing.read() if is_own(tcp)]
        self._mark(sockets)
        listed = {tcp.connection: tcp.counters for tcp in sockets}
        self._find_stores(listed.keys())
        self._add_up(listed)

        missing = self._open.keys() - listed.keys()
        kept = {connection: self._open[connection] for connection in missing - self._missing}
        self._missing = frozenset(kept)
        # The thread of the metrics walks through this dictionary, which must not grow under it.
        now_open = {connection: counters or _NOTHING for connection, counters in listed.items()}
        self._open = now_open | kept

    def _mark(self, sockets: Collection[TcpSocket]) -> None:
        if self.program is None:
            connections = {tcp.connection for tcp in sockets}
            self._unmarked |= connections - self._open.keys()
        if self.marker is None or not self._unmarked:
            return
        inodes = {tcp.inode for tcp in sockets if tcp.connection in self._unmarked}
        self.marked += self.marker.mark(inodes)
        self._unmarked.clear()

    def _find_stores(self, listed: Collection[TcpConnection]) -> None:
        """Tell which connections are to stores.

        The list does not say who opened a connection, so either end may be the store.
        """
        stores = {}
        for connection, is_store in self._stores.items():
            if connection in listed or connection in self._open:
                stores[connection] = is_store

        unknown = [connection for connection in listed if connection not in stores]
        if unknown:
            ports = self.stores()
            for connection in unknown:
                ends = {connection.local_port, connection.remote_port}
                stores[connection] = not ends.isdisjoint(ports)
        self._stores = stores

    def _add_up(self, listed: Mapping[TcpConnection, TcpCounters | None]) -> None:
        counted = {}
        for connection, counters in listed.items():
            is_store = self._stores.get(connection)
            if counters is not None and not is_store and self.is_counted(connection):
                counted[connection] = counters
        self.shares.observe(counted)

        since_sent_s = []
        for connection, now in counted.items():
            if connection in self.shares.control:
                continue
            before = self._open.get(connection, _NOTHING)
            if before.bytes_sent > now.bytes_sent:
                # Another connection has the same ports.
                before = _NOTHING
            self.totals = self.totals.plus(connection.remote, now, before)
            if now.bytes_sent:
                since_sent_s.append(now.last_sent_ms / 1000)
        self.since_sent_s = min(since_sent_s, default=0.0)
