"""A control group (version 2) for everything that a run starts.

Agents make groups below their own, whose removal is theirs; but a run that is killed kills them and
their shells, too. The group of the run is made, and removed, from outside its sandbox.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_VARIABLE = "ECHELON_RUN_GROUP"
_TIDY = """
read -r _
for attempt in $(seq 100); do
    find "$1" -depth -type d -exec rmdir {} +
    [ -d "$1" ] || exit
    sleep 0.1
done
"""
"""A script that waits for the end of the caller, and removes the groups once empty."""


class NoGroupError(Exception):
    """There are no control groups of version 2 here."""


def mount_point(mounts: Path = Path("/proc/mounts")) -> Path | None:
    """Return where the hierarchy of version 2 is mounted; None: nowhere."""
    for line in mounts.read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), where))
    return None


def own_group() -> Path:
    """Return the group of this process.

    Raise `NoGroupError` where there are no groups of version 2.
    """
    root = mount_point()
    if root is None:
        raise NoGroupError("no cgroup2 file system is mounted")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return root / line.removeprefix("0::").lstrip("/")
    raise NoGroupError("this process is in no cgroup of version 2")


@contextmanager
def group_for_run() -> Iterator[None]:
    """Make a group, for `enter` to enter.

    It goes with this process. Where groups cannot be made, do nothing.
    """
    try:
        path = own_group() / f"echelon-run-{os.getpid()}"
        path.mkdir()
    except (NoGroupError, OSError):
        yield
        return
    reading, writing = os.pipe()
    tidy = subprocess.Popen(
        ["sh", "-c", _TIDY, "sh", path],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    os.close(reading)
    os.environ[_VARIABLE] = str(path)
    try:
        yield
    finally:
        del os.environ[_VARIABLE]
        os.close(writing)
        tidy.wait()


def enter() -> None:
    """Move this process to the group that its caller has made, if there is one."""
    if path := os.environ.get(_VARIABLE):
        with suppress(OSError):
            # 0 stands for the process that writes.
            (Path(path) / "cgroup.procs").write_text("0")
