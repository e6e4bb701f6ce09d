"""Many independent measurements, some at a time, each stored as soon as it is done."""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from math import fsum, inf
from statistics import fmean
from typing import Any, Protocol

from echelon.model.errors import Code, CodedError, RunError
from echelon.model.progress import UNSEEN, CommandProgress
from echelon_lab.points.processes import DIED, depend_on_parent, signals_held_back
from echelon_lab.points.store import Stored

_TRIES_ALONE = 2
"""Number of times that a task is measured in a process of its own before it counts as failed."""
_REPORT_S = 1.0
"""The longest time between two reports of how far tasks are. People see one every ten seconds."""


class ResultStore(Protocol):
    """A place for measured points."""

    def get(self, name: str, identity: Mapping[str, Any]) -> Stored | None:
        """Return the point, if it has been measured."""

    def put(self, name: str, stored: Stored) -> None:
        """Keep the point, so that nothing but the loss of its disk loses it. Raise `OSError`."""


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement."""

    name: str
    """A name for people: of the file, and in errors."""
    identity: Mapping[str, Any]
    """Everything that determines the result, as JSON."""
    measure: Callable[[], Mapping[str, Any]]
    """The function that makes it, at the top of a module (it goes to another process).

    It raises `RunError` and the like.
    """
    cost: float = 0.0
    """Expected duration in any unit: the longest begin first, so that none remains for the end."""
    kind: str = ""
    """Tasks of a kind take times in proportion to their `work`.

    Of those of the same cost the longest begin first, by what others of their kinds took.
    """
    work: float = 1.0


class SweepError(CodedError):
    """A failure of some measurements. The others are stored. Its text is one line."""

    code: Code = "run-failed"


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """One attempt to measure a task."""

    result: Mapping[str, Any]
    wall_s: float
    error: str | None = None
    """The reason why there is no result, if there is none."""


Begin = Callable[[Task], None]
"""A function that is called when a task is about to be measured."""
Keep = Callable[[Task, MeasuredTask], None]
"""A function that is called with each outcome, in the process of the sweep."""


class Cluster(Protocol):
    """The computers that measure."""

    def measure(self, tasks: Sequence[Task], keep: Keep) -> None:
        """Measure `tasks` and call `keep` with each outcome, whatever becomes of single computers.

        Raise `SweepError` if the cluster cannot be used.
        """


def sweep(
    tasks: Sequence[Task],
    store: ResultStore,
    workers: int | Cluster,
    progress: CommandProgress = UNSEEN,
    doing: str = "measuring",
    unit: str = "points",
) -> dict[str, Stored]:
    """Measure what `store` does not have, and return all results by name.

    `workers` is the number of processes on this computer (0: this process), or a cluster.
    `progress` is told of a stage that is called `doing`, and of each result as one of its parts. A
    task that fails does not stop the others. Raise `SweepError` in the end if one did, and
    `OSError` if nothing can be written.
    """
    results: dict[str, Stored] = {}
    missing: list[Task] = []
    for task in tasks:
        stored = store.get(task.name, task.identity)
        if stored is None:
            missing.append(task)
        else:
            results[task.name] = stored
    progress.stage(doing, len(tasks), unit, kept=len(results))
    missing.sort(key=lambda task: -task.cost)
    processes = None
    if isinstance(workers, int):
        processes = max(1, min(workers, len(missing)))
    times = _Times(missing, processes)
    failures: list[str] = []

    def begin(task: Task) -> None:
        progress.doing(f"{doing} {task.name}")
        times.begin(task)

    def keep(task: Task, outcome: MeasuredTask) -> None:
        times.end(task)
        if outcome.error is not None:
            failures.append(f"{task.name}: {outcome.error}")
            return
        stored = Stored(task.identity, outcome.result, round(outcome.wall_s, 3))
        store.put(task.name, stored)
        results[task.name] = stored
        times.add(task, outcome.wall_s)
        progress.done()
        report()

    def report() -> None:
        share = times.share
        if share:
            progress.share(share)

    if workers == 0:
        for task in missing:
            begin(task)
            keep(task, measured(task.measure))
    elif missing and processes is not None:
        pool = _Pool(processes, times, begin, keep, report)
        pool.measure(missing)
    elif missing and not isinstance(workers, int):
        workers.measure(missing, keep)
    if failures:
        more = ""
        if len(failures) > 1:
            more = f" (and {len(failures) - 1} more)"
        raise SweepError(
            f"{failures[0]}{more}; measured points are kept, run the same command again to continue"
        )
    return results


class _Times:
    """The times that tasks take, by their kinds.

    `processes` is how many measure at a time; None: nobody knows.
    """

    def __init__(self, tasks: Sequence[Task], processes: int | None) -> None:
        self._processes = processes
        self._start_s = time.perf_counter()
        self._work: dict[str, float] = defaultdict(float)
        for task in tasks:
            self._work[task.kind] += task.work
        self._done: dict[str, float] = defaultdict(float)
        self._took_s: dict[str, float] = defaultdict(float)
        self._began_s: dict[str, tuple[Task, float]] = {}
        """The tasks that are being measured, and when each began, by name."""

    def begin(self, task: Task) -> None:
        """Count a task as being measured."""
        self._began_s[task.name] = task, time.perf_counter()

    def end(self, task: Task) -> None:
        """Count a task as no longer being measured."""
        self._began_s.pop(task.name, None)

    def add(self, task: Task, took_s: float) -> None:
        """Count a task that is done."""
        self._done[task.kind] += task.work
        self._took_s[task.kind] += took_s

    def expected_s(self, task: Task) -> float:
        """Return the expected duration of a task; infinite for the first of its kind."""
        done = self._done.get(task.kind)
        if done:
            return task.work * self._took_s[task.kind] / done
        return inf

    @property
    def share(self) -> float:
        """Return the share of the tasks' time that is over; 0: there is no telling.

        Kinds of which nothing is known are as the mean. Tasks that are being measured count with
        the time that they have taken.
        """
        paces = {}
        for kind, done in self._done.items():
            if done:
                paces[kind] = self._took_s[kind] / done
        if not paces:
            return 0
        now_s = time.perf_counter()
        mean = fmean(paces.values())
        over_s = fsum(self._took_s.values())
        longest_s = 0.0
        for task, began_s in self._began_s.values():
            lasts_s = now_s - began_s
            if task.kind not in self._done:
                # The first of a kind takes at least as long as it has taken. Without anything
                # better, it is half done: a search may take a hundred times as long as the rest.
                pace = paces.get(task.kind, mean)
                paces[task.kind] = max(pace, 2 * lasts_s / task.work)
            expected_s = task.work * paces[task.kind]
            over_s += min(lasts_s, expected_s)
            longest_s = max(longest_s, expected_s - lasts_s)

        total_s = fsum(work * paces.get(kind, mean) for kind, work in self._work.items())
        if not total_s:
            return 0
        if self._processes is None:
            return min(over_s / total_s, 1)
        # In wall time: processes take long to start, and say nothing about the tasks by that.
        left_s = max((total_s - over_s) / self._processes, longest_s, 0)
        elapsed_s = now_s - self._start_s
        return elapsed_s / (elapsed_s + left_s)

    def take(self, waiting: list[Task]) -> Task:
        """Remove the task from the list that is to begin next."""
        longest = len(waiting) - 1
        last = longest
        for index in range(last, -1, -1):
            task = waiting[index]
            if not task.kind or task.cost != waiting[last].cost:
                break
            if self.expected_s(task) > self.expected_s(waiting[longest]):
                longest = index
        return waiting.pop(longest)


class _Pool:
    """Processes of this computer that measure.

    `begin` and `keep` are called as tasks begin and end, and `report` from time to time.
    """

    def __init__(
        self,
        workers: int,
        times: _Times,
        begin: Begin,
        keep: Keep,
        report: Callable[[], None],
    ) -> None:
        self._workers = workers
        self._times = times
        self._begin = begin
        self._keep = keep
        self._report = report

    def measure(self, tasks: Sequence[Task]) -> None:
        """Measure all tasks.

        Those that were under way when a process died are measured again, each in a process of its
        own, so that only the task at fault fails.
        """
        waiting = list(reversed(tasks))
        while waiting:
            for task in self._measure_until_death(waiting, self._workers):
                self._measure_alone(task)

    def _measure_alone(self, task: Task) -> None:
        for _ in range(_TRIES_ALONE):
            if not self._measure_until_death([task], 1):
                return
        self._keep(task, MeasuredTask({}, 0.0, DIED))

    def _measure_until_death(self, waiting: list[Task], workers: int) -> list[Task]:
        """Measure the tasks of `waiting`, in the order of their times, and remove them from it.

        If a process dies, stop and return those that were under way.
        """
        # gRPC has threads, so processes are not forked.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, context, initializer=depend_on_parent)
        running: dict[Future[MeasuredTask], Task] = {}
        outcomes: list[tuple[Task, MeasuredTask]] = []
        is_broken = False
        try:
            while not is_broken and (waiting or running):
                # No more than can run: an interrupt then waits only for those.
                while waiting and len(running) < workers and not is_broken:
                    task = self._times.take(waiting)
                    self._begin(task)
                    try:
                        with signals_held_back():
                            running[pool.submit(measured, task.measure)] = task
                    except BrokenProcessPool:
                        waiting.append(task)
                        is_broken = True
                # Only now, so that no process waits for the disk.
                for outcome in outcomes:
                    self._keep(*outcome)
                outcomes = []
                ended = wait(running, _REPORT_S, return_when=FIRST_COMPLETED).done
                for future in ended:
                    if isinstance(future.exception(), BrokenProcessPool):
                        is_broken = True
                    else:
                        outcomes.append((running.pop(future), future.result()))
                if not ended:
                    self._report()
            for outcome in outcomes:
                self._keep(*outcome)
            return list(running.values())
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def measured(measure: Callable[[], Mapping[str, Any]]) -> MeasuredTask:
    """Return what `measure` returns, or why it cannot, and how long it took."""
    from echelon.model.documents import DocumentError
    from echelon.planning.policies import PlanError
    from echelon.switches.lowering.lower import LoweringError

    began = time.perf_counter()
    try:
        result = measure()
    except (RunError, PlanError, LoweringError, DocumentError) as error:
        return MeasuredTask({}, time.perf_counter() - began, str(error))
    return MeasuredTask(result, time.perf_counter() - began)
