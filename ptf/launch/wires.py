"""Wires between switch and tests: veth pairs in a private namespace, or Unix sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# When the first process of a PID namespace ends, for whatever reason, the kernel ends all others.
_UNSHARE = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net", "--")
_INSIDE = "ECHELON_PTF_NAMESPACE"


@dataclass(frozen=True, slots=True)
class Wire:
    """One port, with the words for the switch's `-i` and for ptf's `--interface`."""

    port: int
    switch_end: str
    test_end: str


class WiringError(Exception):
    """Wires of this kind cannot be laid here. The text says why and what to do."""


def why_no_veth() -> str:
    """Return why veth pairs cannot be made in a namespace of their own; empty if they can."""
    if in_own_namespace():
        return ""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = subprocess.run(
        [*_UNSHARE, "ip", "link", "add", "type", "veth"], capture_output=True, text=True
    )
    return (probe.stderr.strip() or f"exit status {probe.returncode}") if probe.returncode else ""


def in_own_namespace() -> bool:
    return _INSIDE in os.environ


def enter_own_namespace() -> int:
    """Run this command again in namespaces of its own, and return its exit status."""
    command = [*_UNSHARE, sys.executable, *sys.argv]
    return subprocess.run(command, env={**os.environ, _INSIDE: "1"}).returncode


def lay_veth(ports: Sequence[int]) -> list[Wire]:
    """Make one veth pair for each port, up, without traffic of the kernel's own.

    Raises WiringError.
    """
    wires = [Wire(port, f"switch{port}", f"test{port}") for port in ports]
    _ip("link", "set", "lo", "up")
    for wire in wires:
        _ip("link", "add", wire.switch_end, "type", "veth", "peer", "name", wire.test_end)
        for end in (wire.switch_end, wire.test_end):
            # The kernel's neighbour discovery (IPv6) would look like packets of the switch.
            _ip("link", "set", end, "addrgenmode", "none")
            _ip("link", "set", end, "up")
    return wires


def lay_unix(ports: Sequence[int], directory: Path) -> list[Wire]:
    """Name one socket in `directory` for each port; ptf's platform binds the tests' ends."""
    return [Wire(port, f"unix:{directory}/port{port}", f"{directory}/port{port}") for port in ports]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise WiringError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
