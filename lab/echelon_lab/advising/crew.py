"""Processes that do runs, and of which one that takes too long can be ended.

Policies in Python hold the interpreter, and nothing in it can stop a run that takes hours. So each
process has a pipe of its own, unlike those of a pool.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, Self

from echelon.model.errors import RunError
from echelon_lab.advising.stages import Run, measure
from echelon_lab.points.processes import DIED, PipedProcess, end_all, start_process
from echelon_lab.scenarios.coarse import Setup


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
    piped: PipedProcess
    run: Run | None = None
    is_ready: bool = False
    """Whether it has started, which takes seconds where a processor has much to do."""
    has_setup: bool = False


class Processes:
    """A crew of processes of this computer; the first begin with it, to be ready early."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._setup: Setup | None = None
        self._workers = [_started() for _ in range(size)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_all(worker.piped for worker in self._workers)

    def prepare(self, setup: Setup) -> None:
        """Say what the runs are of."""
        self._setup = setup

    @property
    def free(self) -> int:
        return len(self._idle())

    def begin(self, run: Run) -> None:
        worker = self._idle()[0]
        worker.run = run
        connection = worker.piped.connection
        try:
            if not worker.has_setup:
                connection.send(self._setup)
                worker.has_setup = True
            connection.send(run)
        except OSError:
            # It has died, which `outcomes` notices.
            pass

    def _idle(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.is_ready and worker.run is None]

    def outcomes(self, timeout_s: float) -> Sequence[Outcome]:
        awaited = {}
        for worker in self._workers:
            if worker.run is not None or not worker.is_ready:
                awaited[worker.piped.connection] = worker
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
        return Outcome(run, {"error": DIED}, 0.0)

    def stop(self, run: Run) -> None:
        for worker in list(self._workers):
            if worker.run == run:
                self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        end_all([worker.piped])
        self._workers.remove(worker)
        self._workers.append(_started())


def _started() -> _Worker:
    return _Worker(start_process(_work))


def _work(connection: Connection) -> None:
    """Do runs until the other end of the pipe is closed."""
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
