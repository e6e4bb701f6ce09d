"""A Unix datagram socket as a port: a switch that needs neither root nor a network interface."""

from __future__ import annotations

import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from softswitch.realtime.port import Obstacle, PortError, send_all

__all__ = ["UnixPort"]

_LARGEST_FRAME = 1 << 16
_BUFFER_BYTES = 4 << 20


class UnixPort:
    """A port whose frames are datagrams.

    It receives those sent to `path`, and sends to `path` + ".peer".

    A socket that a dead process left at `path` is replaced; one that is in use is not.

    Raises:
        PortError: `path` cannot be bound.
    """

    up = True
    lost = 0

    def __init__(self, path: str) -> None:
        self.name = f"unix:{path}"
        self._path = path
        self._peer = path + ".peer"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            _clear(path)
            self._socket.bind(path)
        except OSError as error:
            self._socket.close()
            raise PortError(f"{self.name}: {error.strerror or error}") from None

    @property
    def fd(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def receive(self, limit: int) -> Sequence[bytes]:
        """Return at most `limit` datagrams that have arrived."""
        frames: list[bytes] = []
        receive = self._socket.recv
        try:
            while len(frames) < limit:
                frames.append(receive(_LARGEST_FRAME))
        except OSError:
            pass  # there are no more
        return frames

    def send(self, packets: list[bytes]) -> Obstacle | None:
        """Send frames from the front of the list, removing each one taken.

        Return why the first remaining frame was not taken.
        """
        return send_all(self._send_one, packets)

    def reopen(self) -> bool:
        """Return False, because a socket stays as it is."""
        return False

    def close(self) -> None:
        """Close the socket and remove its name."""
        self._socket.close()
        Path(self._path).unlink(missing_ok=True)

    def _send_one(self, packets: list[bytes]) -> int:
        self._socket.sendto(packets[0], self._peer)
        return 1


def _clear(path: str) -> None:
    """Remove a socket that no process serves."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return  # binding will report that the name is taken
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
