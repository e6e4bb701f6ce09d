"""The far end of a port `unix:PATH`: frames in and out as datagrams. Standard library only."""

from __future__ import annotations

import socket

TIMEOUT_S = 20.0


class Wire:
    """The other end of the port whose socket is at `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path + ".peer")
        self._socket.settimeout(TIMEOUT_S)

    def send(self, frame: bytes) -> None:
        """Send a frame into the port."""
        self._socket.sendto(frame, self._path)

    def receive(self) -> bytes:
        """Return the next frame that left the port; TimeoutError if none does."""
        return self._socket.recv(65536)


def ethernet(dst: int, src: int = 0x020000000001, kind: int = 0x0800) -> bytes:
    """Return a frame of 60 bytes."""
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + bytes(46)
