"""The sockets of a process and its descendants, from /proc, without control groups v2."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_SOCKET = re.compile(r"socket:\[(\d+)\]")


def descendants(root: int, proc: Path = Path("/proc")) -> frozenset[int]:
    """Return the ids of a process and of all that descend from it and whose parents still run."""
    children: dict[int, list[int]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                # The command, in parentheses, may hold anything; the parent is the second field
                # after it.
                _, _, fields = (entry / "stat").read_text().rpartition(")")
                parent = int(fields.split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    reached = {root}
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in reached:
                reached.add(child)
                waiting.append(child)
    return frozenset(reached)


def elsewhere(candidates: Iterable[int], proc: Path = Path("/proc")) -> Iterator[tuple[int, int]]:
    """Yield processes in other network namespaces, with a number of each one's namespace.

    Each namespace has files of its own below /proc/PID/net. Their numbers tell namespaces apart,
    and need no capability, which links below /proc/PID/ns do.
    """
    own_network = _network(proc / "self")
    for process in candidates:
        with suppress(OSError):
            network = _network(proc / str(process))
            if network != own_network:
                yield process, network


def _network(process: Path) -> int:
    return (process / "net" / "tcp").stat().st_ino


def socket_inodes(root: int, proc: Path = Path("/proc")) -> frozenset[int]:
    """Return the numbers of the sockets that a process and its descendants have open.

    Processes of other users have none that this process may see.
    """
    inodes: set[int] = set()
    for process in descendants(root, proc):
        inodes.update(inode for _, inode in sockets_of(process, proc))
    return frozenset(inodes)


def sockets_of(process: int, proc: Path = Path("/proc")) -> Iterator[tuple[int, int]]:
    """Yield descriptor and number of each open socket of a process that this one may see."""
    with suppress(OSError):
        for descriptor in (proc / str(process) / "fd").iterdir():
            with suppress(OSError):
                match = _SOCKET.fullmatch(str(descriptor.readlink()))
                if match is not None:
                    yield int(descriptor.name), int(match[1])
