"""What `ip` does not do for an interface: offloads, and to tell when frames pass. By ioctl(2) on a socket.

Sources: Linux's include/uapi/linux/{sockios,ethtool,if}.h.
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

from echelon.scenarios.results import RunError

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
"""The ethtool commands that set them."""
_UP_S = 5.0
_POLL_S = 0.001


def switch_offloads_off(where: socket.socket, interface: str) -> None:
    """What `interface` sends are then frames as they would be on a wire: no larger than its MTU, checksums filled in.

    Raises `RunError`.
    """
    for name, command in _SETTERS.items():
        value = ctypes.create_string_buffer(struct.pack("@II", command, 0))
        request = struct.pack("@16sP", interface.encode(), ctypes.addressof(value))
        try:
            fcntl.ioctl(where, _SIOCETHTOOL, request)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # what there is not need not be switched off
                raise RunError(f"interface {interface}: {name} cannot be switched off: {error.strerror}") from None


def switch_ipv6_off(interface: str) -> None:
    """Of this namespace: the kernel's router solicitations and multicast reports are no traffic of the fabric."""
    with suppress(FileNotFoundError):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")


def await_running(where: socket.socket, interface: str) -> None:
    """Until frames pass: for up to a second after both ends of a link are up, the kernel may drop them (linkwatch).

    Raises `RunError` if that does not come.
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
