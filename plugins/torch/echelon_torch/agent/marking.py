"""The options that an agent sets on the sockets of a job, whose programs know nothing of it.

The program in the kernel marks packets as a connection opens, but may not mark sockets that are
open for both IPv4 and IPv6, and sets nothing else. Their owner may set everything. So the agent
borrows the socket from the process that has it (Linux 5.6). This needs CAP_SYS_PTRACE, or the same
user and no more capabilities on the other side.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from echelon.switches.processes import borrowed_socket
from echelon_torch.agent.processes import sockets_of

_ECN = 0b11
_SO_MAX_PACING_RATE = 47


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Options to set on each socket; None: it stays as the program has it."""

    dscp: int | None = None
    window_bytes: int | None = None
    """The most that the other end may have on its way: the receive window."""
    unsent_bytes: int | None = None
    """The unsent bytes in the socket from which the program has to wait (TCP_NOTSENT_LOWAT)."""
    priority: int | None = None
    """The class of the host's own queues (SO_PRIORITY), 0 to 6."""
    pacing_bps: int | None = None
    """The rate at which segments leave at most, in bits a second."""

    @property
    def needs_socket(self) -> bool:
        """Whether there is more to set than the program in the kernel does."""
        options = (self.window_bytes, self.unsent_bytes, self.priority, self.pacing_bps)
        return any(option is not None for option in options)

    def set_on(self, tcp: socket.socket) -> None:
        if self.dscp is not None:
            ecn = tcp.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & _ECN
            tcp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.dscp << 2 | ecn)
        if self.window_bytes is not None:
            # The kernel may raise the clamp again, but no window is larger than its buffer, which
            # does not grow once it was set. Half: the kernel doubles what is asked for.
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.window_bytes // 2)
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, self.window_bytes)
        if self.unsent_bytes is not None:
            tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self.unsent_bytes)
        if self.priority is not None:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, self.priority)
        if self.pacing_bps is not None:
            rate = struct.pack("@L", self.pacing_bps // 8)
            tcp.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)


class Marker:
    """A setter of options of sockets of `processes`, such as those of a control group."""

    def __init__(self, processes: Callable[[], Iterable[int]], options: SocketOptions) -> None:
        self._processes = processes
        self.options = options
        self.refused: str | None = None
        """The message of the kernel when it did not set an option."""

    def mark(self, inodes: Collection[int]) -> int:
        """Set the options of the sockets with these numbers.

        Return of how many; closed ones are left out.
        """
        left = set(inodes)
        count = len(inodes)
        for process in self._processes():
            if not left:
                break
            for descriptor, inode in sockets_of(process):
                # A socket that is gone, or that the kernel does not lend, stays as it is.
                with suppress(OSError):
                    if inode in left:
                        self._mark(process, descriptor)
                        left.discard(inode)
        return count - len(left)

    def _mark(self, process: int, descriptor: int) -> None:
        with borrowed_socket(process, descriptor) as theirs:
            try:
                self.options.set_on(theirs)
            except OSError as error:
                self.refused = error.strerror
                raise
