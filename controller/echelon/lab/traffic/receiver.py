"""One receiving process: it accepts connections, discards what arrives, and answers at the end of each transfer."""

from __future__ import annotations

import errno
import select
import socket
from contextlib import suppress
from dataclasses import dataclass

from echelon.lab.traffic.clock import now_ns, own_clock
from echelon.lab.traffic.wire import Receipt, Reception, WireError

_BUFFER_BYTES = 1 << 20
_READS_AT_ONCE = 4
"""Maximum number of bytes read from one connection before the others have their turn."""


@dataclass(slots=True)
class Received:
    """Counts of one receiver."""

    total_bytes: int = 0
    """Bytes received, headers included, as in a flow's size."""
    transfers: int = 0
    """Whole transfers."""
    broken: int = 0
    """Connections that ended within a transfer, or did not follow the protocol."""

    def add(self, other: Received) -> None:
        self.total_bytes += other.total_bytes
        self.transfers += other.transfers
        self.broken += other.broken


class TrafficReceiver:
    """A server of a listening socket, until `stop_fd` can be read or its other end is closed."""

    def __init__(self, listener: socket.socket, stop_fd: int) -> None:
        self._listener, self._stop_fd = listener, stop_fd
        self._open: dict[int, tuple[socket.socket, Reception]] = {}
        self._buffer = bytearray(_BUFFER_BYTES)
        self._epoll = select.epoll()
        # Read now: later all descriptors may be in use.
        self._clock = own_clock()
        self._full = False
        """Set when no more connections are accepted."""
        self.seen = Received()

    def run(self) -> Received:
        self._listener.setblocking(False)
        listener_fd = self._listener.fileno()
        self._epoll.register(listener_fd, select.EPOLLIN)
        self._epoll.register(self._stop_fd, select.EPOLLIN)
        try:
            while True:
                for fd, _ in self._epoll.poll():
                    if fd == self._stop_fd:
                        return self.seen
                    if fd == listener_fd:
                        self._accept()
                    elif fd in self._open:
                        self._serve(fd)
        finally:
            for connection, _ in self._open.values():
                connection.close()
            self._epoll.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Without descriptors, none can be accepted until a connection ends; otherwise it is gone already.
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._epoll.unregister(self._listener.fileno())
                    self._full = True
                return
            connection.setblocking(False)
            # Keep-alive notices a sender that vanished.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._open[connection.fileno()] = connection, Reception()
            self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _serve(self, fd: int) -> None:
        connection, reception = self._open[fd]
        try:
            for _ in range(_READS_AT_ONCE):
                if not self._read(connection, reception):
                    return
        except BlockingIOError:
            return
        except (OSError, WireError):
            # A sender resets its connections when it has received everything that it waits for.
            self._close(fd, broken=not reception.idle)

    def _read(self, connection: socket.socket, reception: Reception) -> bool:
        """Read once; return whether the connection goes on. Raises `BlockingIOError` when there is nothing more for
        now."""
        wanted = reception.header_wants
        if wanted:
            data = connection.recv(wanted)
            count = len(data)
            whole = reception.take_header(data) if data else False
        else:
            # The kernel drops the bytes instead of copying them.
            count = connection.recv_into(self._buffer, min(reception.left, _BUFFER_BYTES), socket.MSG_TRUNC)
            whole = reception.take(count) if count else False
        if not count:
            self._close(connection.fileno(), broken=not reception.idle)
            return False
        self.seen.total_bytes += count
        if whole:
            self.seen.transfers += 1
            connection.send(Receipt(self._clock, now_ns()).encoded())
        return True

    def _close(self, fd: int, broken: bool) -> None:
        connection, _ = self._open.pop(fd)
        self.seen.broken += broken
        with suppress(OSError):
            self._epoll.unregister(fd)
        connection.close()
        if self._full:
            self._epoll.register(self._listener.fileno(), select.EPOLLIN)
            self._full = False
