"""Socket options that the `socket` module does not name (from <asm-generic/socket.h>, <linux/in.h>, <linux/tcp.h>)."""

from __future__ import annotations

import socket

SO_NO_CHECK = 11
"""Send UDP datagrams without a checksum."""
SO_MAX_PACING_RATE = 47
"""Maximum pacing rate, bytes per second."""
IP_MTU_DISCOVER = 10
IP_PMTUDISC_DO = 2
"""Do not fragment."""
TCP_NOTSENT_LOWAT = 25
"""The socket is writable while less than this waits to be sent."""
ECT0 = 0b10
"""Value of IP_TOS for ECN-capable packets (RFC 3168)."""

_SO_RCVBUFFORCE = 33


def set_receive_buffer(sock: socket.socket, size_bytes: int) -> None:
    """Set the receive buffer to that size if permitted, else to as much as the system allows."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes)
    except PermissionError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size_bytes)
