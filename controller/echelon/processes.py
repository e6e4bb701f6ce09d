"""Child processes: none outlives its parent, and each leaves its last words in a log file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

DIES_WITH_CALLER = ("setpriv", "--pdeathsig", "KILL", "--")
"""Words to put before a command: the kernel kills it when the thread that started it ends."""

NICENESS = -10
"""The niceness of processes that have a machine of their own in reality, such as switches and hosts: how busy the
shared machine is should show in the times of a run as little as possible."""

_TAIL_BYTES = 4000
_TAIL_LINES = 3
_given_out: set[int] = set()


def preferred(niceness: int) -> tuple[str, ...]:
    """Return the words to put before a command to run it with this niceness."""
    return ("nice", "-n", str(niceness))


def said(log: Path) -> str:
    """Return the last lines of a log as one line."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    except OSError:
        lines = []
    return " | ".join(" ".join(line.split()) for line in lines) or "it says nothing"


def free_port() -> int:
    """Return a free TCP port of the loopback interface, a different one at each call in this process."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given_out:
            _given_out.add(port)
            return port
