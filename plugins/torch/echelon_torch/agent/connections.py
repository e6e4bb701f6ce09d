"""The connections of a job on this host, and what the kernel counts on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
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
    """The totals of a job's connections since the agent sees them, including those that have
    closed.
    """

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

    def plus(self, to: str, now: TcpCounters, before: TcpCounters) -> Totals:
        """Return these totals with what a connection to that address has carried between two
        readings.
        """
        again = now.bytes_retransmitted - before.bytes_retransmitted
        sent = now.bytes_sent - before.bytes_sent - again
        return Totals(
            self.sent_bytes + sent,
            self.retransmitted_bytes + again,
            self.retransmissions + now.retransmissions - before.retransmissions,
            self.busy_s + (now.busy_us - before.busy_us) / 1e6,
            self.stalled_s + (now.stalled_us - before.stalled_us) / 1e6,
            {**self.sent_to, to: self.sent_to.get(to, 0) + sent} if sent else self.sent_to,
        )

    def minus(self, before: Totals) -> Totals:
        """Return what was carried after these earlier totals."""
        sent_to = {to: size - before.sent_to.get(to, 0) for to, size in self.sent_to.items()}
        numbers = [field.name for field in fields(self) if field.name != "sent_to"]
        return Totals(
            **{one: getattr(self, one) - getattr(before, one) for one in numbers}, sent_to=sent_to
        )


_NOTHING = TcpCounters()


@dataclass
class JobConnections:
    """The connections of a job, kept up to date from the list of sockets and, where there is one,
    by a program in the kernel, which is quicker and misses none that is short.

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
        return self.shares.control | {one for one in self._open if self._stores.get(one)}

    @property
    def is_marking_due(self) -> bool:
        """Whether connections have opened that the next reading marks."""
        return bool(self._unmarked)

    def hear(self) -> None:
        """Take what the program in the kernel tells."""
        news = [] if self.program is None else self.program.read()
        if any(one.is_open for one in news):
            ports = self.stores()
        else:
            ports = ()
        for connection, is_open, is_marked, is_accepted in news:
            if is_open:
                self._open[connection] = _NOTHING
                self._stores[connection] = (
                    connection.local_port if is_accepted else connection.remote_port
                ) in ports
                if self.marker is not None and not (
                    is_marked and not self.marker.options.needs_socket
                ):
                    self._unmarked.add(connection)
                else:
                    self.marked += is_marked
            else:
                self._open.pop(connection, None)

    def read(self) -> None:
        """Read the list of sockets: correct which connections are open, and add up what they
        carried.

        A connection that the list lacks twice in a row has closed. It may lack one for once,
        because sockets come and go while the kernel writes it. Raise what `listing` raises; then
        nothing has changed.
        """
        # What the program has told before is in the list, unless it has closed since.
        self.hear()
        is_own = self.owner()
        own = [one for one in self.listing.read() if is_own(one)]
        if self.program is None:
            self._unmarked.update(one.connection for one in own if one.connection not in self._open)
        if self.marker is not None and self._unmarked:
            self.marked += self.marker.mark(
                {one.inode for one in own if one.connection in self._unmarked}
            )
            self._unmarked.clear()
        found = {one.connection: one.counters for one in own}
        self._look(found.keys())
        self._add_up(found)
        missing = self._open.keys() - found.keys()
        still = {one: self._open[one] for one in missing - self._missing}
        self._missing = frozenset(still)
        self._open = {one: counters or _NOTHING for one, counters in found.items()} | still

    def _look(self, found: Collection[TcpConnection]) -> None:
        """Tell connections to stores, of which the list does not say who opened them: either end
        may be the store.
        """
        self._stores = {
            one: to for one, to in self._stores.items() if one in found or one in self._open
        }
        if unknown := [one for one in found if one not in self._stores]:
            ports = self.stores()
            self._stores |= {
                one: not {one.local_port, one.remote_port}.isdisjoint(ports) for one in unknown
            }

    def _add_up(self, found: Mapping[TcpConnection, TcpCounters | None]) -> None:
        counted = {
            one: now
            for one, now in found.items()
            if now is not None and self.is_counted(one) and not self._stores.get(one)
        }
        self.shares.observe(counted)
        counted = {one: now for one, now in counted.items() if one not in self.shares.control}
        for connection, now in counted.items():
            before = self._open.get(connection, _NOTHING)
            # A port that is used again begins anew.
            if before.bytes_sent <= now.bytes_sent:
                former = before
            else:
                former = _NOTHING
            self.totals = self.totals.plus(connection.remote, now, former)
        self.since_sent_s = min(_since_sent(counted.values()), default=0.0)


def _since_sent(counters: Iterable[TcpCounters]) -> Iterable[float]:
    return (one.last_sent_ms / 1000 for one in counters if one.bytes_sent)
