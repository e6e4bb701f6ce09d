"""The turns of a comparison side by side, each in a process of its own.

A process gets the scenario and the policy, tells how far it is a few times a second, and sends the
run that it has measured, or the error that ended it. It ends with its turn: what it took of memory
is free for the next. Results are the same as in one process, because nothing of a run depends on
another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from statistics import fmean
from typing import Any

from echelon.model.errors import RunError
from echelon.model.progress import CommandProgress, HowFar
from echelon_lab import turn_process
from echelon_lab.points.processes import (
    DIED,
    PipedProcess,
    end_all,
    signals_held_back,
    start_process,
)
from echelon_lab.scenarios.coarse import expected_flows
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import Scenario
from echelon_lab.turn_process import TurnWork
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
    piped: PipedProcess
    began_s: float
    heard_s: float
    report: HowFar

    def left_s(self, now_s: float) -> float | None:
        """Return the time left, which counts down between reports."""
        if self.report.left_s is None:
            return None
        silence_s = now_s - self.heard_s
        return max(self.report.left_s - silence_s, silence_s * _SILENCE)

    def line(self, now_s: float) -> str:
        """Return the progress as a text for people."""
        report = replace(self.report, left_s=self.left_s(now_s))
        parts = filter(None, (report.doing, report.counted, report.left))
        return ", ".join(parts)


def _show_nothing(_lines: Sequence[str]) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Processes that run policies."""

    start: Start
    """The place where policies run (`echelon_lab.run.place`), in virtual time."""
    workers: int
    """The number of policies that run at a time."""
    show: Show = _show_nothing

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
        crew = _Crew(self, scenario, target, turns, progress)
        try:
            yield from crew.runs()
        finally:
            crew.end()


class _Crew:
    """The processes of one comparison."""

    def __init__(
        self,
        settings: SideBySide,
        scenario: Scenario,
        target: str,
        turns: Sequence[Turn],
        progress: CommandProgress,
    ) -> None:
        self._settings = settings
        self._show = settings.show
        self._scenario = scenario
        self._target = target
        self._parts = scenario.iterations * len(scenario.jobs)
        self._waiting = list(turns)
        self._progress = progress
        self._workers: dict[Connection, _Worker] = {}
        self._paces = _Paces(settings.workers)
        self._last_text = ""
        self._failure: BaseException | None = None

    def runs(self) -> Iterator[tuple[Turn, PolicyRun]]:
        """Do all turns, and yield each with its run. Raises what a turn raises."""
        self._fill()
        while self._workers:
            over = self._heard()
            if self._failure is None:
                # Before anybody keeps the results: no processor waits for the disk.
                self._fill()
            yield from over
            if self._failure is not None:
                raise self._failure
            self._report()

    def _fill(self) -> None:
        """Begin as many turns as there are free places."""
        while self._waiting and len(self._workers) < self._settings.workers:
            self._begin()

    def end(self) -> None:
        """End all processes that are under way."""
        end_all(worker.piped for worker in self._workers.values())
        self._workers = {}
        self._show([])

    def _begin(self) -> None:
        turn = self._waiting.pop(0)
        ideal = None
        if turn.is_ideal:
            ideal = turn.run
        work = TurnWork(
            self._scenario,
            self._target,
            self._settings.start,
            turn.choice,
            turn.label,
            ideal,
        )
        report = HowFar(turn.label, 0, self._parts, "iterations", elapsed_s=0.0, left_s=None)
        # An interrupt finds the process among the workers, and so it is ended.
        with signals_held_back():
            piped = start_process(turn_process.work, work)
            now_s = time.monotonic()
            self._workers[piped.connection] = _Worker(turn, piped, now_s, now_s, report)

    def _heard(self) -> list[tuple[Turn, PolicyRun]]:
        """Wait for messages, and return the turns that are over. Note the first error."""
        over = []
        for connection in wait(list(self._workers), _LOOK_S):
            assert isinstance(connection, Connection)
            worker = self._workers[connection]
            message: Any
            try:
                message = connection.recv()
            except (EOFError, OSError):
                message = RunError(f"policy {worker.turn.label}: {DIED}")
            if isinstance(message, BaseException):
                self._failure = self._failure or message
                continue
            now_s = time.monotonic()
            if isinstance(message, HowFar):
                self._progress.done(message.done - worker.report.done)
                worker.report = message
                worker.heard_s = now_s
                continue
            self._progress.done(self._parts - worker.report.done)
            self._paces.add(worker.turn, now_s - worker.began_s)
            del self._workers[connection]
            worker.piped.close()
            over.append((worker.turn, message))
        return over

    def _report(self) -> None:
        """Report the progress of all turns."""
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
        if text and text != self._last_text:
            self._progress.doing(text)
        self._last_text = text
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
