"""Single key presses from a terminal."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits up to a number of seconds for a key, and returns it or "". Ctrl-C still interrupts.

    If standard input is not a terminal, the function only waits.
    """
    if not sys.stdin.isatty():
        yield _no_keys
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key(timeout_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        # sys.stdin is not used: its buffer would swallow a second key, which `select` would not see.
        return os.read(descriptor, 1).decode("ascii", "replace") if ready else ""

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _no_keys(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""
