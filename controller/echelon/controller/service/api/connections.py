"""The connections of clients: how many there may be, and how long a request may take to arrive.

A client needs no token to connect, so connections are limited before any request arrives. Each one
takes a file descriptor of the process, as the sessions with switches and the files of the store do.
Clients that have shown no token are *strangers*. They have a part of the connections, and at a
limit one of theirs makes room for a new one: the one that has been idle, or has left its answer
unread, for longest. So clients that hold connections lock nobody out. Where tokens can be seen,
clients who show one do not stand in line behind strangers either.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from echelon.controller.service import logs
from echelon.controller.service.api.client_connection import ClientConnection, abort
from echelon.controller.service.api.connection_limits import ConnectionLimits
from echelon.controller.service.api.gate import RequestRates
from echelon.controller.service.api.handshake import has_gone, has_opened, open_connection

if TYPE_CHECKING:
    from echelon.controller.service.api.tokens import Authenticator

ACCEPTS_AT_A_TIME = 64
"""Number of connections accepted before other work of the event loop has its turn."""
RETRY_S = 1.0
"""The wait before accepting again after a failure, for example when no descriptors are left."""
STRANGERS_PER_S = 100
"""The most connections of strangers that are served in a second, if a token can be seen before.

The request of a large file takes some milliseconds, and those who connect again and again must
leave the event loop to others.
"""
HANDSHAKES_PER_S = 200
"""The most TLS handshakes that are begun in a second where there are tokens.

Each takes two milliseconds or so.
"""
HANDSHAKES_AT_A_TIME = 256
"""The most TLS handshakes that are under way at a time.

Each takes some 60 kB, and 130 kB with a long ClientHello. At `HANDSHAKES_PER_S` a client has more
than a second for its part, which is several round trips.
"""
DEFER_S = 1
"""The time that the kernel waits for the first bytes of a connection before it hands it over."""
PEEKED_BYTES = 8192

_TOKEN = re.compile(rb"\r\nauthorization:[ \t]*bearer[ \t]+([!-~]+)[ \t]*\r\n", re.IGNORECASE)

log = logs.get("echelon.api")


class _Crowd:
    """Connections by their origin."""

    def __init__(self) -> None:
        self.count = 0
        self._by_origin: defaultdict[str, set[ClientConnection]] = defaultdict(set)

    def connections_from(self, origin: str) -> Collection[ClientConnection]:
        return self._by_origin.get(origin, ())

    def most(self) -> Collection[ClientConnection]:
        """Return the connections of the origin that has most."""
        return max(
            self._by_origin.values(),
            key=len,
            default=(),
        )

    def all(self) -> Collection[ClientConnection]:
        return list(chain.from_iterable(self._by_origin.values()))

    def add(self, connection: ClientConnection) -> None:
        self.count += 1
        self._by_origin[connection.origin].add(connection)

    def discard(self, connection: ClientConnection) -> bool:
        """Remove a connection. Return whether it was there."""
        origin = connection.origin
        connections = self._by_origin.get(origin, set())
        if connection not in connections:
            return False
        self.count -= 1
        connections.remove(connection)
        if not connections:
            del self._by_origin[origin]
        return True


class _Queue:
    """Clients that wait.

    Origins take turns, and the newest client of an origin comes first: whoever waits long is one
    of very many.
    """

    def __init__(self) -> None:
        self._by_origin: dict[str, deque[socket.socket]] = {}
        self.count = 0

    def add(self, accepted: socket.socket, origin: str) -> None:
        self._by_origin.setdefault(origin, deque()).append(accepted)
        self.count += 1

    def next(self) -> tuple[socket.socket, str]:
        """Remove and return the client whose turn it is, and its origin."""
        origin = next(iter(self._by_origin))
        waiting = self._by_origin.pop(origin)
        accepted = waiting.pop()
        # The origin goes to the end of the mapping, where its next turn comes last.
        if waiting:
            self._by_origin[origin] = waiting
        self.count -= 1
        return accepted, origin

    def oldest(self) -> tuple[socket.socket, str]:
        """Remove and return the oldest client of the origin that has most, and that origin."""
        origin = max(self._by_origin, key=self._count_from)
        waiting = self._by_origin[origin]
        accepted = waiting.popleft()
        if not waiting:
            del self._by_origin[origin]
        self.count -= 1
        return accepted, origin

    def _count_from(self, origin: str) -> int:
        return len(self._by_origin[origin])

    def close(self) -> None:
        for accepted in chain.from_iterable(self._by_origin.values()):
            accepted.close()
        self._by_origin.clear()
        self.count = 0


class Listener:
    """A listener that accepts connections on a socket, within limits."""

    def __init__(
        self,
        listening: socket.socket,
        limits: ConnectionLimits,
        connection: Callable[[ConnectionLimits, str], ClientConnection],
        tls: ssl.SSLContext | None,
        tokens: Authenticator | None = None,
    ) -> None:
        """`connection` makes the protocol of a connection from limits and origin.

        Without `tokens` nobody is a stranger.
        """
        self._socket = listening
        self._limits = limits
        if tokens is None:
            self._limits = replace(limits, strangers=1.0)
        self._connection = connection
        self._tls = tls
        self._tokens = tokens
        self._rates = RequestRates()
        self._opening: dict[ClientConnection, asyncio.Task[None]] = {}
        """Connections whose TLS handshake is not over."""
        self._handshakes = _Crowd()
        """The same by origin, if there is TLS."""
        self._strangers = _Crowd()
        """The connections of strangers, also those whose TLS handshake is not over."""
        self._token_holders = _Crowd()
        """The connections of other clients."""
        self._waiting = _Queue()
        """Strangers whose turn comes."""
        self._next: asyncio.TimerHandle | None = None
        """The turn of the next one."""
        self._retry: asyncio.TimerHandle | None = None
        self._sees_tokens = tokens is not None and tls is None
        self._waits_for_tokens = self._sees_tokens and listening.family != socket.AF_UNIX
        """Whether a client that will show a token has shown it before it is accepted."""
        if self._waits_for_tokens:
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DEFER_S)

    def start(self) -> None:
        """Accept connections from now on, on the running event loop."""
        loop = asyncio.get_running_loop()
        # Requests that have arrived are read before a new connection takes the place of an idle
        # one.
        descriptor = self._socket.fileno()
        loop.add_reader(descriptor, loop.call_soon, self._accept)

    def close(self) -> None:
        """Stop accepting, and close connections whose TLS handshake is not over. Idempotent."""
        if self._retry is not None:
            self._retry.cancel()
        if self._socket.fileno() != -1:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
        if self._next is not None:
            self._next.cancel()
        self._waiting.close()
        for task in self._opening.values():
            task.cancel()

    def _accept(self) -> None:
        arrivals = iter(self._arrival, None)
        for accepted, origin in islice(arrivals, ACCEPTS_AT_A_TIME):
            has_token = self._shows_token(accepted)
            if has_token or self._tokens is None:
                if self._make_room(accepted, origin, has_token=has_token):
                    # The descriptor is free in the next turn of the event loop, and not before.
                    break
                continue
            self._waiting.add(accepted, origin)
            if self._waiting.count > self._limits.waiting:
                oldest, oldest_origin = self._waiting.oldest()
                problem = f"{self._limits.waiting} clients that show no token wait"
                self._refuse(oldest, oldest_origin, problem)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve one stranger in each turn of the event loop, which others need, too."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if not self._waiting.count:
            return
        per_s = STRANGERS_PER_S if self._tls is None else HANDSHAKES_PER_S
        delay_s = self._rates.admit("", per_s)
        if not delay_s:
            self._serve_next()
        loop = asyncio.get_running_loop()
        self._next = loop.call_later(delay_s, self._serve_waiting)

    def _serve_next(self) -> None:
        turns = range(min(self._waiting.count, ACCEPTS_AT_A_TIME))
        for _ in turns:
            accepted, origin = self._waiting.next()
            if self._tls is None or not has_gone(accepted):
                self._make_room(accepted, origin, has_token=False)
                break
            accepted.close()

    def _make_room(
        self,
        accepted: socket.socket,
        origin: str,
        *,
        has_token: bool,
    ) -> bool:
        """Serve a connection if there is room. Return whether there was none.

        Then another one was closed for it, or it was refused.
        """
        are_many = self._handshakes.count >= HANDSHAKES_AT_A_TIME
        if are_many:
            oldest = min(self._handshakes.most(), key=_rank_of_ending)
            self._drop(oldest)

        strangers_part = 1.0 if has_token else self._limits.strangers
        rivals = self._rivals(origin, strangers_part)
        if not rivals:
            self._serve(accepted, origin, has_token=has_token)
            return are_many

        ending = [rival for rival in rivals if self._may_end(rival, has_token=has_token)]
        problem = (
            f"{len(rivals)} connections are open (see limits.connections and"
            " connections_per_address)"
        )
        if not ending:
            self._refuse(accepted, origin, problem)
            return True
        idle = min(ending, key=_rank_of_ending)
        # Strangers must not fill the log.
        if not self._rates.admit("closings", 1):
            log.warning(
                "idle connection closed",
                address=idle.origin,
                problem=problem,
            )
        self._drop(idle)
        self._serve(accepted, origin, has_token=has_token)
        return True

    def _may_end(self, rival: ClientConnection, *, has_token: bool) -> bool:
        """Return whether a connection may end for a client that has a token, or has none."""
        if has_token:
            return rival.may_end or not rival.has_token
        if self._waits_for_tokens:
            # A stranger could have shown a token before it was accepted.
            return rival.may_end and not rival.has_token
        return rival.may_end

    def _refuse(
        self,
        accepted: socket.socket,
        origin: str,
        problem: str,
    ) -> None:
        accepted.close()
        # Strangers must not fill the log either.
        if not self._rates.admit("refusals", 1):
            log.warning(
                "connection refused",
                address=origin,
                problem=problem,
            )

    def _arrival(self) -> tuple[socket.socket, str] | None:
        """Accept a connection, and return it with its origin.

        None: there is no connection, or no descriptor for it.
        """
        try:
            accepted, address = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as error:
            descriptor = self._socket.fileno()
            # Else it was closed since the event loop saw the connection.
            if descriptor != -1:
                problem = f"{error.strerror or error} (raise 'ulimit -n')"
                log.error("cannot accept connections", problem=problem)
                loop = asyncio.get_running_loop()
                loop.remove_reader(descriptor)
                self._retry = loop.call_later(RETRY_S, self.start)
            return None
        return accepted, _origin(address)

    def _rivals(self, origin: str, part: float) -> Collection[ClientConnection]:
        """Return the connections of which one must close for another one from `origin`.

        If there are none, none needs to. Strangers may have this `part` of all.
        """
        limits = self._limits
        if origin:
            strangers = self._strangers.connections_from(origin)
            token_holders = self._token_holders.connections_from(origin)
            if len(strangers) + len(token_holders) >= limits.per_address:
                return [*strangers, *token_holders]
            if len(strangers) >= max(1, int(limits.per_address * part)):
                return strangers
        count = self._strangers.count + self._token_holders.count
        if count >= limits.total:
            return [*self._strangers.most(), *self._token_holders.all()]
        most_strangers = max(1, int(limits.total * part))
        if self._strangers.count >= most_strangers:
            return self._strangers.most()
        return ()

    def _shows_token(self, accepted: socket.socket) -> bool:
        """Return whether the first bytes of a connection have a token that is valid.

        The bytes stay to be read.
        """
        if self._tokens is None or not self._sees_tokens:
            return False
        try:
            first_bytes = accepted.recv(PEEKED_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            return False
        match = _TOKEN.search(first_bytes)
        if match is None:
            return False
        token = match[1].decode("ascii")
        return self._tokens.authenticate(token) is not None

    def _drop(self, connection: ClientConnection) -> None:
        self._forget(connection)
        opening = self._opening.get(connection)
        # A task stays in the mapping for a turn of the event loop after it is done.
        if opening is None or has_opened(opening):
            abort(connection.transport)
        else:
            opening.cancel()

    def _forget(self, connection: ClientConnection) -> bool:
        self._handshakes.discard(connection)
        return self._strangers.discard(connection) or self._token_holders.discard(connection)

    def _serve(
        self,
        accepted: socket.socket,
        origin: str,
        *,
        has_token: bool,
    ) -> None:
        connection = self._connection(self._limits, origin)

        def note_token() -> None:
            connection.has_token = True
            if self._strangers.discard(connection):
                self._token_holders.add(connection)

        def end_opening(task: asyncio.Task[None]) -> None:
            del self._opening[connection]
            self._handshakes.discard(connection)
            # A faulty handshake is the client's, and the task may have been cancelled before it
            # began.
            if not has_opened(task):
                self._forget(connection)
                connection.release()
                accepted.close()

        connection.closed = partial(self._forget, connection)
        connection.note_token = note_token
        connection.has_token = has_token
        crowd = self._token_holders if has_token else self._strangers
        crowd.add(connection)
        if self._tls is not None:
            self._handshakes.add(connection)

        opening = asyncio.get_running_loop().create_task(
            open_connection(accepted, connection, self._tls, self._limits.request_s)
        )
        self._opening[connection] = opening
        opening.add_done_callback(end_opening)


def _rank_of_ending(connection: ClientConnection) -> tuple[bool, float]:
    """Return the order in which connections end: strangers first, then the longest idle."""
    return connection.has_token, connection.idle_since


def _origin(address: object) -> str:
    """Return the IPv4 address or the IPv6 /64 network of a peer; empty for a Unix socket."""
    if not isinstance(address, tuple):
        return ""
    host, _, _ = address[0].partition("%")
    peer = ipaddress.ip_address(host)
    if isinstance(peer, ipaddress.IPv4Address):
        return str(peer)
    if peer.ipv4_mapped is not None:
        return str(peer.ipv4_mapped)
    return str(ipaddress.ip_network((peer, 64), strict=False))
