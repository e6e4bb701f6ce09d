"""Private network namespaces, where the machine allows them."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 60


class Namespace:
    """A network namespace of its own, which ends with the process that holds it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", "print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.prefix = ("nsenter", f"--net={self.path}")
        ipv6 = (  # it would send frames nobody asked for
            "/proc/sys/net/ipv6/conf/default/disable_ipv6"
        )
        self.run(f"ip link set lo up; [ ! -e {ipv6} ] || echo 1 > {ipv6}")

    @property
    def path(self) -> str:
        return f"/proc/{self._holder.pid}/ns/net"

    def run(self, commands: str) -> str:
        """Return the output of shell commands in it."""
        return self._output("sh", "-ec", commands)

    def python(self, script: str, *arguments: str) -> str:
        """Return the output of a Python script in it."""
        return self._output(sys.executable, "-c", script, *arguments)

    def _output(self, *command: str) -> str:
        done = subprocess.run(
            [*self.prefix, *command],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.stdout

    def veth(self, *names: str) -> None:
        """Make a pair NAME, NAME_h of interfaces for each name, both up, without addresses of their
        own.
        """
        for name in names:
            self.run(
                f"ip link add {name} type veth peer name {name}_h; ip link set {name} up; ip link"
                f" set {name}_h up"
            )

    def socket(self, interface: str) -> socket.socket:
        """Return a raw socket on an interface of the namespace."""

        def open_() -> socket.socket:
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            opened.bind((interface, 3))
            opened.settimeout(PATIENCE_S)
            return opened

        opened: socket.socket = self.inside(open_)
        return opened

    def inside(self, function: Callable[[], Any]) -> Any:
        """Call a function in the namespace: sockets that it opens stay there."""
        libc = ctypes.CDLL(None, use_errno=True)
        outer = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inner = os.open(self.path, os.O_RDONLY)
        try:
            assert libc.setns(inner, 0) == 0
            return function()
        finally:
            assert libc.setns(outer, 0) == 0
            os.close(outer)
            os.close(inner)

    def close(self) -> None:
        self._holder.communicate("\n", timeout=PATIENCE_S)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Yield a namespace."""
    network = Namespace()
    try:
        yield network
    finally:
        network.close()
