"""Single keys from a terminal."""

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
    """Inside, a function that waits up to so many seconds for a key, and returns it or "". Ctrl-C interrupts as ever.

    Where standard input is no terminal, nobody can press a key: it only waits.
    """
    if not sys.stdin.isatty():
        yield _no_keys
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def key(timeout_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        # Not through sys.stdin: its buffer would swallow a second key, of which `select` knows nothing.
        return os.read(descriptor, 1).decode("ascii", "replace") if ready else ""

    try:
        yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _no_keys(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""
