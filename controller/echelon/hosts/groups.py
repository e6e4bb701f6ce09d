"""A control group (version 2) for everything that a run starts.

Agents make groups below their own, whose removal is theirs; but a run that is killed kills them and their shells, too.
The group of the run is made, and removed, from outside its sandbox.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from echelon.agent.cgroups import own_group
from echelon.agent.connection import AgentError

_VARIABLE = "ECHELON_RUN_GROUP"
_TIDY = """
read -r _
for attempt in $(seq 100); do
    find "$1" -depth -type d -exec rmdir {} +
    [ -d "$1" ] || exit
    sleep 0.1
done
"""
"""Wait until the caller has ended, whatever ended it. Then remove the groups, as soon as their processes are gone."""


@contextmanager
def group_for_run() -> Iterator[None]:
    """Make a group, for `enter` to enter. It goes with this process. Where groups cannot be made, do nothing."""
    try:
        path = own_group() / f"echelon-run-{os.getpid()}"
        path.mkdir()
    except (AgentError, OSError):
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
