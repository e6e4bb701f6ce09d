"""The kernel's news of network interfaces: added, removed, up, down."""

from __future__ import annotations

import socket

__all__ = ["LinkNews"]

_RTMGRP_LINK = 1


class LinkNews:
    """A netlink socket that becomes readable when anything about any interface has changed.

    The messages themselves are not read, because some may be lost when many come at once. The
    reader checks its interfaces instead.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.bind((0, _RTMGRP_LINK))

    @property
    def fd(self) -> int:
        """Return the socket's file descriptor."""
        return self._socket.fileno()

    def drain(self) -> bool:
        """Discard the messages; return whether there were any."""
        news = False
        while True:
            try:
                self._socket.recv(1 << 16)
            except BlockingIOError:
                return news
            except OSError:
                pass  # lost messages are news, too
            news = True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
