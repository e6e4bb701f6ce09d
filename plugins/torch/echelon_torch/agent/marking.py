"""Marks of sockets that are open for both IPv4 and IPv6: no program in the kernel may set them, but their owner may.

The agent borrows the socket from the process that has it (Linux 5.6). This needs CAP_SYS_PTRACE, or the same user and
no more capabilities on the other side.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from echelon_torch.agent.processes import sockets_of

_PIDFD_GETFD = 438
_ECN = 0b11


class Marker:
    """A marker of sockets of the processes in a control group and those below it."""

    def __init__(self, cgroup: Path, dscp: int) -> None:
        self._cgroup = cgroup
        self._tos = dscp << 2
        self._libc = ctypes.CDLL(None, use_errno=True)

    def mark(self, inodes: Collection[int]) -> int:
        """Mark the sockets with these numbers; return how many were marked. Those that have closed are left out."""
        left, count = set(inodes), len(inodes)
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
        pidfd = os.pidfd_open(process)
        try:
            borrowed = self._libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0)
            if borrowed < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
        finally:
            os.close(pidfd)
        with socket.socket(fileno=borrowed) as theirs:
            now = theirs.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)
            theirs.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self._tos | now & _ECN)

    def _processes(self) -> Iterator[int]:
        for directory, _, _ in os.walk(self._cgroup):
            with suppress(OSError):
                yield from map(int, Path(directory, "cgroup.procs").read_text().split())
