"""The end of a child process as an event of a loop."""

from __future__ import annotations

import os
from collections.abc import Callable

from echelon.lab.hosts.loop import RealTimeLoop


def watch_end(loop: RealTimeLoop, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
    """Call `ended` once in `loop` when a child process has ended. Return a function that cancels this."""
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
