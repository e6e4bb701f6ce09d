"""Network namespaces, made or entered by a thread of their own: what else runs in this process stays where it is."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from echelon.scenarios.results import RunError

_CLONE_NEWNET = 0x40000000
_OWN = "/proc/thread-self/ns/net"
_IPV6_SWITCHES = [Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6") for name in ("all", "default")]
"""Of the namespace of the thread that opens them."""


@dataclass(frozen=True, slots=True)
class HeldNamespace:
    """A network namespace, without IPv6, which exists at least until `close`."""

    descriptor: int
    inside: socket.socket
    """A socket that was made in it: ioctls on it are about its interfaces."""

    def close(self) -> None:
        self.inside.close()
        os.close(self.descriptor)


def new_namespaces(count: int) -> Sequence[HeldNamespace]:
    """So many network namespaces without a name. Raises `RunError`."""
    return _in_new_thread([None] * count)


def entered_namespaces(processes: Iterable[int]) -> Sequence[HeldNamespace]:
    """Those that `processes` are in. Raises `RunError`."""
    return _in_new_thread([f"/proc/{process}/ns/net" for process in processes])


def _in_new_thread(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    with ThreadPoolExecutor(1) as wanderer:
        return wanderer.submit(_visit, paths).result()


def _visit(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    libc = ctypes.CDLL(None, use_errno=True)
    held = []
    with ExitStack() as undoing:
        for path in paths:
            try:
                if path is None:
                    failed = libc.unshare(_CLONE_NEWNET)
                else:
                    descriptor = os.open(path, os.O_RDONLY)
                    failed = libc.setns(descriptor, _CLONE_NEWNET)
                    os.close(descriptor)
                if failed:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                for switch in _IPV6_SWITCHES:
                    with suppress(FileNotFoundError):
                        switch.write_text("1")
                namespace = HeldNamespace(os.open(_OWN, os.O_RDONLY), socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            except OSError as error:
                verb = "made" if path is None else "entered"
                raise RunError(f"a network namespace cannot be {verb}: {error.strerror} (run it as root)") from None
            undoing.callback(namespace.close)
            held.append(namespace)
        undoing.pop_all()
    return held
