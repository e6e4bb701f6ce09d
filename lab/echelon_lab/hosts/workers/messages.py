"""The assignment of a worker, and the messages between workers and their coordinator.

Messages are lines of JSON over a Unix socket. Times are nanoseconds of CLOCK_MONOTONIC, which is
the same in all processes of a machine.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import IO, Any, NamedTuple, get_args

from echelon.model.jobs.graph import FlowKey, Job
from echelon.planning.rankings.base import Ranking
from echelon.planning.windows import FlowWindows, Windows
from echelon.switches.lowering.at_hosts import HostRule


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
    """The last message of `host`.

    Its sockets stay open until the coordinator closes this one, so that no worker that is still at
    work finds another gone.
    """

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

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


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


@dataclass(frozen=True, slots=True)
class ShimCarriage:
    """Flows as UDP packets with the shim header."""

    number: int
    """Number of the job."""
    flows: Mapping[str, int]
    """Number of each flow, by its name."""


@dataclass(frozen=True, slots=True)
class TcpCarriage:
    """Flows as plain bytes over a TCP connection from each worker to each that it sends to."""

    source_port: int
    destination_port: int


Carriage = ShimCarriage | TcpCarriage


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A job that the host has a part in."""

    job: Job
    delays: Mapping[int, Fraction]
    """Seconds by which the host's first unit takes longer, by iteration (from 1)."""
    carriage: Carriage


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Packets of constant rate that belong to no job."""

    dst: str
    rate_bps: int
    """Rate of frames, headers included."""
    packet_bytes: int
    """Length of a frame."""
    source_port: int


@dataclass(frozen=True, slots=True)
class Assignment:
    host: str
    control: str
    """Path of the coordinator's Unix socket."""
    addresses: Mapping[str, str]
    """IPv4 addresses by host."""
    jobs: tuple[WorkerJob, ...]
    rate_bps: int
    """Maximum rate of the host's frames."""
    packet_bytes: int
    """Length of a frame with the shim."""
    windows: Windows
    """The windows of all senders, where flows have no path of their own."""
    flow_windows: Mapping[FlowKey, FlowWindows]
    """The windows of each flow from the host or to it."""
    stream_rankings: Mapping[FlowKey, Ranking]
    """The rankings of the flows from the host or to it that share the window of a stream."""
    retransmit_after_ns: int
    tcp_window_bytes: int
    """Maximum of the bytes in flight to a receiver over TCP."""
    ecn: bool
    """Whether connections over TCP ask for ECN."""
    computing: str
    """A name in `echelon_lab.hosts.workers.worker.COMPUTING`."""
    sends: tuple[ConstantRate, ...] = ()
    discards: bool = False
    """Whether other hosts send background packets to this one."""
    rules: tuple[HostRule, ...] | None = None
    """The rules by which the host ranks the flows that it sends; None: switches rank."""


def write_assignment(assignment: Assignment, stream: IO[bytes]) -> None:
    """Write the assignment for a process of this program."""
    pickle.dump(assignment, stream)


def read_assignment(source: IO[bytes]) -> Assignment:
    """Read what `write_assignment` wrote.

    Only for input from the process that started this one: a pickle can hold anything.
    """
    assignment = pickle.load(source)
    if not isinstance(assignment, Assignment):
        raise TypeError(f"an assignment is expected, not {type(assignment).__name__}")
    return assignment
