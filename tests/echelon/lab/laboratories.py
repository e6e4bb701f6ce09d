"""Laboratories that tests start, and what has to be gone when they end."""

from __future__ import annotations

import os
import select
from pathlib import Path

PATIENCE_S = 120.0


def environment_in(temporary: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TMPDIR": str(temporary),
        "SHELL": "/bin/sh",
        "TERM": "dumb",
        "PS1": "ready> ",
    }


def descendants(process: int) -> list[int]:
    """Return the process ids of all descendants."""
    found = []
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []
    for child in children:
        found += [child, *descendants(child)]
    return found


def held(processes: list[int]) -> list[int]:
    """Return descriptors of those that still run."""
    out = []
    for process in processes:
        try:
            out.append(os.pidfd_open(process))
        except ProcessLookupError:
            continue
    return out


def await_ends(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with os.fdopen(descriptor):
            assert select.select([descriptor], [], [], PATIENCE_S)[0], (
                "a process of the laboratory is left"
            )
