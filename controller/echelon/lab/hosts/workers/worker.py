"""The process of one worker host: it does the host's part of every job, and reports to the coordinator."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from echelon.errors import RunError
from echelon.execution import StartCompute, StartFlow
from echelon.lab.hosts.loop import RealTimeLoop
from echelon.lab.hosts.workers import shim_sockets, tcp
from echelon.lab.hosts.workers.assignment import Assignment, Carriage, ShimCarriage, TcpCarriage, WorkerJob
from echelon.lab.hosts.workers.background import ConstantRateSender, Discard
from echelon.lab.hosts.workers.carriers import FlowEvents, SocketCarrier
from echelon.lab.hosts.workers.computing import COMPUTING, Computing
from echelon.lab.hosts.workers.execution import WorkerExecution, WorkerFinished, WorkerInstruction
from echelon.lab.hosts.workers.messages import (
    Begin,
    Connect,
    Connected,
    Failed,
    IterationDone,
    Lines,
    Report,
    StartBackground,
    StepFinished,
    StepStarted,
    Stopped,
    StopWorkers,
    WorkerReady,
    encode,
)

_CARRIERS: Mapping[type[Carriage], Callable[..., Mapping[str, SocketCarrier]]] = {
    ShimCarriage: shim_sockets.carriers,
    TcpCarriage: tcp.carriers,
}
"""The function that opens a host's sockets, by the kind of carriage."""


class JobPart:
    """The host's part of one job."""

    def __init__(self, worker: Worker, job: WorkerJob, computing: Computing) -> None:
        self._worker = worker
        self._name = job.job.name
        self._execution = WorkerExecution(job.job, worker.host, delays=job.delays)
        self._computing = computing
        self.carrier: SocketCarrier | None = None
        self.events = FlowEvents(
            started=self._on_started,
            sent=self._on_sent,
            received=self._on_received,
            iteration=lambda: self._execution.iteration,
        )

    def begin(self, iteration: int) -> None:
        self._obey(self._execution.begin(iteration))

    def _obey(self, instructions: Sequence[WorkerInstruction]) -> None:
        assert self.carrier is not None
        for instruction in instructions:
            match instruction:
                case StartCompute(name, _, duration_s):
                    self._report(StepStarted, name)
                    self._computing.start(duration_s, partial(self._on_computed, name))
                case StartFlow(flow, iteration):
                    self.carrier.send(flow, iteration)
                case WorkerFinished(iteration):
                    counts = self.carrier.counts
                    self._worker.report(IterationDone(self._worker.host, self._name, iteration, *counts))

    def _report(self, kind: type[StepStarted | StepFinished], step: str) -> None:
        self._worker.report(kind(self._name, self._execution.iteration, step, self._worker.loop.now_ns))

    def _on_computed(self, name: str) -> None:
        self._report(StepFinished, name)
        self._obey(self._execution.compute_finished(name))

    def _on_started(self, flow: str, iteration: int, at_ns: int) -> None:
        self._worker.report(StepStarted(self._name, iteration, flow, at_ns))

    def _on_sent(self, flow: str) -> None:
        self._obey(self._execution.flow_sent(flow))

    def _on_received(self, flow: str, iteration: int, at_ns: int) -> None:
        self._worker.report(StepFinished(self._name, iteration, flow, at_ns))
        self._obey(self._execution.flow_received(flow, iteration))


class Worker:
    """The worker of one host. The loop's `run` raises `RunError` when something breaks. `sockets` closes what it
    opens."""

    def __init__(self, assignment: Assignment, loop: RealTimeLoop, control: socket.socket, sockets: ExitStack) -> None:
        self.host = assignment.host
        self.loop = loop
        self._control = control
        self._lines = Lines()
        self._parts = {
            job.job.name: JobPart(self, job, COMPUTING[assignment.computing](loop, sockets)) for job in assignment.jobs
        }
        self._carriers = self._open(assignment, sockets)
        for name, carrier in self._carriers.items():
            self._parts[name].carrier = carrier
        self._unconnected = len(self._carriers)
        self._senders = [ConstantRateSender(loop, assignment, traffic, sockets) for traffic in assignment.sends]
        if assignment.discards:
            Discard(assignment, sockets)
        loop.on_readable(control.fileno(), self._on_order)
        self.report(WorkerReady(self.host))

    def report(self, report: Report) -> None:
        self._control.sendall(encode(report))

    def _open(self, assignment: Assignment, sockets: ExitStack) -> Mapping[str, SocketCarrier]:
        by_kind: dict[type[Carriage], dict[str, Any]] = {}
        for job in assignment.jobs:
            name = job.job.name
            of_kind = by_kind.setdefault(type(job.carriage), {})
            of_kind[name] = (job.job, job.carriage, self._parts[name].events)
        carriers: dict[str, SocketCarrier] = {}
        for kind, jobs in by_kind.items():
            carriers |= _CARRIERS[kind](self.loop, assignment, jobs, sockets)
        return carriers

    def _on_order(self) -> None:
        data = self._control.recv(1 << 16, socket.MSG_DONTWAIT)
        if not data:
            self.loop.stop()  # the coordinator has closed the connection
            return
        for order in self._lines.feed(data):
            match order:
                case Connect():
                    self._connect()
                case Begin(job, iteration, at_ns):
                    self._at(at_ns, partial(self._parts[job].begin, iteration))
                case StartBackground(at_ns):
                    for sender in self._senders:
                        sender.start(at_ns)
                case StopWorkers():
                    self.report(Stopped(self.host))

    def _at(self, time_ns: int, call: Callable[[], None]) -> None:
        if time_ns <= self.loop.now_ns:
            call()
        else:
            self.loop.at(time_ns, call)

    def _connect(self) -> None:
        if not self._carriers:
            self.report(Connected(self.host))
        for carrier in self._carriers.values():
            carrier.connect(self._on_connected)

    def _on_connected(self) -> None:
        self._unconnected -= 1
        if not self._unconnected:
            self.report(Connected(self.host))


def run(assignment: Assignment) -> int:
    """Work until told to stop; return the exit status."""
    with ExitStack() as sockets:
        control = sockets.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        control.connect(assignment.control)
        loop = RealTimeLoop()
        try:
            Worker(assignment, loop, control, sockets)
            # Everything here stays: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            loop.run()
        except (RunError, OSError) as error:
            with suppress(OSError):  # the coordinator may be gone
                control.sendall(encode(Failed(assignment.host, _one_line(error))))
            return 1
    return 0


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}"
    return " ".join(str(error).split())
