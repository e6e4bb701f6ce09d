"""News of the kernel about network interfaces: come, gone, up, down."""

from __future__ import annotations

import socket

__all__ = ["LinkNews"]

_RTMGRP_LINK = 1


class LinkNews:
    """A netlink socket that becomes readable when anything about any interface has changed.

    What has changed is not read from the messages, which may be lost when many come at once: whoever is woken looks at
    its interfaces.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._socket.bind((0, _RTMGRP_LINK))

    @property
    def fd(self) -> int:
        """The socket."""
        return self._socket.fileno()

    def drain(self) -> bool:
        """Forget the messages; returns whether there were any."""
        news = False
        while True:
            try:
                self._socket.recv(1 << 16)
            except BlockingIOError:
                return news
            except OSError:
                pass  # messages were lost, which is news too
            news = True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
