"""The processes that a service starts for work that takes long."""

from __future__ import annotations

from pathlib import Path

from tests.echelon.service.lab import until


def worker(pid: int, name: str = "work_process 19") -> int:
    """Return the process of a daemon whose command line ends so, as soon as there is one.

    19: it searches.
    """
    found: list[int] = []

    def look() -> bool:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        pids = [int(child) for path in children for child in path.read_text().split()]
        lines = {
            child: Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip()
            for child in pids
        }
        found[:] = [child for child, line in lines.items() if line.endswith(name)]
        return bool(found)

    until(look, f"there is no {name}")
    return found[0]


def runs(pid: int) -> bool:
    """Return whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
