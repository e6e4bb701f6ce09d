"""The TCP sockets of this network namespace, which the kernel lists without capabilities."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from pyroute2.netlink import (  # type: ignore[import-untyped]
    NLM_F_DUMP,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    nlmsg,
)
from pyroute2.netlink.diag import SOCK_DIAG_BY_FAMILY, MarshalDiag, inet_diag_req  # type: ignore[import-untyped]

from echelon_torch.agent.connection import AgentError, TcpConnection

_SOCK_DIAG = 4
_DATAGRAM = 1 << 16
_TIMEOUT_S = 5.0
_OPEN_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: one side may still send."""
_WITH_COUNTERS = 1 << 1
_MAPPED = bytes(10) + b"\xff\xff"
_INT = struct.Struct("=i")
_HEADER = 16
_INFO = struct.Struct("=44xI52xI24xQ32xQ8xQ8xQQ")
"""The fields of `tcp_info` that `TcpCounters` has; kernels before 4.19 have not all of them."""


@dataclass(frozen=True, slots=True)
class TcpCounters:
    """The kernel's counters of a connection."""

    last_sent_ms: int = 0
    """Milliseconds since data were sent last."""
    retransmissions: int = 0
    """Segments that were sent again."""
    bytes_received: int = 0
    busy_us: int = 0
    """Time with data to send."""
    stalled_us: int = 0
    """Time in which the send buffer was too small to send more."""
    bytes_sent: int = 0
    """Bytes sent, with those that were sent again."""
    bytes_retransmitted: int = 0


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
    """A reader of the list of sockets; use it as a context manager.

    Raise `AgentError` where the kernel has none.

    pyroute2 encodes the request and decodes the answers. Its own description of the answers has
    about a hundred fields; `_Described` has those that are used, which takes half the time.
    """

    def __init__(self) -> None:
        try:
            self._netlink = socket.socket(
                socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG
            )
        except OSError as error:
            raise AgentError(
                f"the kernel does not list sockets: {error.strerror} (load inet_diag)"
            ) from None
        self._netlink.settimeout(_TIMEOUT_S)
        self._answers = MarshalDiag()
        self._answers.msg_map = dict.fromkeys((socket.AF_INET, socket.AF_INET6), _Described)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._netlink.close()

    def read(self) -> list[TcpSocket]:
        """Return all TCP sockets that have a peer and speak IPv4. Raise `AgentError`."""
        sockets: list[TcpSocket] = []
        try:
            for family in (socket.AF_INET, socket.AF_INET6):
                sockets += filter(None, map(_socket, self._dump(family)))
        except OSError as error:
            if error.errno == errno.ENOENT:
                hint = " (run: modprobe tcp_diag)"
            else:
                hint = ""
            raise AgentError(
                f"cannot read the list of sockets: {error.strerror or error}{hint}"
            ) from None
        return sockets

    def _dump(self, family: int) -> Iterator[Any]:
        request = inet_diag_req()
        request.update(
            sdiag_family=family,
            sdiag_protocol=socket.IPPROTO_TCP,
        )
        request.update(
            idiag_ext=_WITH_COUNTERS,
            idiag_states=_OPEN_STATES,
        )
        request["header"].update(
            type=SOCK_DIAG_BY_FAMILY,
            flags=NLM_F_REQUEST | NLM_F_DUMP,
        )
        request.encode()
        self._netlink.send(request.data)
        while True:
            for message in self._answers.parse(self._netlink.recv(_DATAGRAM)):
                kind = message["header"]["type"]
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    (number,) = _INT.unpack_from(message.data, message.offset + _HEADER)
                    raise OSError(-number, os.strerror(-number))
                yield message


class _Described(nlmsg):  # type: ignore[misc]
    """The fields of the kernel's `inet_diag_msg` that are used."""

    fields = (
        ("family", "B"),
        ("_", "3x"),
        ("ports", ">HH"),
        ("source", "16s"),
        ("destination", "16s"),
        ("_", "28x"),
        ("inode", "I"),
    )
    nla_map = ((2, "INET_DIAG_INFO", "cdata"), (21, "INET_DIAG_CGROUP_ID", "uint64"))


def _socket(message: Any) -> TcpSocket | None:
    """Return the socket that a message describes; None: it does not speak IPv4."""
    local = message["source"]
    remote = message["destination"]
    if message["family"] == socket.AF_INET:
        local = local[:4]
        remote = remote[:4]
    elif local.startswith(_MAPPED) and remote.startswith(_MAPPED):
        local = local[len(_MAPPED) :]
        remote = remote[len(_MAPPED) :]
    else:
        return None
    local_ipv4 = socket.inet_ntoa(local)
    remote_ipv4 = socket.inet_ntoa(remote)
    local_port, remote_port = message["ports"]
    connection = TcpConnection(local_ipv4, local_port, remote_ipv4, remote_port)
    attributes = dict(message["attrs"])
    cgroup = attributes.get("INET_DIAG_CGROUP_ID")
    counters = _counters(attributes.get("INET_DIAG_INFO"))
    return TcpSocket(connection, message["inode"], cgroup, counters)


def _counters(info: bytes | None) -> TcpCounters | None:
    if info is None or len(info) < _INFO.size:
        return None
    return TcpCounters(*_INFO.unpack_from(info))
