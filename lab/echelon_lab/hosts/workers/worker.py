"""The process of one worker host: it does the host's part of every job, and reports it."""

from __future__ import annotations

import gc
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from echelon.model.errors import RunError
from echelon.model.jobs import analysis
from echelon.model.jobs.graph import ComputeUnit, Flow, Job
from echelon.planning.execution import StartCompute, StartFlow, Turns
from echelon_lab.hosts.loop import RealTimeLoop
from echelon_lab.hosts.workers import messages
from echelon_lab.hosts.workers.datagrams import DatagramCarrier, shim_carriers
from echelon_lab.hosts.workers.shim_sockets import ShimSocketCarrier
from echelon_lab.hosts.workers.sockets import (
    ConstantRateSender,
    Discard,
    FlowEvents,
    TcpSocketCarrier,
    tcp_carriers,
)

_REQUEST = struct.Struct("=q")
_BURNING = Path(__file__).with_name("burning.py")
_LESS_PREFERRED = 10
"""The niceness of computing above that of its worker, which has to answer the network meanwhile."""
_NS_PER_S = 1_000_000_000


class TimedComputing:
    """A computing that waits for the unit's duration."""

    def __init__(self, loop: RealTimeLoop, _closing: ExitStack) -> None:
        self._loop = loop

    def start(self, duration_s: Fraction, done: Callable[[], None]) -> None:
        """Start a unit; call `done` when it is finished."""
        self._loop.call_at(self._loop.now_ns + round(duration_s * _NS_PER_S), done)


class CpuComputing:
    """A computing in a process of its own.

    It lasts until the process has used the unit's duration of processor time. Where processes
    contend for processors the unit takes longer, as real work would.
    """

    def __init__(self, loop: RealTimeLoop, closing: ExitStack) -> None:
        self._done: list[Callable[[], None]] = []
        self._process = closing.enter_context(
            subprocess.Popen(
                ["nice", "-n", str(_LESS_PREFERRED), sys.executable, "-I", "-S", str(_BURNING)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        )
        closing.callback(self._process.kill)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._answers = self._process.stdout.fileno()
        self._read()
        loop.on_readable(self._answers, self._on_answer)

    def start(self, duration_s: Fraction, done: Callable[[], None]) -> None:
        self._done.append(done)
        self._requests.write(_REQUEST.pack(round(duration_s * _NS_PER_S)))

    def _on_answer(self) -> None:
        for _ in self._read():
            self._done.pop(0)()

    def _read(self) -> bytes:
        answers = os.read(self._answers, 64)
        if not answers:
            raise RunError("the process that does the computing has ended")
        return answers


Computing = TimedComputing | CpuComputing
"""The processor of one job at one host: it does one unit at a time."""
COMPUTING: Mapping[str, Callable[[RealTimeLoop, ExitStack], Computing]] = {
    "timed": TimedComputing,
    "cpu": CpuComputing,
}
"""Kinds of computing by the name that a scenario's `compute` gives.

The stack ends what was begun.
"""


class WorkerFinished(NamedTuple):
    """All units and flows of an iteration that the worker has a part in are finished."""

    iteration: int


WorkerInstruction = StartCompute | StartFlow | WorkerFinished


class WorkerExecution:
    """The part of `worker` in `job`, iteration after iteration.

    A worker can observe everything that its steps wait for: its own compute units, flows that
    arrive at it, and its own flows, whose arrival its transport reports. So no worker asks another
    one when to start anything. Only the iterations have a barrier between them.

    `delays` maps iterations (from 1) to seconds by which the first unit that the worker starts in
    them takes longer. A flow from the worker is finished when its transport knows that the last
    byte has arrived.

    Flows of the next iteration may arrive before the worker is told to begin it, because others may
    have been told earlier. They are remembered.

    Raises `ValueError` for a job with a step that waits for something that its worker cannot see,
    and for a host that has no part in the job.
    """

    def __init__(
        self,
        job: Job,
        worker: str,
        *,
        delays: Mapping[int, Fraction] | None = None,
    ) -> None:
        self.job = job
        self.worker = worker
        self.iteration = 0
        """The iteration that was begun last; 0 before the first."""
        self._delays = dict(delays or {})
        self._steps: dict[str, ComputeUnit | Flow] = {}
        """The steps that this worker starts, by name."""
        for unit in job.computes:
            if unit.worker == worker:
                self._steps[unit.name] = unit
        for flow in job.flows:
            if flow.src == worker:
                self._steps[flow.name] = flow
        self.arriving: Mapping[str, Flow] = {f.name: f for f in job.flows if f.dst == worker}
        """Flows that others send to this worker, by name."""
        if not self._steps and not self.arriving:
            raise ValueError(f"job {job.name} has nothing to do for {worker}")

        visible = (*self._steps, *self.arriving)
        self._followers: dict[str, list[str]] = {name: [] for name in visible}
        # The order in which the whole job's execution would start them.
        order = analysis.topological_order(job)
        self._order = [name for name in order if name in self._steps]
        for name in self._order:
            for before in self._steps[name].after:
                if before not in self._followers:
                    raise ValueError(
                        f"job {job.name}: {name} waits for {before},"
                        f" which its worker {worker} cannot see"
                    )
                self._followers[before].append(name)
        self._turns = Turns(job)
        self._missing: dict[str, int] = {}
        self._running: set[str] = set()
        self._awaited: set[str] = set()
        self._early: set[str] = set()
        self._unfinished = 0
        self._delayed = False

    @property
    def finished(self) -> bool:
        """Return whether nothing is left to do in this iteration."""
        return not self._unfinished

    def begin(self, iteration: int) -> list[WorkerInstruction]:
        """Begin an iteration: all workers have finished the one before.

        Raises `ValueError` if this worker has not, or for any iteration but the next.
        """
        if self._unfinished or iteration != self.iteration + 1:
            raise ValueError(
                f"job {self.job.name}: {self.worker} cannot begin iteration {iteration} now"
            )
        self.iteration = iteration
        self._missing = {name: len(step.after) for name, step in self._steps.items()}
        self._unfinished = len(self._steps) + len(self.arriving)
        self._awaited = set(self.arriving)
        self._delayed = False
        first = [name for name in self._order if not self._steps[name].after]
        instructions = self._start_all(first)
        # What came before the order to begin counts as arriving now, after the own first steps.
        early = self._early
        self._early = set()
        for name in self.arriving:
            if name in early:
                self._awaited.remove(name)
                instructions += self._done(name)
        return instructions

    def compute_finished(self, name: str) -> list[WorkerInstruction]:
        """Take the end of a compute unit. Raises `ValueError` if it was not running."""
        return self._own_done(name)

    def flow_sent(self, name: str) -> list[WorkerInstruction]:
        """Take the news that the last byte of a flow from here arrived.

        Raises `ValueError` if it was not running.
        """
        return self._own_done(name)

    def flow_received(self, name: str, iteration: int) -> list[WorkerInstruction]:
        """Take the arrival of the last byte of a flow to here.

        Raises `ValueError` for a flow that is not expected.
        """
        if iteration == self.iteration + 1 and not self._unfinished and name in self.arriving:
            # Its sender was told to begin before this worker is.
            self._early.add(name)
            return []
        if iteration != self.iteration or name not in self._awaited:
            raise ValueError(
                f"job {self.job.name}: flow {name} of iteration {iteration} arrived at"
                f" {self.worker}, which does not wait for it in iteration {self.iteration}"
            )
        self._awaited.remove(name)
        return self._done(name)

    def _start_all(self, names: Iterable[str]) -> list[WorkerInstruction]:
        instructions: list[WorkerInstruction] = []
        for name in names:
            step = self._steps[name]
            if not self._turns.begins(step):
                continue
            self._running.add(name)
            if isinstance(step, Flow):
                instructions.append(StartFlow(step, self.iteration))
            else:
                duration_s = step.duration_s + self._delay_s()
                instructions.append(StartCompute(name, self.worker, duration_s))
        return instructions

    def _delay_s(self) -> Fraction:
        if self._delayed:
            return Fraction(0)
        self._delayed = True
        return self._delays.get(self.iteration, Fraction(0))

    def _own_done(self, name: str) -> list[WorkerInstruction]:
        if name not in self._running:
            raise ValueError(
                f"job {self.job.name}: {name} finished at {self.worker} but was not running"
            )
        self._running.remove(name)
        return self._done(name)

    def _done(self, name: str) -> list[WorkerInstruction]:
        self._unfinished -= 1
        ready = []
        for follower in self._followers[name]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                ready.append(follower)
        instructions = self._start_all(self._turns.after(self._steps.get(name), ready))
        if not self._unfinished:
            instructions.append(WorkerFinished(self.iteration))
        return instructions


SocketCarrier = DatagramCarrier | ShimSocketCarrier | TcpSocketCarrier
"""One job's flows at one host.

First open, then connect when all hosts are open, then send. Flows to the same host follow each
other in the order of their starts.
"""

_CARRIERS: Mapping[type[messages.Carriage], Callable[..., Mapping[str, SocketCarrier]]] = {
    messages.ShimCarriage: shim_carriers,
    messages.TcpCarriage: tcp_carriers,
}
"""The function that opens a host's sockets, by the kind of carriage."""


class JobPart:
    """The host's part of one job."""

    def __init__(
        self,
        worker: Worker,
        job: messages.WorkerJob,
        computing: Computing,
    ) -> None:
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
                    self._report(messages.StepStarted, name)
                    self._computing.start(duration_s, partial(self._on_computed, name))
                case StartFlow(flow, iteration):
                    self.carrier.send(flow, iteration)
                case WorkerFinished(iteration):
                    counts = self.carrier.counts
                    self._worker.report(
                        messages.IterationDone(self._worker.host, self._name, iteration, *counts)
                    )

    def _report(self, kind: type[messages.StepStarted | messages.StepFinished], step: str) -> None:
        self._worker.report(
            kind(self._name, self._execution.iteration, step, self._worker.loop.now_ns)
        )

    def _on_computed(self, name: str) -> None:
        self._report(messages.StepFinished, name)
        self._obey(self._execution.compute_finished(name))

    def _on_started(
        self,
        flow: str,
        iteration: int,
        at_ns: int,
    ) -> None:
        self._worker.report(messages.StepStarted(self._name, iteration, flow, at_ns))

    def _on_sent(self, flow: str) -> None:
        self._obey(self._execution.flow_sent(flow))

    def _on_received(
        self,
        flow: str,
        iteration: int,
        at_ns: int,
    ) -> None:
        self._worker.report(messages.StepFinished(self._name, iteration, flow, at_ns))
        self._obey(self._execution.flow_received(flow, iteration))


class Worker:
    """The worker of one host.

    The loop's `run` raises `RunError` when something breaks. `sockets` closes what it opens.
    """

    def __init__(
        self,
        assignment: messages.Assignment,
        loop: RealTimeLoop,
        control: socket.socket,
        sockets: ExitStack,
    ) -> None:
        self.host = assignment.host
        self.loop = loop
        self._control = control
        self._lines = messages.Lines()
        self._parts = {}
        for job in assignment.jobs:
            self._parts[job.job.name] = JobPart(
                self, job, COMPUTING[assignment.computing](loop, sockets)
            )
        self._carriers = self._open(assignment, sockets)
        for name, carrier in self._carriers.items():
            self._parts[name].carrier = carrier
        self._unconnected = len(self._carriers)
        self._senders = []
        for traffic in assignment.sends:
            self._senders.append(ConstantRateSender(loop, assignment, traffic, sockets))
        if assignment.discards:
            Discard(assignment, sockets)
        loop.on_readable(control.fileno(), self._on_order)
        self.report(messages.WorkerReady(self.host))

    def report(self, report: messages.Report) -> None:
        self._control.sendall(messages.encode(report))

    def _open(
        self, assignment: messages.Assignment, sockets: ExitStack
    ) -> Mapping[str, SocketCarrier]:
        by_kind: dict[type[messages.Carriage], dict[str, Any]] = {}
        for job in assignment.jobs:
            name = job.job.name
            jobs = by_kind.setdefault(type(job.carriage), {})
            jobs[name] = (job.job, job.carriage, self._parts[name].events)
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
                case messages.Connect():
                    self._connect()
                case messages.Begin(job, iteration, at_ns):
                    self._at(at_ns, partial(self._parts[job].begin, iteration))
                case messages.StartBackground(at_ns):
                    for sender in self._senders:
                        sender.start(at_ns)
                case messages.StopWorkers():
                    self.report(messages.Stopped(self.host))

    def _at(self, time_ns: int, call: Callable[[], None]) -> None:
        if time_ns <= self.loop.now_ns:
            call()
        else:
            self.loop.call_at(time_ns, call)

    def _connect(self) -> None:
        if not self._carriers:
            self.report(messages.Connected(self.host))
        for carrier in self._carriers.values():
            carrier.connect(self._on_connected)

    def _on_connected(self) -> None:
        self._unconnected -= 1
        if not self._unconnected:
            self.report(messages.Connected(self.host))


def run(assignment: messages.Assignment) -> int:
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
                control.sendall(messages.encode(messages.Failed(assignment.host, _one_line(error))))
            return 1
    return 0


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}"
    return " ".join(str(error).split())
