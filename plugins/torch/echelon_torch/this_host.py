"""The option that says which hosts of the fabric this machine is."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Annotated

import typer

Worker = Annotated[
    list[str] | None,
    typer.Option(
        help="This host, as the job's file names it (default: this machine's name); repeatable,"
        " for interfaces that are hosts of the fabric.",
        envvar="ECHELON_WORKER",
        metavar="HOST",
    ),
]


def local_hosts(worker: Sequence[str] | None) -> list[str]:
    """Return the hosts that the option names, or this machine's name."""
    names = worker or [socket.gethostname().partition(".")[0]]
    return list(dict.fromkeys(names))
