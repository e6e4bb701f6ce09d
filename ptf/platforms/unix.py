"""ptf platform "unix": ports are Unix datagram sockets, so that neither root nor interfaces are
needed.

With `--interface PORT@PATH`, frames for a port go to the switch's socket at PATH. Frames from the
switch arrive at PATH.peer, which is bound here.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

from ptf.dataplane import (  # type: ignore[import-untyped]
    DataPlanePacketSourceIface,
    DataPlanePortIface,
)

_BUFFER_BYTES = 1 << 22
_LONGEST_FRAME_BYTES = 1 << 16


class UnixPort(DataPlanePortIface, DataPlanePacketSourceIface):  # type: ignore[misc]
    """The other end of one port of the switch."""

    def __init__(self, path: str, device: int, port: int, config: object = None) -> None:
        self._device, self._port, self._path = device, port, path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        here = Path(path + ".peer")
        here.unlink(missing_ok=True)
        self._socket.bind(str(here))

    def fileno(self) -> int:
        return self._socket.fileno()

    def get_packet_source(self) -> UnixPort:
        return self

    def send(self, packet: bytes) -> int:
        return self._socket.sendto(packet, self._path)

    def recv(self) -> tuple[int, int, bytes, float]:
        return self._device, self._port, self._socket.recv(_LONGEST_FRAME_BYTES), time.time()


def platform_config_update(config: dict[str, Any]) -> None:
    """Tell ptf, whose hook this is, the ports and their class."""
    config["port_map"] = {(device, port): path for device, port, path in config["interfaces"]}
    config["dataplane"] = {"portclass": UnixPort}
