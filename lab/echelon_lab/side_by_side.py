"""The turns of a comparison side by side, each in a process of its own.

A process gets the scenario and the policy, tells how far it is a few times a second, and sends the
run that it has measured, or the error that ended it. It ends with its turn: what it took of memory
is free for the next. Results are the same as in one process, because nothing of a run depends on
another.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from statistics import fmean
from typing import Any

from echelon.model.errors import RunError
from echelon.model.progress import CommandProgress, clock_text
from echelon_lab import turn_process
from echelon_lab.points.tasks import signals_held_back
from echelon_lab.scenarios.coarse import expected_flows
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.turn_process import TurnReport, TurnWork
from echelon_lab.turns import Start, Turn, simulated_iterations

Show = Callable[[Sequence[str]], None]
"""Shows people a line for each policy in work."""

POLICIES = "policies"
"""The phase of a command in which turns go on side by side."""
LEAST_GAIN_S = 3.0
"""The time to be saved from which processes are worth their start: each imports and takes over the
scenario for some 0.5 to 1 s."""
_FLOW_S = 1.2e-5
"""The time of a flow on the model: 1.3 million took 15 s of a processor (two all-to-alls of 16)."""
_LOOK_S = 1.0
"""The longest time between two reports of how far the command is."""
_SILENCE = 1 / 4
"""The least time left of a turn, as a part of the time since it was last heard of."""
_DIED = "its process ended unexpectedly (out of memory?)"


def gain_s(scenario: Scenario, duration_s: float | None) -> float:
    """Return about how much time processes can save that run the policies of a scenario at once.

    It is the time of all but the longest. `duration_s` is what all take together on packets, and
    None without packets. Raises `PlanError` for a job that cannot run.
    """
    if duration_s is not None:
        return duration_s - duration_s / len(scenario.policies)
    flows = expected_flows(scenario, alone_iterations_s(scenario))
    iteration_s = flows * _FLOW_S / scenario.iterations
    times_s = []
    for choice in scenario.policies:
        iterations = scenario.iterations + simulated_iterations(choice)
        times_s.append(iterations * iteration_s)
    return sum(times_s) - max(times_s)


@dataclass(slots=True)
class _Worker:
    """A process that does a turn."""

    turn: Turn
    process: BaseProcess
    began_s: float
    heard_s: float
    report: TurnReport

    def left_s(self, now_s: float) -> float | None:
        """Return the time left, which counts down between reports."""
        if self.report.left_s is None:
            return None
        silence_s = now_s - self.heard_s
        return max(self.report.left_s - silence_s, silence_s * _SILENCE)

    def line(self, now_s: float) -> str:
        """Return how far it is, for people."""
        report = self.report
        parts = [report.doing, f"{report.done:.0f} of {report.parts:.0f} iterations"]
        left_s = self.left_s(now_s)
        if left_s is not None:
            parts.append(f"about {clock_text(max(left_s, 1))} left")
        return ", ".join(parts)


class SideBySide:
    """Processes that run policies.

    Args:
        start: the place where policies run (`echelon_lab.run.place`), in virtual time.
        workers: the number of policies that run at a time.
        show: shows a line for each of them.
    """

    def __init__(self, start: Start, workers: int, show: Show | None = None) -> None:
        self._start = start
        self._workers = workers
        self._show = show

    def runs(
        self,
        scenario: Scenario,
        target: str,
        turns: Sequence[Turn],
        progress: CommandProgress,
    ) -> Iterator[tuple[Turn, PolicyRun]]:
        """Do the turns, and yield each with its run as soon as there is one.

        `progress` is told of the parts of its stage, which are iterations, and of the phase
        `POLICIES`. Raises what a turn raises, which ends the others.
        """
        progress.begin(POLICIES)
        crew = _Crew(scenario, turns, self._workers, progress, self._show)
        try:
            yield from crew.runs(self._start, target)
        finally:
            crew.end()


class _Crew:
    """The processes of one comparison."""

    def __init__(
        self,
        scenario: Scenario,
        turns: Sequence[Turn],
        workers: int,
        progress: CommandProgress,
        show: Show | None,
    ) -> None:
        self._scenario = scenario
        self._parts = scenario.iterations * len(scenario.jobs)
        self._waiting = list(turns)
        self._size = workers
        self._progress = progress
        self._show = show
        self._workers: dict[Connection, _Worker] = {}
        self._paces = _Paces(workers)
        self._said = ""
        self._failure: BaseException | None = None
        # gRPC has threads, so processes are not forked.
        self._context = multiprocessing.get_context("spawn")

    def runs(self, start: Start, target: str) -> Iterator[tuple[Turn, PolicyRun]]:
        while self._waiting or self._workers:
            while self._waiting and len(self._workers) < self._size:
                self._begin(start, target)
            for worker, run in self._heard():
                if self._waiting and self._failure is None:
                    # Before anybody keeps the result: no processor waits for the disk.
                    self._begin(start, target)
                yield worker.turn, run
            if self._failure is not None:
                raise self._failure
            self._report()

    def end(self) -> None:
        """End all processes that are under way."""
        for worker in self._workers.values():
            worker.process.kill()
        for connection, worker in self._workers.items():
            worker.process.join()
            connection.close()
        self._workers = {}
        if self._show is not None:
            self._show([])

    def _begin(self, start: Start, target: str) -> None:
        turn = self._waiting.pop(0)
        ideal = None
        if turn.is_ideal:
            ideal = turn.run
        work = TurnWork(self._scenario, target, start, turn.choice, turn.label, ideal)
        connection, its_end = self._context.Pipe(duplex=False)
        process = self._context.Process(target=turn_process.work, args=(its_end, work), daemon=True)
        report = TurnReport(turn.label, 0, self._parts, None)
        with signals_held_back():
            process.start()
            # Now only the process holds its end, and this one notices when it dies.
            its_end.close()
            now_s = time.monotonic()
            self._workers[connection] = _Worker(turn, process, now_s, now_s, report)

    def _heard(self) -> list[tuple[_Worker, PolicyRun]]:
        """Wait for messages, and return the turns that are over. Note the first error."""
        over = []
        for connection in wait(list(self._workers), _LOOK_S):
            assert isinstance(connection, Connection)
            worker = self._workers[connection]
            message: Any
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = RunError(f"policy {worker.turn.label}: {_DIED}")
            if isinstance(message, BaseException):
                self._failure = self._failure or message
                continue
            now_s = time.monotonic()
            if isinstance(message, TurnReport):
                self._progress.done(message.done - worker.report.done)
                worker.report = message
                worker.heard_s = now_s
                continue
            self._progress.done(self._parts - worker.report.done)
            self._paces.add(worker.turn, now_s - worker.began_s)
            del self._workers[connection]
            worker.process.join()
            connection.close()
            over.append((worker, message))
        return over

    def _report(self) -> None:
        """Say how far all are."""
        now_s = time.monotonic()
        workers = list(self._workers.values())
        texts = []
        for worker in workers:
            report = worker.report
            if report.done:
                texts.append(f"{report.doing} ({report.done / report.parts:.0%})")
            else:
                texts.append(report.doing)
        text = ", ".join(texts)
        if text and text != self._said:
            self._progress.doing(text)
        self._said = text
        if self._show is not None:
            self._show([worker.line(now_s) for worker in workers])
        share = self._paces.share(now_s, workers, self._waiting)
        if share:
            self._progress.share(share)


@dataclass(slots=True)
class _Paces:
    """The times that turns take, by what they consist of."""

    size: int
    began_s: float = field(default_factory=time.monotonic)
    took_s: dict[tuple[str, bool], list[float]] = field(default_factory=dict)

    def add(self, turn: Turn, took_s: float) -> None:
        """Count a turn that is over."""
        self.took_s.setdefault(_like(turn), []).append(took_s)

    def share(
        self,
        now_s: float,
        workers: Sequence[_Worker],
        waiting: Sequence[Turn],
    ) -> float:
        """Return the share of the time that is over; 0: there is no telling.

        Turns that have not begun take as long as others of their kind, or as the mean of all.
        """
        times_s = {kind: list(took_s) for kind, took_s in self.took_s.items()}
        lefts_s = []
        for worker in workers:
            left_s = worker.left_s(now_s)
            if left_s is None:
                continue
            lefts_s.append(left_s)
            whole_s = now_s - worker.began_s + left_s
            times_s.setdefault(_like(worker.turn), []).append(whole_s)
        if not times_s:
            return 0
        mean_s = fmean(time_s for times in times_s.values() for time_s in times)
        for worker in workers:
            if worker.left_s(now_s) is None:
                lasts_s = now_s - worker.began_s
                lefts_s.append(max(mean_s - lasts_s, lasts_s * _SILENCE))
        for turn in waiting:
            lefts_s.append(fmean(times_s.get(_like(turn), [mean_s])))
        left_s = max(sum(lefts_s) / self.size, max(lefts_s, default=0.0))
        elapsed_s = now_s - self.began_s
        return elapsed_s / (elapsed_s + left_s)


def _like(turn: Turn) -> tuple[str, bool]:
    """Return what turns have in common that take about as long."""
    return turn.kind, turn.simulated_iterations > 0
