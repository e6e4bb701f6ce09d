"""Move links between switches whose ports are Unix sockets, as an optical switch does.

Port N of switch S is unix:DIRECTORY/S-N, and its peer, DIRECTORY/S-N.peer, is a symbolic link to
the port at the other end. Standard input is one JSON object: `go`, the links to take away, and
`come`, the links to make, each as {"between": ["s1", "s2"], "ports": {"s1": 3, "s2": 1}}. While
links move, packets that are sent into them are lost and counted: each move is a line of
DIRECTORY/optical.jsonl. A link that has moved already is left alone.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import select
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_LARGEST_FRAME = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIRECTORY",
        help="where the sockets of ports are",
    )
    parser.add_argument(
        "--time",
        type=float,
        default=20.0,
        metavar="MS",
        help="milliseconds for which links move (default 20)",
    )


def run(options: argparse.Namespace) -> int:
    """Move the links."""
    if not 0 <= options.time < float("inf"):
        raise ValueError(f"--time: {options.time:g} is no time (give milliseconds)")
    directory: Path = options.directory.absolute()
    try:
        order = json.load(sys.stdin)
        wanted: dict[Path, Path | None] = {}
        for a, b in _ports(order["go"]):
            wanted[a] = wanted[b] = None
        for a, b in _ports(order["come"]):
            wanted[a] = b
            wanted[b] = a
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"standard input: no links to move: {type(error).__name__}: {error}"
        ) from None
    ends: dict[Path, Path | None] = {}
    for port, target in wanted.items():
        ends[directory / f"{port}.peer"] = None if target is None else directory / target
    with (directory / "optical.jsonl").open("a") as log:
        # One that was left behind may still move links.
        fcntl.flock(log, fcntl.LOCK_EX)
        began_s = time.monotonic()
        moving = {peer: target for peer, target in ends.items() if _leads_to(peer) != target}
        lost = 0
        if moving:
            lost = _move(directory, moving, options.time / 1000)
        seconds = round(time.monotonic() - began_s, 6)
        line = {"ends": len(moving), "lost": lost, "seconds": seconds}
        log.write(f"{json.dumps(line)}\n")
    print(f"{len(moving)} ends of links moved, {lost} packets lost")
    return 0


def _ports(links: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Path, Path]]:
    """Yield the names of the two ports of each link."""
    for link in links:
        a, b = link["between"]
        if {a, b} - link["ports"].keys():
            raise ValueError(f"the link between {a} and {b} is that of a host")
        yield Path(f"{a}-{link['ports'][a]}"), Path(f"{b}-{link['ports'][b]}")


def _leads_to(peer: Path) -> Path | None:
    return peer.readlink() if peer.is_symlink() else None


def _move(
    directory: Path,
    moving: Mapping[Path, Path | None],
    seconds: float,
) -> int:
    """Let these peers lead elsewhere.

    Return the number of packets that came while they led nowhere.
    """
    dark = directory / "optical.dark"
    lost = 0
    dark.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sink:
        sink.bind(str(dark))
        over_s = time.monotonic() + seconds
        for peer in moving:
            _point(peer, dark)
        while time.monotonic() < over_s:
            lost += _drop_next(sink, over_s - time.monotonic())
        for peer, target in moving.items():
            if target is None:
                peer.unlink()
            else:
                _point(peer, target)
        while _drop_next(sink, 0):
            lost += 1
    dark.unlink()
    return lost


def _drop_next(sink: socket.socket, timeout_s: float) -> int:
    """Discard the next packet, and return how many came within the timeout: 1 or 0."""
    ready, _, _ = select.select([sink], [], [], max(0.0, timeout_s))
    if not ready:
        return 0
    sink.recv(_LARGEST_FRAME)
    return 1


def _point(peer: Path, target: Path) -> None:
    """Let a symbolic link lead to `target` from one moment to the next."""
    new = peer.with_name(f"{peer.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(peer)
