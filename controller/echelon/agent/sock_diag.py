"""Messages of the kernel's socket diagnostics (`inet_diag`): the request for all TCP sockets, and what answers it.

Nothing here opens a socket. Layouts: Linux, include/uapi/linux/{netlink,sock_diag,inet_diag,tcp}.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from echelon.agent.connection import TcpConnection

SOCK_DIAG = 4
"""The netlink protocol NETLINK_SOCK_DIAG."""

_BY_FAMILY = 20
_ERROR, _DONE = 2, 3
_REQUEST_DUMP = 0x301
_INFO, _CGROUP_ID = 2, 21
_OPEN_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8
"""ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT: one side may still send."""
_MAPPED = bytes(10) + b"\xff\xff"

_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=4B2s2s16s16s12sIIIII")
_ATTRIBUTE = struct.Struct("=HH")
_TCP_INFO = struct.Struct("=44xI52xI16xQ40xQ8xQ8xQQ")


class DiagError(Exception):
    """The kernel refuses the request, or its answer is not understood."""

    def __init__(self, reason: str, number: int = 0) -> None:
        super().__init__(reason)
        self.errno = number


@dataclass(frozen=True, slots=True)
class TcpCounters:
    """The kernel's counters of a connection."""

    last_sent_ms: int
    """Milliseconds since data were sent last."""
    retransmissions: int
    """Segments that were sent again."""
    bytes_acked: int
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


def request(family: int) -> bytes:
    """Return the message that asks for all open TCP sockets of a family, with their counters."""
    body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _OPEN_STATES)
    return _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 0, 0) + body


def parse(data: bytes) -> tuple[list[TcpSocket], bool]:
    """Return the sockets that a datagram describes, and whether it is the last one. Raise `DiagError`."""
    found: list[TcpSocket] = []
    for kind, start, end in _messages(data):
        if kind == _DONE:
            return found, True
        if kind == _ERROR:
            number = -struct.unpack_from("=i", data, start)[0] if end - start >= 4 else 0
            raise DiagError(f"the kernel refuses the list of sockets (error {number})", number)
        if kind == _BY_FAMILY:
            one = _socket(data, start, end)
            if one is not None:
                found.append(one)
    return found, False


def _messages(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each message, and where its body starts and ends."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise DiagError("a message of the kernel is cut short")
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            raise DiagError(f"a message of the kernel has the impossible length {length}")
        yield kind, at + _HEADER.size, at + length
        at += length + 3 & ~3


def _socket(data: bytes, start: int, end: int) -> TcpSocket | None:
    """Return the socket; None: it does not speak IPv4."""
    if end - start < _MESSAGE.size:
        raise DiagError("a description of a socket is cut short")
    family, _, _, _, source_port, destination_port, source, destination, _, *numbers = _MESSAGE.unpack_from(data, start)
    if family == socket.AF_INET:
        local, remote = source[:4], destination[:4]
    elif source.startswith(_MAPPED) and destination.startswith(_MAPPED):
        local, remote = source[12:], destination[12:]
    else:
        return None
    cgroup: int | None = None
    counters: TcpCounters | None = None
    at = start + _MESSAGE.size
    while at + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > end:
            raise DiagError(f"an attribute of a socket has the impossible length {length}")
        if kind == _CGROUP_ID and length == _ATTRIBUTE.size + 8:
            (cgroup,) = struct.unpack_from("=Q", data, at + _ATTRIBUTE.size)
        elif kind == _INFO and length >= _ATTRIBUTE.size + _TCP_INFO.size:
            sent_ms, again, acked, busy, stalled, sent, resent = _TCP_INFO.unpack_from(data, at + _ATTRIBUTE.size)
            counters = TcpCounters(sent_ms, again, acked, sent, resent, busy, stalled)
        at += length + 3 & ~3
    connection = TcpConnection(
        socket.inet_ntoa(local),
        int.from_bytes(source_port, "big"),
        socket.inet_ntoa(remote),
        int.from_bytes(destination_port, "big"),
    )
    return TcpSocket(connection, numbers[-1], cgroup, counters)
