"""Processes that a run starts: none outlives it, and each leaves its last words in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from echelon.hosts.loop import RealTimeLoop

NICENESS = -10
"""Of what has a machine of its own where this is real, as hosts and switches: how busy the machine is that all of them
share is to show in the times of a run as little as can be."""

_TAIL_BYTES = 4000
_TAIL_LINES = 3


def preferred(niceness: int) -> tuple[str, ...]:
    """Before a command."""
    return ("nice", "-n", str(niceness))


def said(log: Path) -> str:
    """The last lines of a log, as one line."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    except OSError:
        lines = []
    return " | ".join(" ".join(line.split()) for line in lines) or "it says nothing"


def watch_end(loop: RealTimeLoop, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
    """Call `ended` once in `loop` when a child process has ended; returns what gives that up."""
    descriptor = os.pidfd_open(pid)

    def forget() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.on_readable(descriptor, None)
            os.close(descriptor)
            descriptor = -1

    def on_readable() -> None:
        forget()
        ended()

    loop.on_readable(descriptor, on_readable)
    return forget
