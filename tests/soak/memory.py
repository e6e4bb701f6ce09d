"""The memory of this process and of others."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from pathlib import Path

FLAT = 0.05
"""Growth, as a share, up to which memory counts as flat."""

LEAK = 0.5
"""Objects kept per packet from which something is taken to leak: a leak keeps one or more; entries
that change, few.
"""

GROWTH = 1.25
"""The memory of a service at the end may be so many times that after a fifth of the run."""

_ROLLUP = Path("/proc/self/smaps_rollup")


def resident_bytes() -> int:
    """Return the bytes of this process in main memory. 0 where the system does not tell (no /proc).

    Garbage is collected first, and what the C library keeps of freed memory is given back: how much
    that is depends on how full queues have been, and would hide what is in use.
    """
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    found = (
        re.search(r"^Rss:\s+(\d+) kB", _ROLLUP.read_text(), re.MULTILINE)
        if _ROLLUP.exists()
        else None
    )
    return int(found[1]) * 1024 if found else 0


def bytes_of_process(pid: int) -> int:
    """Return the bytes of any process in main memory, as they are."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def memory_faults(early: int, late: int) -> list[str]:
    """Return a sentence if the memory of a service has grown too much between, none otherwise."""
    if late > early * GROWTH:
        return [f"memory grew from {early >> 20} to {late >> 20} MB"]
    return []


def objects() -> int:
    """Return the blocks of memory that Python objects hold, after garbage is collected: exact,
    where resident memory is coarse.
    """
    gc.collect()
    return sys.getallocatedblocks()


def growth(before: float, after: float) -> float:
    """Return the share by which memory grew; negative if it shrank, 0 where it is not known."""
    return (after - before) / before if before else 0.0
