"""The messages between workers and their coordinator: lines of JSON over a Unix socket.

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
    """The start of a compute unit, or of a flow's first byte at its source."""

    job: str
    iteration: int
    step: str
    at_ns: int


class StepFinished(NamedTuple):
    """The end of a compute unit, or the arrival of a flow's last byte at its destination."""

    job: str
    iteration: int
    step: str
    at_ns: int


class IterationDone(NamedTuple):
    """The end of an iteration at `host`. Packets are counted from the beginning of the run."""

    host: str
    job: str
    iteration: int
    reordered: int
    retransmitted: int


class Stopped(NamedTuple):
    """The last message of `host`. Its sockets stay open until the coordinator closes this one, so that no worker that
    is still at work finds another gone."""

    host: str


class Failed(NamedTuple):
    """The worker cannot go on. The problem is one line."""

    host: str
    problem: str


class Connect(NamedTuple):
    """An order to establish connections: all workers are ready."""


class Begin(NamedTuple):
    """An order to begin an iteration of a job at that time (at once if it has passed)."""

    job: str
    iteration: int
    at_ns: int


class StartBackground(NamedTuple):
    """An order to begin to send at that time."""

    at_ns: int


class StopWorkers(NamedTuple):
    """An order to stop, because all jobs are done. The answer is `Stopped`."""


Report = WorkerReady | Connected | StepStarted | StepFinished | IterationDone | Stopped | Failed
"""The messages from a worker to the coordinator."""
Order = Connect | Begin | StartBackground | StopWorkers
"""The messages from the coordinator to a worker."""
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
    """Return the message as one line."""
    return json.dumps([type(message).__name__, *message]).encode() + b"\n"


class Lines:
    """A reader of messages from the pieces in which a stream arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        """Return the messages that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, *fields = json.loads(line)
            yield _KINDS[name](*fields)
