"""What workers and their coordinator tell each other: lines of JSON over a Unix socket.

Times are nanoseconds of CLOCK_MONOTONIC, which is the same in all processes of a machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class WorkerReady(NamedTuple):
    """The worker of `host` has opened its sockets."""

    host: str


class Connected(NamedTuple):
    """All connections of `host` are established."""

    host: str


class StepStarted(NamedTuple):
    """A compute unit, or the first byte of a flow at its source."""

    job: str
    iteration: int
    step: str
    at_ns: int


class StepFinished(NamedTuple):
    """A compute unit, or the last byte of a flow at its destination."""

    job: str
    iteration: int
    step: str
    at_ns: int


class IterationDone(NamedTuple):
    """Nothing of the iteration is left to do at `host`. Counts of packets are since the beginning."""

    host: str
    job: str
    iteration: int
    reordered: int
    retransmitted: int


class Stopped(NamedTuple):
    """`host` has said its last word. Its sockets stay open until the coordinator closes this one: nobody is to find
    another gone while it is still at work itself."""

    host: str


class Failed(NamedTuple):
    """The worker cannot go on; one line."""

    host: str
    problem: str


class Connect(NamedTuple):
    """All workers are ready: establish connections."""


class Begin(NamedTuple):
    """Begin an iteration of a job at that time (at once if it has passed)."""

    job: str
    iteration: int
    at_ns: int


class StartBackground(NamedTuple):
    """Begin to send at that time."""

    at_ns: int


class StopWorkers(NamedTuple):
    """All jobs are done: answer with `Stopped`."""


Report = WorkerReady | Connected | StepStarted | StepFinished | IterationDone | Stopped | Failed
"""Worker to coordinator."""
Order = Connect | Begin | StartBackground | StopWorkers
"""Coordinator to worker."""
Message = Report | Order

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        WorkerReady,
        Connected,
        StepStarted,
        StepFinished,
        IterationDone,
        Stopped,
        Failed,
        Connect,
        Begin,
        StartBackground,
        StopWorkers,
    )
}


def encode(message: Message) -> bytes:
    """One line."""
    return json.dumps([type(message).__name__, *message]).encode() + b"\n"


class Lines:
    """Messages out of the pieces in which a stream arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Those that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, *fields = json.loads(line)
            yield _KINDS[name](*fields)
