"""Linux for processes: children that end with their parent, sockets, network namespaces.

Options of sockets are those that the `socket` module does not name (from <asm-generic/socket.h>,
<linux/in.h>, <linux/tcp.h>). A netlink socket belongs to the namespace of the thread that made it,
whoever uses it later. So a thread of its own enters a namespace to make one, and everything else in
this process stays where it is.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute2 import IPRoute  # type: ignore[import-untyped]

DIES_WITH_CALLER = ("setpriv", "--pdeathsig", "KILL", "--")
"""Words to put before a command: the kernel kills it when the thread that started it ends."""

NICENESS = -10
"""The niceness of processes that have a machine of their own in reality, such as switches and
hosts: how busy the shared machine is should show in the times of a run as little as possible."""

_TAIL_BYTES = 4000
_TAIL_LINES = 3
_HOLDERS_AT_MOST = 1000
_port_holders: list[socket.socket] = []


def dies_with_this(signal: str = "KILL") -> tuple[str, ...]:
    """Return the words to put before a command that gets this signal when this thread ends.

    It ends too where the thread ended before the kernel knew of the wish. Call it in the thread
    that starts the command.
    """
    watched = ("setpriv", "--pdeathsig", signal, "--")
    # By then this process may be another one's child.
    unless_orphaned = ("sh", "-c", 'test "$PPID" = "$0" && exec "$@"', str(os.getpid()))
    return (*watched, *unless_orphaned)


def preferred(niceness: int) -> tuple[str, ...]:
    """Return the words to put before a command to run it with this niceness."""
    return ("nice", "-n", str(niceness))


def start(
    command: Sequence[str | Path],
    log: Path,
    mode: str = "wb",
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a process that writes to `log`, and reads nothing unless `options` give it a `stdin`.

    It is in a group of its own: Ctrl-C in a terminal must not end it before its users.
    """
    with log.open(mode) as output:
        return subprocess.Popen(
            command,
            **{"stdin": subprocess.DEVNULL, **options},
            stdout=output,
            stderr=output,
            process_group=0,
        )


def last_words(log: Path) -> str:
    """Return the last lines of a log as one line."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            tail = stream.read().decode(errors="replace")
    except OSError:
        tail = ""
    lines = [" ".join(line.split()) for line in tail.strip().splitlines()]
    return " | ".join(lines[-_TAIL_LINES:]) or "it says nothing"


def free_port() -> int:
    """Return a free TCP port of the loopback interface that nobody else is given.

    A socket that never listens holds the port: the kernel then gives it to no connection and to no
    other process, also while a server is down between two starts. Servers bind it all the same, as
    they reuse addresses (SO_REUSEADDR), and who connects to it without a server is refused.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _port_holders.append(holder)
    if len(_port_holders) > _HOLDERS_AT_MOST:
        _port_holders.pop(0).close()
    return int(holder.getsockname()[1])


@atexit.register
def _close_port_holders() -> None:
    for holder in _port_holders:
        holder.close()


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


_PIDFD_GETFD = 438
"""The number of the system call, on all architectures; Linux has it from 5.6 on."""


def borrowed_socket(process: int, descriptor: int) -> socket.socket:
    """Return a socket that another process has open.

    What is set on it is set for both. Raises OSError.
    """
    pidfd = os.pidfd_open(process)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        borrowed = libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
        if borrowed < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "pidfd_getfd")
    finally:
        os.close(pidfd)
    return socket.socket(fileno=borrowed)


_CLONE_NEWNET = 0x40000000
"""Linux, include/uapi/linux/sched.h."""


def enter(path: str | None) -> None:
    """Move the calling thread to the network namespace at `path`, or to a new one if it is None.

    Raises OSError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if path is None:
        failed = libc.unshare(_CLONE_NEWNET)
    else:
        descriptor = os.open(path, os.O_RDONLY)
        failed = libc.setns(descriptor, _CLONE_NEWNET)
        os.close(descriptor)
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def netlink_socket() -> socket.socket:
    """Return a routing netlink socket in the network namespace of the calling thread."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, socket.NETLINK_ROUTE)


def open_netlink(path: str | None = None) -> IPRoute:
    """Return a netlink client in the network namespace at `path`, or in the caller's if it is None.

    The caller uses and closes it in this thread, where no event loop may be running. pyroute2
    itself would fork this process to enter a namespace. Raises OSError.
    """
    from pyroute2 import IPRoute

    def make() -> socket.socket:
        enter(path)
        return netlink_socket()

    if path is None:
        return IPRoute()
    with ThreadPoolExecutor(1) as visitor:
        return IPRoute(fileno=visitor.submit(make).result().detach())
