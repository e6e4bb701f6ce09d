"""The links of emulated hosts, as sockets that carry frames in real time."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from echelon.model.fabric.model import Fabric
from echelon.switches.processes import enter, set_receive_buffer
from echelon.switches.targets.virtual import Urgency
from echelon_lab.hosts.backends.base import NamespaceFabric
from echelon_lab.hosts.backends.interfaces import Batch, run_batch
from echelon_lab.hosts.loop import RealTimeLoop

_NS_PER_S = 1_000_000_000
_ETH_P_IP = 0x0800
_LARGEST_FRAME = 1 << 16
_BUFFER_BYTES = 4 << 20
_BATCH = 64
"""Frames taken in a row before timers have their turn."""
_RETRY_NS = 200_000
"""The wait after which a full socket is tried again: two frames of a link of 100 Mbit/s."""
_FULL = (errno.EAGAIN, errno.ENOBUFS)
_PORTS_WITHOUT_ANSWER = (0xEF10, 9, 4791)
"""The UDP ports of the shim, of background traffic and of RoCE."""
_TCP_WITHOUT_ANSWER = "rule add pref 1 ipproto tcp blackhole"
"""The kernel would reset connections that it does not know."""


@dataclass(frozen=True, slots=True)
class WireEnd:
    """The host's end of a link: a socket that is open in the process that was given it."""

    host: str
    switch: str
    descriptor: int
    address: str | None = None
    """The address to which frames go; None: the socket is bound to an interface."""


def unix_ends(
    fabric: Fabric,
    directory: Path,
    closing: ExitStack,
) -> tuple[WireEnd, ...]:
    """Return the ends of links that are Unix datagram sockets in `directory`.

    `closing` closes them.
    """
    ends = []
    for host in fabric.hosts:
        for switch in fabric.ports[host].values():
            sock = closing.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            path = directory / f"{switch}-{host}"
            sock.bind(f"{path}.peer")
            ends.append(WireEnd(host, switch, sock.fileno(), str(path)))
    return tuple(ends)


def packet_ends(
    fabric: Fabric,
    hosts: NamespaceFabric,
    closing: ExitStack,
) -> tuple[WireEnd, ...]:
    """Return the ends of links that are interfaces in the namespaces of hosts.

    The kernel of a host sees the frames, too, and must not answer them. Therefore it sends no TCP
    itself, and has sockets that nobody reads. `closing` closes the sockets. Raise `RunError`.
    """
    ends = []
    for host in fabric.hosts:
        descriptor = hosts.descriptor(host)
        run_batch(Batch([_TCP_WITHOUT_ANSWER], f"host {host}", descriptor))
        with ThreadPoolExecutor(1) as visitor:
            opened = visitor.submit(_open_inside, descriptor, hosts.host_interface(host)).result()
        for sock in opened:
            closing.enter_context(sock)
        (switch,) = fabric.ports[host].values()
        ends.append(WireEnd(host, switch, opened[0].fileno()))
    return tuple(ends)


def _open_inside(descriptor: int, interface: str) -> Sequence[socket.socket]:
    """Return a socket for the frames of an interface of a namespace, and those that are silent.

    It moves the calling thread to the namespace.
    """
    enter(f"/proc/self/fd/{descriptor}")
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    set_receive_buffer(wire, _BUFFER_BYTES)
    wire.bind((interface, _ETH_P_IP))
    opened = [wire]
    for port in _PORTS_WITHOUT_ANSWER:
        # Nobody reads it. Without it, the kernel would answer that the port cannot be reached.
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind(("", port))
        opened.append(silent)
    return opened


class Wire:
    """A link of a host, whose frames leave at no more than `rate_bps`.

    In real time a call may come late. Frames that wait then catch up. Frames for a switch that is
    gone are lost.
    """

    def __init__(
        self,
        loop: RealTimeLoop,
        sock: socket.socket,
        address: str | None,
        rate_bps: int,
        deliver: Callable[[int, bytes], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._socket.setblocking(False)
        self._address = address
        self._rate_bps = rate_bps
        self._deliver = deliver
        self._waiting: deque[bytes] = deque()
        self._free_ns = 0
        loop.on_readable(sock.fileno(), self._on_readable)

    def send(self, data: bytes, _urgency: Urgency | None = None) -> None:
        """Send a frame when the frames before it have had their time."""
        self._waiting.append(data)
        if len(self._waiting) == 1:
            self._free_ns = max(self._free_ns, self._loop.now_ns)
            self._resume()

    def _resume(self) -> None:
        now_ns = self._loop.now_ns
        while self._waiting and self._free_ns <= now_ns:
            frame = self._waiting[0]
            if not self._is_taken(frame):
                self._loop.call_at(now_ns + _RETRY_NS, self._resume)
                return
            self._waiting.popleft()
            self._free_ns += len(frame) * 8 * _NS_PER_S // self._rate_bps
        if self._waiting:
            self._loop.call_at(self._free_ns, self._resume)

    def _is_taken(self, frame: bytes) -> bool:
        """Send a frame; return False if it has to be offered again."""
        try:
            if self._address is None:
                self._socket.send(frame)
            else:
                self._socket.sendto(frame, self._address)
        except OSError as error:
            # Otherwise the switch is gone, or the interface down.
            return error.errno not in _FULL
        return True

    def _on_readable(self) -> None:
        receive = self._socket.recv
        for _ in range(_BATCH):
            try:
                frame = receive(_LARGEST_FRAME)
            except OSError:
                return
            self._deliver(self._loop.now_ns, frame)
