"""Control groups (version 2): the groups of a job's processes, by which the kernel knows whose a socket is."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from echelon.agent.connection import AgentError

_PREFIX = "echelon-"
_TIDY = """
read -r _
find "$1" -depth -type d | while read -r group; do
    while read -r process < "$group/cgroup.procs" && [ "$process" ]; do
        echo "$process" > "$2/cgroup.procs" || break
    done
    rmdir "$group"
done
"""
"""Wait until the agent has ended, whatever ended it. Then processes that still run go back to where they came from."""


def mount_point(mounts: Path = Path("/proc/mounts")) -> Path | None:
    """Return where the hierarchy of version 2 is mounted; None: nowhere."""
    for line in mounts.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where))
    return None


def own_group() -> Path:
    """Return the group of this process. Raise `AgentError` where there are no groups of version 2."""
    root = mount_point()
    if root is None:
        raise AgentError("no cgroup2 file system is mounted")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return root / line.removeprefix("0::").lstrip("/")
    raise AgentError("this process is in no cgroup of version 2")


def checked(path: Path) -> Path:
    """Return `path` if it is a group of version 2. Raise `AgentError`."""
    if not (path / "cgroup.procs").is_file() or not (path / "cgroup.events").exists():
        hint = mount_point()
        where = "no cgroup2 file system is mounted" if hint is None else f"those of this machine are below {hint}"
        raise AgentError(f"{path}: is not a control group of version 2 that has processes ({where})")
    return path


def numbers(path: Path) -> frozenset[int]:
    """Return the numbers by which the kernel knows the group and those below it."""
    found = set()
    for directory, _, _ in os.walk(path):
        with suppress(FileNotFoundError):
            found.add(Path(directory).stat().st_ino)
    return frozenset(found)


@contextmanager
def group_for(job: str) -> Iterator[Path]:
    """Make a group below this process's own, for the processes of a job.

    It goes when the agent ends, also when it is killed: a shell that waits for this moves processes that still run to
    the agent's own group, and removes the job's. Raise `AgentError`.
    """
    parent = own_group()
    path = parent / f"{_PREFIX}{job}-{os.getpid()}"
    reading, writing = os.pipe()
    try:
        # It comes first, so that no group is ever without it.
        tidy = subprocess.Popen(
            ["sh", "-c", _TIDY, "sh", path, parent],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        os.close(writing)
        raise AgentError(f"cannot start the shell that removes {path}: {error.strerror}") from None
    finally:
        os.close(reading)
    try:
        try:
            path.mkdir()
        except OSError as error:
            raise AgentError(f"cannot make a control group: {path}: {error.strerror}") from None
        yield path
    finally:
        os.close(writing)
        tidy.wait()
