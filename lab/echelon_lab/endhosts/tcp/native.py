"""TCP connections with both ends in C (tcp.c), for hosts whose network is in C.

They send the same packets as `sender` and `stack`, many times as fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from echelon.model.fabric.model import Host
from echelon_lab.endhosts.native import NativeEnds, load_ends, network_in_c, not_null
from echelon_lab.endhosts.tcp.frames import MAX_WINDOW_SCALE, window_scale
from echelon_lab.endhosts.tcp.newreno import INITIAL_NS, MAX_NS
from echelon_lab.endhosts.tcp.sender import MAX_TIMEOUTS, TcpSettings, TcpTally

TcpCounters = Any
"""The counters of connections: a `TcpTally`, or in C an array, in the order of its fields."""


@cache
def _library() -> Any:
    numbers = {
        "MAX_WINDOW_SCALE": MAX_WINDOW_SCALE,
        "INITIAL_NS": INITIAL_NS,
        "MAX_NS": MAX_NS,
        "MAX_TIMEOUTS": MAX_TIMEOUTS,
    }
    return load_ends(Path(__file__).parent / "tcp.c", numbers)


class NativeTcp:
    """The ends of TCP connections at all hosts of a network in C."""

    def __init__(self, ends: NativeEnds, hosts: Mapping[str, Host]) -> None:
        self._ffi, self.library, _ = _library()
        ffi = self._ffi
        network = ends.network
        run = self.library.tcp_new(
            network_in_c(ffi, network.clock), network.when_told(self._on_told, once=False)
        )
        self.run = ffi.gc(not_null(run), self.library.tcp_free)
        """The structure in C."""
        self._notice = self.library.tcp_told(self.run)
        self._connections: dict[int, NativeConnection] = {}
        self._settings: dict[TcpSettings, Any] = {}
        self._hosts: dict[str, Any] = {}
        deliver = self._address(ffi.addressof(self.library, "tcp_deliver"))
        for name, host in hosts.items():
            nic = ffi.cast("void *", network.nic(name))
            mac = bytes.fromhex(host.mac.replace(":", ""))
            ipv4 = IPv4Address(host.ipv4).packed
            in_c = not_null(self.library.tcp_add_host(self.run, nic, mac, ipv4))
            self._hosts[name] = in_c
            ends.pass_on(name, deliver, self._address(in_c))

    def has(self, between: tuple[str, str], ports: tuple[int, int]) -> bool:
        """Return whether there is a connection between these ports of two hosts."""
        src, dst = (self._hosts[host] for host in between)
        return bool(self.library.tcp_is_taken(src, dst, *ports))

    def connect(
        self,
        between: tuple[str, str],
        ports: tuple[int, int],
        settings: TcpSettings,
        counters: TcpCounters,
        on_lost: Callable[[], None],
        on_gone: Callable[[], None] | None = None,
    ) -> NativeConnection:
        """Return a connection, as `echelon_lab.endhosts.tcp.stack.Connection`, that is not open."""
        src, dst = between
        # Kept here, because connections in C point to them.
        in_c = self._settings.get(settings)
        if in_c is None:
            in_c = self._settings[settings] = self._new_settings(settings)
        source = self._hosts[src]
        number = self.library.tcp_connect(source, self._hosts[dst], *ports, in_c, counters)
        if not number:
            raise MemoryError
        connection = self._connections[number] = NativeConnection(self, number, on_lost, on_gone)
        return connection

    def close(self) -> None:
        """Let all hosts fall silent."""
        self.library.tcp_silence(self.run)

    def _new_settings(self, settings: TcpSettings) -> Any:
        factor = settings.aggressiveness
        fields: dict[str, float] = {
            "mss_bytes": settings.mss_bytes,
            "min_rto_ns": settings.min_rto_ns,
            "receive_window_bytes": settings.receive_window_bytes,
            "delayed_ack_ns": settings.delayed_ack_ns,
            "window_scale": window_scale(settings.receive_window_bytes),
            "ecn": settings.ecn,
            "is_mltcp": factor is not None,
        }
        if factor is not None:
            fields |= {
                "iteration_bytes": factor.iteration_bytes,
                "slope": factor.slope,
                "intercept": factor.intercept,
            }
        return self._ffi.new("tcp_settings *", fields)

    def new_counters(self) -> TcpCounters:
        """Return counters, for `tally_of`."""
        return self._ffi.new("uint64_t[]", self.library.TALLIES)

    def _on_told(self) -> None:
        notice = self._notice
        number = notice.connection
        if notice.has_ended:
            self._connections.pop(number).end(notice.received_bytes, notice.is_lost)
        else:
            self._connections[number].receive(notice.received_bytes)

    def _address(self, pointer: Any) -> int:
        return int(self._ffi.cast("uintptr_t", pointer))


class NativeConnection:
    """A connection; see `echelon_lab.endhosts.tcp.stack.Connection`."""

    __slots__ = (
        "_awaited",
        "_library",
        "_number",
        "_on_gone",
        "_on_lost",
        "_received_bytes",
        "_run",
        "_written",
    )

    def __init__(
        self,
        tcp: NativeTcp,
        number: int,
        on_lost: Callable[[], None],
        on_gone: Callable[[], None] | None,
    ) -> None:
        self._library = tcp.library
        self._run = tcp.run
        self._number = number
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._awaited: deque[tuple[int, Callable[[], None]]] = deque()
        """Pairs of (bytes, what to call when they have been received), ascending."""
        self._written = 0
        # Only in the end: until then C knows it.
        self._received_bytes: int | None = None

    @property
    def received_bytes(self) -> int:
        if self._received_bytes is not None:
            return self._received_bytes
        return int(self._library.tcp_received(self._run, self._number))

    def open(self) -> None:
        """Begin with a handshake."""
        self._library.tcp_open(self._run, self._number)

    def establish(self) -> None:
        """Begin as if the handshake had been before time began."""
        self._library.tcp_establish(self._run, self._number)

    def write(self, length_bytes: int, on_received: Callable[[], None] | None = None) -> None:
        """Write `length_bytes` more.

        Call `on_received` when they and all bytes before them have arrived.
        """
        self._written += length_bytes
        if on_received is not None:
            self._awaited.append((self._written, on_received))
            # C tells of one position at a time, the next.
            if len(self._awaited) == 1:
                self._await()
        self._library.tcp_write(self._run, self._number, length_bytes, False)

    def close(self) -> None:
        """Close: nothing more will be written.

        When all is acknowledged, the connection is gone at both ends.
        """
        self._library.tcp_write(self._run, self._number, 0, True)

    def receive(self, received_bytes: int) -> None:
        """Take note that so many bytes have arrived, and that some were waited for."""
        awaited = self._awaited
        while awaited and awaited[0][0] <= received_bytes:
            awaited.popleft()[1]()
        if awaited:
            self._await()

    def end(self, received_bytes: int, is_lost: bool) -> None:
        """Take note that the connection is gone."""
        self._received_bytes = received_bytes
        if self._on_gone is not None:
            self._on_gone()
        if is_lost:
            self._on_lost()

    def _await(self) -> None:
        position, _ = self._awaited[0]
        self._library.tcp_await(self._run, self._number, position)


def tally_of(counters: TcpCounters) -> TcpTally:
    """Return the counts of connections, which may be in C."""
    if isinstance(counters, TcpTally):
        return counters
    return TcpTally(*map(int, counters))
