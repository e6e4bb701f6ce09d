"""Network namespaces: threads that enter them, and netlink sockets in them.

A netlink socket belongs to the namespace of the thread that made it, whoever uses it later. So a thread of its own
enters a namespace to make one, and everything else in this process stays where it is.
"""

from __future__ import annotations

import ctypes
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyroute2 import IPRoute  # type: ignore[import-untyped]

_CLONE_NEWNET = 0x40000000
"""Linux, include/uapi/linux/sched.h."""


def enter(path: str | None) -> None:
    """Move the calling thread to the network namespace at `path`, or to a new one if it is None. Raises OSError."""
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

    The caller uses and closes it in this thread, where no event loop may be running. pyroute2 itself would fork this
    process to enter a namespace. Raises OSError.
    """
    from pyroute2 import IPRoute

    def make() -> socket.socket:
        enter(path)
        return netlink_socket()

    if path is None:
        return IPRoute()
    with ThreadPoolExecutor(1) as visitor:
        return IPRoute(fileno=visitor.submit(make).result().detach())
