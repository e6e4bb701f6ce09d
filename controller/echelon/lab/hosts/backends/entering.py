"""Network namespaces that a thread of its own makes or enters, so that the rest of this process stays where it is."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import RunError
from echelon.netns import enter

_OWN = "/proc/thread-self/ns/net"
_IPV6_SWITCHES = [Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6") for name in ("all", "default")]
"""These files are about the namespace of the thread that opens them."""


@dataclass(frozen=True, slots=True)
class HeldNamespace:
    """A network namespace without IPv6. It exists at least until `close`."""

    descriptor: int
    inside: socket.socket
    """A socket that was made in the namespace. Its ioctls are about the namespace's interfaces."""

    def close(self) -> None:
        self.inside.close()
        os.close(self.descriptor)


def new_namespaces(count: int) -> Sequence[HeldNamespace]:
    """Make `count` network namespaces without names. Raises `RunError`."""
    return _in_new_thread([None] * count)


def entered_namespaces(processes: Iterable[int]) -> Sequence[HeldNamespace]:
    """Return the network namespaces of these processes. Raises `RunError`."""
    return _in_new_thread([f"/proc/{process}/ns/net" for process in processes])


def _in_new_thread(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    with ThreadPoolExecutor(1) as wanderer:
        return wanderer.submit(_visit, paths).result()


def _visit(paths: Sequence[str | None]) -> Sequence[HeldNamespace]:
    held = []
    with ExitStack() as undoing:
        for path in paths:
            try:
                enter(path)
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
