"""One worker's part of a training job as a state machine without I/O: observations in, instructions out.

A worker can observe everything that its steps wait for: its own compute units, flows that arrive at it, and its own
flows, whose arrival its transport reports. So no worker asks another one when to start anything. Only the iterations
have a barrier between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from echelon.execution import StartCompute, StartFlow, Turns
from echelon.jobs import analysis
from echelon.jobs.graph import ComputeUnit, Flow, Job


class WorkerFinished(NamedTuple):
    """All units and flows of an iteration that the worker has a part in are finished."""

    iteration: int


WorkerInstruction = StartCompute | StartFlow | WorkerFinished


class WorkerExecution:
    """The part of `worker` in `job`, iteration after iteration.

    `delays` maps iterations (from 1) to seconds by which the first unit that the worker starts in them takes longer. A
    flow from the worker is finished when its transport knows that the last byte has arrived.

    Flows of the next iteration may arrive before the worker is told to begin it, because others may have been told
    earlier. They are remembered.

    Raises `ValueError` for a job with a step that waits for something that its worker cannot see, and for a host that
    has no part in the job.
    """

    def __init__(self, job: Job, worker: str, *, delays: Mapping[int, Fraction] | None = None) -> None:
        self.job = job
        self.worker = worker
        self.iteration = 0
        """The iteration that was begun last; 0 before the first."""
        self._delays = dict(delays or {})
        own: dict[str, ComputeUnit | Flow] = {c.name: c for c in job.computes if c.worker == worker}
        own |= {f.name: f for f in job.flows if f.src == worker}
        self._own = own
        self.arriving: Mapping[str, Flow] = {f.name: f for f in job.flows if f.dst == worker}
        """Flows that others send to this worker, by name."""
        if not own and not self.arriving:
            raise ValueError(f"job {job.name} has nothing to do for {worker}")
        self._followers: dict[str, list[str]] = {name: [] for name in (*own, *self.arriving)}
        # The order in which the whole job's execution would start them.
        self._order = [name for name in analysis.topological_order(job) if name in own]
        for name in self._order:
            for before in own[name].after:
                if before not in self._followers:
                    raise ValueError(f"job {job.name}: {name} waits for {before}, which its worker {worker} cannot see")
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
        """Whether nothing is left to do in this iteration."""
        return not self._unfinished

    def begin(self, iteration: int) -> list[WorkerInstruction]:
        """Begin an iteration: all workers have finished the one before.

        Raises `ValueError` if this worker has not, or for any iteration but the next.
        """
        if self._unfinished or iteration != self.iteration + 1:
            raise ValueError(f"job {self.job.name}: {self.worker} cannot begin iteration {iteration} now")
        self.iteration = iteration
        self._missing = {name: len(step.after) for name, step in self._own.items()}
        self._unfinished = len(self._own) + len(self.arriving)
        self._awaited = set(self.arriving)
        self._delayed = False
        out = self._start_all(name for name in self._order if not self._own[name].after)
        early, self._early = self._early, set()
        for name in [name for name in self.arriving if name in early]:
            self._awaited.remove(name)
            out += self._done(name)
        return out

    def compute_finished(self, name: str) -> list[WorkerInstruction]:
        """Take the end of a compute unit. Raises `ValueError` if it was not running."""
        return self._own_done(name)

    def flow_sent(self, name: str) -> list[WorkerInstruction]:
        """Take the news that the last byte of a flow from here arrived. Raises `ValueError` if it was not running."""
        return self._own_done(name)

    def flow_received(self, name: str, iteration: int) -> list[WorkerInstruction]:
        """Take the arrival of the last byte of a flow to here. Raises `ValueError` for a flow that is not expected."""
        if iteration == self.iteration + 1 and not self._unfinished and name in self.arriving:
            self._early.add(name)
            return []
        if iteration != self.iteration or name not in self._awaited:
            raise ValueError(
                f"job {self.job.name}: flow {name} of iteration {iteration} arrived at {self.worker}, "
                f"which does not wait for it in iteration {self.iteration}"
            )
        self._awaited.remove(name)
        return self._done(name)

    def _start_all(self, names: Iterable[str]) -> list[WorkerInstruction]:
        out: list[WorkerInstruction] = []
        for name in names:
            step = self._own[name]
            if not self._turns.begins(step):
                continue
            self._running.add(name)
            if isinstance(step, Flow):
                out.append(StartFlow(step, self.iteration))
            else:
                out.append(StartCompute(name, self.worker, step.duration_s + self._delay_s()))
        return out

    def _delay_s(self) -> Fraction:
        if self._delayed:
            return Fraction(0)
        self._delayed = True
        return self._delays.get(self.iteration, Fraction(0))

    def _own_done(self, name: str) -> list[WorkerInstruction]:
        if name not in self._running:
            raise ValueError(f"job {self.job.name}: {name} finished at {self.worker} but was not running")
        self._running.remove(name)
        return self._done(name)

    def _done(self, name: str) -> list[WorkerInstruction]:
        self._unfinished -= 1
        ready = []
        for follower in self._followers[name]:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                ready.append(follower)
        out = self._start_all(self._turns.behind(self._own.get(name), ready))
        if not self._unfinished:
            out.append(WorkerFinished(self.iteration))
        return out
