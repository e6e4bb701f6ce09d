"""The send buffers of BMv2's sockets, which bound how deep the queues behind them may be.

BMv2 sends through one packet socket a port. If that socket's buffer filled before the queues behind
it, BMv2 would block, and packets would enter the tree in the order of their arrival, whatever their
level. Who starts a BMv2 borrows its sockets and gives them the buffers that deep queues need
(`enlarge`). Elsewhere they have the machine's default.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from pathlib import Path

from echelon.switches.processes import borrowed_socket

QUEUES = 8
"""Queues of a port, all of which share the port's socket."""
SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
"""Holds the size of a socket's send buffer in bytes."""
_SIOCGIFMTU = 0x8921
"""Linux, include/uapi/linux/sockios.h."""
_SO_SNDBUFFORCE = 32
"""Linux, include/uapi/asm-generic/socket.h."""


def socket_bytes(frame_bytes: int) -> int:
    """Return the bytes that the kernel charges a packet socket for one frame.

    They are a power of two, and a header.
    """
    return (1 << (frame_bytes + 352 - 1).bit_length()) + 256


def send_buffer_bytes() -> int | None:
    """Return the size of the send buffers, or None where the kernel does not tell."""
    try:
        return int(SEND_BUFFER.read_text())
    except (OSError, ValueError):
        return None


def deepest_queue(frame_bytes: int, buffer_bytes: int) -> int:
    """Return how many frames each queue of a port may hold for all to fit the send buffer."""
    return buffer_bytes // (QUEUES * socket_bytes(frame_bytes))


def needed_buffer(frame_bytes: int, depth: int) -> int:
    """Return the size of a send buffer that holds all queues of a port."""
    return QUEUES * depth * socket_bytes(frame_bytes)


def enlarge(process: int, buffer_bytes: int) -> None:
    """Set the send buffers of the packet sockets of a process.

    It takes CAP_NET_ADMIN, and the right to trace the process. Raise `OSError`.
    """
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            theirs = borrowed_socket(process, int(descriptor.name))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EBADF):
                continue  # closed meanwhile, as those of whoever asks whether it answers
            raise
        with theirs:
            if theirs.family == socket.AF_PACKET:
                # The kernel doubles what it is given.
                theirs.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, -(-buffer_bytes // 2))


def mtu_bytes(interface: str) -> int:
    """Return the size of the interface's largest IP packet.

    Raise OSError where there is no such interface.
    """
    # /sys/class/net shows the interfaces of the network namespace in which it was mounted, so it is
    # not used.
    request = struct.pack("16s16x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, request)
    (mtu,) = struct.unpack_from("i", answer, 16)
    return int(mtu)
