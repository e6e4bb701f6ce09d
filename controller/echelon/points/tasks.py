"""Many independent measurements, some at a time, each stored as soon as it is done."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from echelon.errors import Code, CodedError
from echelon.points.store import ResultStore, Stored
from echelon.scenarios.results import RunError

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement."""

    name: str
    """A name for people: of the file, and in errors."""
    identity: Mapping[str, Any]
    """Everything that determines the result, as JSON."""
    measure: Callable[[], Mapping[str, Any]]
    """The function that makes it, at the top of a module (it goes to another process). It raises `RunError` and the
    like."""
    cost: float = 0.0
    """Expected duration in any unit: the longest begin first, so that none remains for the end."""


class SweepError(CodedError):
    """Some measurements failed; those that did not are stored. One line."""

    code: Code = "run-failed"


def sweep(tasks: Sequence[Task], store: ResultStore, workers: int, done: Callable[[Task], None]) -> dict[str, Stored]:
    """Measure what `store` does not have, in `workers` processes (0: in this one), and return all results by name.

    `done` is called for each task whose result is there. A task that fails does not stop the others. Raise `SweepError`
    in the end if one did, and `OSError` if nothing can be written.
    """
    out: dict[str, Stored] = {}
    missing: list[Task] = []
    for task in tasks:
        stored = store.get(task.name, task.identity)
        if stored is None:
            missing.append(task)
        else:
            out[task.name] = stored
            done(task)
    missing.sort(key=lambda task: -task.cost)
    failures: list[str] = []

    def keep(task: Task, outcome: _Outcome) -> None:
        if outcome.error is not None:
            failures.append(f"{task.name}: {outcome.error}")
            return
        stored = Stored(task.identity, outcome.result, round(outcome.wall_s, 3))
        store.put(task.name, stored)
        out[task.name] = stored
        done(task)

    if workers == 0:
        for task in missing:
            keep(task, _measured(task.measure))
    elif missing:
        _in_processes(missing, min(workers, len(missing)), keep)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise SweepError(f"{failures[0]}{more}; measured points are kept, run the same command again to continue")
    return out


@dataclass(frozen=True, slots=True)
class _Outcome:
    result: Mapping[str, Any]
    wall_s: float
    error: str | None = None


def _in_processes(tasks: Sequence[Task], workers: int, keep: Callable[[Task, _Outcome], None]) -> None:
    # gRPC has threads, so processes are not forked.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_depend_on_parent)
    try:
        # No more than can run: an interrupt then waits only for those.
        waiting = list(reversed(tasks))
        running: dict[Future[_Outcome], Task] = {}
        while waiting or running:
            while waiting and len(running) < workers:
                task = waiting.pop()
                running[pool.submit(_measured, task.measure)] = task
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                keep(running.pop(future), future.result())
    except BrokenProcessPool:
        raise SweepError("a worker process ended unexpectedly (out of memory?); run the same command again") from None
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _depend_on_parent() -> None:
    """Leave interrupts to the parent. A worker must not outlive it: it would go on measuring, or wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():
        os._exit(1)


def _measured(measure: Callable[[], Mapping[str, Any]]) -> _Outcome:
    from echelon.documents import DocumentError
    from echelon.lowering.lower import LoweringError
    from echelon.policies import PlanError

    began = time.perf_counter()
    try:
        result = measure()
    except (RunError, PlanError, LoweringError, DocumentError) as error:
        return _Outcome({}, time.perf_counter() - began, str(error))
    return _Outcome(result, time.perf_counter() - began)
