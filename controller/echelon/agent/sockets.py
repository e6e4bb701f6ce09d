"""The TCP sockets of this network namespace, as the kernel lists them to everybody: no capability is needed."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from echelon.agent.connection import AgentError, TcpConnection

_OPEN_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: one side may still send."""
_WITH_COUNTERS = 1 << 1
_MAPPED = "::ffff:"


@dataclass(frozen=True, slots=True)
class TcpCounters:
    """The kernel's counters of a connection."""

    last_sent_ms: int
    """Milliseconds since data were sent last."""
    retransmissions: int
    """Segments that were sent again."""
    bytes_sent: int
    """Bytes sent, with those that were sent again."""
    bytes_retransmitted: int
    busy_us: int
    """Time with data to send."""
    stalled_us: int
    """Time in which the send buffer was too small to send more."""


@dataclass(frozen=True, slots=True)
class TcpSocket:
    """A TCP socket with a peer."""

    connection: TcpConnection
    inode: int
    cgroup: int | None
    """The number of the cgroup that it was made in; None: the kernel does not say."""
    counters: TcpCounters | None
    """None: the kernel counts nothing, or less than this version needs."""


class SocketList:
    """A reader of the list of sockets; use it as a context manager. Raise `AgentError` where the kernel has none."""

    def __init__(self) -> None:
        from pyroute2 import DiagSocket  # type: ignore[import-untyped]

        try:
            self._diag = DiagSocket()
            self._diag.bind()
        except OSError as error:
            raise AgentError(f"the kernel does not list sockets: {error.strerror} (load inet_diag)") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._diag.close()

    def read(self) -> list[TcpSocket]:
        """Return all TCP sockets that have a peer and speak IPv4. Raise `AgentError`."""
        from pyroute2 import NetlinkError

        try:
            found = [
                one
                for family in (socket.AF_INET, socket.AF_INET6)
                for message in self._diag.get_sock_stats(family, _OPEN_STATES, socket.IPPROTO_TCP, _WITH_COUNTERS)
                if (one := _socket(message)) is not None
            ]
        except (OSError, NetlinkError) as error:
            missing = errno.ENOENT in (getattr(error, "code", None), getattr(error, "errno", None))
            hint = " (run: modprobe tcp_diag)" if missing else ""
            raise AgentError(f"cannot read the list of sockets: {error}{hint}") from None
        return found


def _socket(message: Any) -> TcpSocket | None:
    """Return the socket that a message describes; None: it does not speak IPv4."""
    local, remote = (message[key].removeprefix(_MAPPED) for key in ("idiag_src", "idiag_dst"))
    if ":" in local or ":" in remote:
        return None
    return TcpSocket(
        TcpConnection(local, message["idiag_sport"], remote, message["idiag_dport"]),
        message["idiag_inode"],
        message.get("INET_DIAG_CGROUP_ID"),
        _counters(message.get("INET_DIAG_INFO") or {}),
    )


def _counters(info: Mapping[str, int]) -> TcpCounters | None:
    if "tcpi_bytes_retrans" not in info:
        return None
    return TcpCounters(
        info["tcpi_last_data_sent"],
        info["tcpi_total_retrans"],
        info["tcpi_bytes_sent"],
        info["tcpi_bytes_retrans"],
        info["tcpi_busy_time"],
        info["tcpi_sndbuf_limited"],
    )
