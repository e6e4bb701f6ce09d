"""Settings of an interface that `ip` does not have: offloads, and whether frames pass. They use ioctl(2) on a socket.

The numbers are those of Linux's include/uapi/linux/{sockios,ethtool,if}.h.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from echelon.errors import RunError

_SIOCGIFFLAGS = 0x8913
_SIOCETHTOOL = 0x8946
_IFF_RUNNING = 0x40
_SETTERS = {
    "receive checksum offload": 0x15,
    "transmit checksum offload": 0x17,
    "TCP segmentation offload": 0x1F,
    "generic segmentation offload": 0x24,
    "generic receive offload": 0x2C,
}
"""The ethtool command that sets each offload."""
_UP_S = 5.0
_POLL_S = 0.001


def switch_offloads_off(where: socket.socket, interface: str) -> None:
    """Switch offloads off, so that `interface` sends frames as on a wire: no larger than its MTU, with checksums.

    Raises `RunError`.
    """
    for name, command in _SETTERS.items():
        value = ctypes.create_string_buffer(struct.pack("@II", command, 0))
        request = struct.pack("@16sP", interface.encode(), ctypes.addressof(value))
        try:
            fcntl.ioctl(where, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # the interface has no such offload
                raise RunError(f"interface {interface}: {name} cannot be switched off: {error.strerror}") from None


def switch_ipv6_off(interface: str) -> None:
    """Keep the kernel from sending router solicitations and multicast reports on an interface of this namespace."""
    with suppress(FileNotFoundError):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")


def await_running(where: socket.socket, interface: str) -> None:
    """Wait until frames pass: the kernel (linkwatch) may drop them for up to a second after a link is up.

    Raises `RunError` if that takes too long.
    """
    give_up_at = time.monotonic() + _UP_S
    while not _flags(where, interface) & _IFF_RUNNING:
        if time.monotonic() > give_up_at:
            raise RunError(f"interface {interface}: its link is not up after {_UP_S:g} s (is the machine overloaded?)")
        time.sleep(_POLL_S)


def _flags(where: socket.socket, interface: str) -> int:
    answer = fcntl.ioctl(where, _SIOCGIFFLAGS, struct.pack("16s16x", interface.encode()))
    (flags,) = struct.unpack_from("H", answer, 16)
    return int(flags)
