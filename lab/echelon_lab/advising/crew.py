"""Processes that do runs, and of which one that takes too long can be ended.

Policies in Python hold the interpreter, and nothing in it can stop a run that takes hours. So each
process has a pipe of its own, unlike those of a pool.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, Self

from echelon.model.errors import RunError
from echelon_lab.advising.stages import Run, measure
from echelon_lab.points.tasks import depend_on_parent, signals_held_back
from echelon_lab.scenarios.coarse import Setup

_DIED = "its process ended unexpectedly (out of memory?)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run."""

    run: Run
    result: dict[str, Any]
    """The result of `measure`."""
    took_s: float


class Crew(Protocol):
    """Places where runs are done."""

    size: int
    """The number of runs that go on at a time."""

    @property
    def free(self) -> int:
        """The number of runs that can begin now."""

    def begin(self, run: Run) -> None:
        """Begin a run, if there is a free place."""

    def outcomes(self, timeout_s: float) -> Sequence[Outcome]:
        """Wait until runs end or places are free, no longer than `timeout_s`.

        Return the runs that ended.
        """

    def stop(self, run: Run) -> None:
        """End a run that is under way, without an outcome."""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    connection: Connection
    run: Run | None = None
    is_ready: bool = False
    """Whether it has started, which takes seconds where a processor has much to do."""
    has_setup: bool = False


class Processes:
    """A crew of processes of this computer; the first begin with it, to be ready early."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._setup: Setup | None = None
        # gRPC has threads, so processes are not forked.
        self._context = multiprocessing.get_context("spawn")
        self._workers = [self._started() for _ in range(size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()

    def prepare(self, setup: Setup) -> None:
        """Say what the runs are of."""
        self._setup = setup

    @property
    def free(self) -> int:
        return len(self._idle())

    def begin(self, run: Run) -> None:
        worker = self._idle()[0]
        worker.run = run
        try:
            if not worker.has_setup:
                worker.connection.send(self._setup)
                worker.has_setup = True
            worker.connection.send(run)
        except OSError:
            # It has died, which `outcomes` notices.
            pass

    def _idle(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.is_ready and worker.run is None]

    def outcomes(self, timeout_s: float) -> Sequence[Outcome]:
        awaited = {}
        for worker in self._workers:
            if worker.run is not None or not worker.is_ready:
                awaited[worker.connection] = worker
        ended = []
        for connection in wait(list(awaited), timeout_s):
            assert isinstance(connection, Connection)
            worker = awaited[connection]
            try:
                message = connection.recv()
            except (EOFError, OSError):
                ended.append(self._death(worker))
                continue
            if worker.run is None:
                worker.is_ready = True
            else:
                result, took_s = message
                ended.append(Outcome(worker.run, result, took_s))
                worker.run = None
        return ended

    def _death(self, worker: _Worker) -> Outcome:
        """Replace a process that has died, and return the end of its run."""
        run = worker.run
        if run is None:
            raise RunError("a process that simulates ended before its first run")
        self._replace(worker)
        return Outcome(run, {"error": _DIED}, 0.0)

    def stop(self, run: Run) -> None:
        for worker in list(self._workers):
            if worker.run == run:
                self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)
        self._workers.append(self._started())

    def _started(self) -> _Worker:
        connection, its_end = self._context.Pipe()
        process = self._context.Process(target=_work, args=(its_end,), daemon=True)
        with signals_held_back():
            process.start()
        # Now only the process holds its end, and the other end notices when it dies.
        its_end.close()
        return _Worker(process, connection)


def _work(connection: Connection) -> None:
    """Do runs until the other end of the pipe is closed."""
    depend_on_parent()
    # What runs need, before their time counts.
    importlib.import_module("echelon_lab.virtual.fluid_run")
    try:
        connection.send(None)
        setup = connection.recv()
        while True:
            run = connection.recv()
            began_s = time.monotonic()
            try:
                result = measure(setup, run)
            except Exception as error:
                # A policy may come from anywhere, and its faults must not end other runs.
                result = {"error": f"{type(error).__name__}: {error}"}
            connection.send((result, time.monotonic() - began_s))
    except (EOFError, OSError):
        return
