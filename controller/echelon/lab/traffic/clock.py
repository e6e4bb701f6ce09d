"""The clock by which flows are sent and received. `wire` and `pacing` are given its times and do not read it."""

from __future__ import annotations

import time
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path

NO_CLOCK = 0
"""Stands for the number of an unknown clock."""


def now_ns() -> int:
    """Return CLOCK_MONOTONIC, which all processes of a machine have in common (except across time namespaces)."""
    return time.monotonic_ns()


@cache
def own_clock() -> int:
    """Return a number that identifies this machine's monotonic clock since its start; 0 where the system does not
    tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return NO_CLOCK
    with suppress(OSError):  # A system without time namespaces has one clock.
        boot += Path("/proc/self/timens_offsets").read_bytes()
    return zlib.crc32(boot) or 1
