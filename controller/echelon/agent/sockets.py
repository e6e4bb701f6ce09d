"""The TCP sockets of this network namespace, as the kernel lists them to everybody: no capability is needed."""

from __future__ import annotations

import errno
import socket
from types import TracebackType
from typing import Self

from echelon.agent.connection import AgentError
from echelon.agent.sock_diag import SOCK_DIAG, DiagError, TcpSocket, parse, request

_DATAGRAM = 1 << 16
_TIMEOUT_S = 5.0


class SocketList:
    """A reader of the list of sockets; use it as a context manager. Raise `AgentError` where the kernel has none."""

    def __init__(self) -> None:
        try:
            self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, SOCK_DIAG)
            self._netlink.settimeout(_TIMEOUT_S)
        except OSError as error:
            raise AgentError(f"the kernel does not list sockets: {error.strerror} (load inet_diag)") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._netlink.close()

    def read(self) -> list[TcpSocket]:
        """Return all TCP sockets that have a peer and speak IPv4. Raise `AgentError`."""
        try:
            return self._dump(socket.AF_INET) + self._dump(socket.AF_INET6)
        except (OSError, DiagError) as error:
            hint = " (run: modprobe tcp_diag)" if error.errno == errno.ENOENT else ""
            raise AgentError(f"cannot read the list of sockets: {error}{hint}") from None

    def _dump(self, family: int) -> list[TcpSocket]:
        self._netlink.send(request(family))
        found: list[TcpSocket] = []
        done = False
        while not done:
            some, done = parse(self._netlink.recv(_DATAGRAM))
            found += some
        return found
