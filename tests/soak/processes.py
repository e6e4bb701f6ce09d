"""Other processes, as /proc shows them."""

from __future__ import annotations

from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, those that these started, and so on."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(path)
        if fields:
            parents[int(path.parent.name)] = int(fields[1])
    family = [pid]
    for parent in family:
        family += [child for child, its_parent in parents.items() if its_parent == parent]
    return family[1:]


def is_running(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return bool(fields) and fields[0] not in "ZX"


def command_line(pid: int) -> str:
    """Return the words of a process's command; empty: it is gone."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace")


def _fields(path: Path) -> list[str]:
    """Return what follows a process's name in its `stat`; nothing where it is gone."""
    try:
        # A program's name, in brackets, may hold blanks.
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []
