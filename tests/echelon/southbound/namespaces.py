"""Network namespaces of their own for tests, where the machine allows them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 30.0


class Namespace:
    """A network namespace, which ends with the process that holds it."""

    def __init__(self, holder: subprocess.Popen[str]) -> None:
        self.path = f"/proc/{holder.pid}/ns/net"

    def run(self, commands: str) -> str:
        """Return the output of shell commands in it."""
        command = ["nsenter", f"--net={self.path}", "sh", "-ec", commands]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout

    def veth(self, *names: str) -> None:
        """Make pairs NAME, NAME_h of interfaces and set them up; only the test sends on them."""
        for name in names:
            self.run(
                f"ip link add {name} type veth peer name {name}_h; "
                f"for i in {name} {name}_h; do "
                "if [ -e /proc/sys/net/ipv6/conf/$i/disable_ipv6 ]; then "
                "echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; fi; ip link set $i up; done"
            )

    def python(self, script: str, *arguments: str) -> str:
        """Return the output of a Python script in it."""
        command = ["nsenter", f"--net={self.path}", sys.executable, "-c", script, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout


@contextmanager
def namespace() -> Iterator[Namespace]:
    holder = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield Namespace(holder)
    finally:
        holder.communicate("\n", timeout=PATIENCE_S)
