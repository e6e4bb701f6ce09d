"""Control groups (version 2) of a job's processes, by which the kernel knows its sockets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from echelon_torch.agent.connection import AgentError
from echelon_torch.agent.groups import NoGroupError, mount_point, own_group

_PREFIX = "echelon-"
_TIDY = """
read -r _
for attempt in $(seq 100); do
    find "$1" -depth -type d | while read -r group; do
        while read -r process < "$group/cgroup.procs" && [ "$process" ]; do
            echo "$process" > "$2/cgroup.procs" || break
        done
        rmdir "$group"
    done
    [ -d "$1" ] || exit 0
    sleep 0.1
done
exit 1
"""
"""Wait until the agent has ended, whatever ended it.

Then processes that still run go back to where they came from. Once is not enough: the job's
processes may make others, and groups, meanwhile.
"""


def checked(path: Path) -> Path:
    """Return `path` if it is a group of version 2. Raise `AgentError`."""
    if not (path / "cgroup.procs").is_file() or not (path / "cgroup.events").exists():
        hint = mount_point()
        if hint is None:
            where = "no cgroup2 file system is mounted"
        else:
            where = f"those of this machine are below {hint}"
        raise AgentError(
            f"{path}: is not a control group of version 2 that has processes ({where})"
        )
    return path


def numbers(path: Path) -> frozenset[int]:
    """Return the numbers by which the kernel knows the group and those below it."""
    inodes = set()
    for directory, _, _ in os.walk(path):
        with suppress(FileNotFoundError):
            inodes.add(Path(directory).stat().st_ino)
    return frozenset(inodes)


def members(path: Path) -> Iterator[int]:
    """Yield the processes of the group and of those below it."""
    for directory, _, _ in os.walk(path):
        with suppress(OSError):
            yield from map(int, (Path(directory) / "cgroup.procs").read_text().split())


def _sweep(parent: Path) -> None:
    """Remove the groups of agents that were killed together with the shell that cleans up."""
    for group in parent.glob(f"{_PREFIX}*-*"):
        if not Path("/proc", group.name.rpartition("-")[2]).exists():
            # A group with processes stays.
            with suppress(OSError):
                group.rmdir()


class JobGroup:
    """A group below this process's own, for the processes of a job; use it as a context manager.

    Raise `AgentError`.

    It goes when the agent ends, also when it is killed: a shell that waits for this moves processes
    that still run to the agent's own group, and removes the job's. Should the shell end before,
    `guard` starts another one; its descriptor (`fileno`) is readable then.
    """

    def __init__(self, job: str) -> None:
        try:
            self._parent = own_group()
        except NoGroupError as error:
            raise AgentError(str(error)) from None
        _sweep(self._parent)
        self.path = self._parent / f"{_PREFIX}{job}-{os.getpid()}"
        self._reading, self._writing = os.pipe()
        self._shell: subprocess.Popen[bytes] | None = None
        self._ended = -1
        try:
            # It comes first, so that no group is ever without it.
            self._start()
            self.path.mkdir()
        except OSError as error:
            self.close()
            raise AgentError(
                f"cannot make a control group: {self.path}: {error.strerror}"
            ) from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when the shell has ended."""
        return self._ended

    def guard(self) -> None:
        """Start another shell if the one before has ended. Raise `AgentError`."""
        if self._shell is not None and self._shell.poll() is not None:
            self._shell = None
            os.close(self._ended)
            self._start()

    def close(self) -> None:
        """Move processes that still run to the agent's own group, and remove the job's."""
        with suppress(AgentError):
            # A shell that was killed meanwhile does not do it.
            self.guard()
        for descriptor in (self._reading, self._writing):
            os.close(descriptor)
        if self._shell is not None:
            self._shell.wait()
            os.close(self._ended)

    def _start(self) -> None:
        try:
            self._shell = subprocess.Popen(
                ["sh", "-c", _TIDY, "sh", self.path, self._parent],
                stdin=self._reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise AgentError(
                f"cannot start the shell that removes {self.path}: {error.strerror}"
            ) from None
        self._ended = os.pidfd_open(self._shell.pid)
