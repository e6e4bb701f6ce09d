"""The runs of an advice, stage after stage, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from echelon.model.progress import UNSEEN, CommandProgress, Phase
from echelon_lab.advice import WITHOUT_KNOWLEDGE
from echelon_lab.advising.crew import Crew, Outcome
from echelon_lab.advising.stages import Run, Stage, is_reactive, searched_iterations
from echelon_lab.points.store import Stored
from echelon_lab.points.tasks import ResultStore
from echelon_lab.scenarios.coarse import Setup
from echelon_lab.scenarios.scenario import PolicyChoice

FIRST_TABLE_S = 14.0
"""The time after which the first table is shown, of what there is: people wait for 15 s."""
_WORTH_A_TABLE_S = 5.0
"""The least time until the next table for which one is worth its lines."""
_STAGE_PART = 1 / 2
"""The part of the time left that a stage takes, unless no stage is as short."""
_SAFE_PART = 0.9
"""The part of the time left that is planned with."""
_FIRST_PART = 1 / 4
"""The part of the budget that a run of the first stage may take, if another took less: with 1,000
jobs, a plan of `echelon` takes three times as long to simulate as fair sharing."""
_REACTIVE_PART = 1 / 10
"""The same where the policy decides at each event: such a run seldom ends much later."""
_PATIENCE = 3
"""How many times as long as expected a run may take."""
_LEAST_LIMIT_S = 5.0
"""The time that any run may take: what is expected of short ones says little."""
_SEARCH_S = 40.0
"""The time of a search, before there was one: at most this long on a machine that does nothing
else (`search.MOST_WORK`)."""
_BEAT_S = 0.5
"""The time between two looks at the clock."""


@dataclass(slots=True)
class _Measured:
    """The results of one policy."""

    runs: dict[Run, Mapping[str, Any]] = field(default_factory=dict)
    took_s: dict[Stage, float] = field(default_factory=dict)
    """The longest run, by stage."""
    problem: str = ""
    """The reason why it takes no further part."""

    def add(
        self,
        run: Run,
        result: Mapping[str, Any],
        took_s: float,
    ) -> None:
        """Take over the end of a run."""
        self.runs[run] = result
        self.took_s[run.stage] = max(took_s, self.took_s.get(run.stage, 0.0))
        self.problem = result.get("error", self.problem)

    def exact(self, stage: Stage) -> Mapping[str, Any] | None:
        """Return the result of a stage in which job files are right."""
        for run, result in self.runs.items():
            if run.stage == stage and run.draw is None:
                return result
        return None

    def doubted(self) -> Mapping[str, float] | None:
        """Return the slowdowns if jobs are misjudged, of the last stage that has any, by job."""
        stage = None
        for run in self.runs:
            if run.draw is not None:
                stage = run.stage
        by_draw = []
        for run, result in self.runs.items():
            if run.stage == stage and run.draw is not None and "slowdowns" in result:
                by_draw.append(result["slowdowns"])
        if not by_draw:
            return None
        means = {}
        for job in by_draw[0]:
            means[job] = fmean(slowdowns[job] for slowdowns in by_draw)
        return means


@dataclass(frozen=True, slots=True)
class Estimates:
    """The state of an advice."""

    exact: Mapping[str, Mapping[str, Any]]
    """The result of the finest stage, with ``stage`` and ``noise``, by policy, or ``error``."""
    doubted: Mapping[str, Mapping[str, Any]]
    """The slowdowns if jobs are misjudged, by policy, as far as there are any."""
    is_final: bool
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class _Step:
    """A stage, and the policies that go through it."""

    number: int
    choices: Sequence[PolicyChoice]
    expected_s: float


class Campaign:
    """The runs of policies on a scenario.

    Args:
        setup: the scenario.
        choices: the policies.
        stages: the stages, the coarsest first.
        crew: what does the runs.
        store: where results are kept, and looked for.
        digests: those of the scenario and the code, by which results are kept.
        budget_s: the time from `began_s` on after which no run goes on.
        progress: what is told how far it is.
        now_s: the clock.
        began_s: when the command began; None: now.
    """

    def __init__(
        self,
        setup: Setup,
        choices: Sequence[PolicyChoice],
        stages: Sequence[Stage],
        crew: Crew,
        store: ResultStore,
        digests: tuple[str, str],
        budget_s: float,
        progress: CommandProgress = UNSEEN,
        now_s: Callable[[], float] = time.monotonic,
        began_s: float | None = None,
    ) -> None:
        self._setup = setup
        self._searched = {choice: searched_iterations(choice) for choice in choices}
        # First what others are compared with, then what takes longest.
        self._choices = sorted(self._searched, key=self._place)
        self._stages = stages
        self._crew = crew
        self._store = store
        self._digests = digests
        self._progress = progress
        self._now_s = now_s
        if began_s is None:
            self._began_s = now_s()
        else:
            self._began_s = began_s
        self._budget_s = budget_s
        self._measured = {choice: _Measured() for choice in self._choices}
        self._flows = {}
        for stage in stages:
            self._flows[stage] = setup.flows(stage.grain, stage.iterations)
        self._phase_began_s = self._began_s
        self._has_shown = False
        self._under_way: dict[Run, float] = {}
        """When each run that is under way began."""

    @property
    def _left_s(self) -> float:
        return self._began_s + self._budget_s - self._now_s()

    def estimates(self, *, is_final: bool = False) -> Estimates:
        """Return what is known now."""
        exact = {}
        doubted = {}
        for choice, measured in self._measured.items():
            best = None
            for number, stage in enumerate(self._stages):
                result = measured.exact(stage)
                if result is not None and "error" not in result:
                    best = {
                        **result,
                        "stage": number,
                        "run": stage.text,
                        "noise": stage.error,
                    }
            if best is not None:
                exact[choice.label] = best
            elif measured.problem:
                exact[choice.label] = {"error": measured.problem}
            slowdowns = measured.doubted()
            if slowdowns is not None:
                doubted[choice.label] = {"slowdowns": slowdowns}
        elapsed_s = self._now_s() - self._began_s
        return Estimates(exact, doubted, is_final, elapsed_s)

    def tables(self) -> Iterator[Estimates]:
        """Measure, and yield estimates that get better; the last ones are final.

        An early table has what there is; tables that another would follow at once are left out.
        """
        self._progress.expect([Phase("advice")])
        self._progress.begin("advice")
        self._phase_began_s = self._now_s()
        step: _Step | None = _Step(0, self._choices, 0.0)
        while step is not None:
            yield from self._stage(step.number, step.choices)
            measured = self._ordered(self._stages[step.number])
            step = self._following(step.number, measured, self._left_s)
            if step is not None and step.expected_s > _WORTH_A_TABLE_S:
                self._has_shown = True
                yield self.estimates()
        yield self.estimates(is_final=True)

    # -- stages ------------------------------------------------------------------------------------

    def _following(
        self,
        number: int,
        choices: Sequence[PolicyChoice],
        left_s: float,
    ) -> _Step | None:
        """Return the stage after another one of these policies; None: there is none.

        It is the finest that takes but a part of the time left, or all of it. If there is none, it
        is the next one, as far as there is time for it: the first policies come first.
        """
        if number + 1 == len(self._stages) or len(choices) < 2:
            return None
        for part in (_STAGE_PART, _SAFE_PART):
            for index in reversed(range(number + 1, len(self._stages))):
                stage = self._stages[index]
                expected_s = self._expected_stage_s(stage, choices)
                if expected_s <= part * left_s:
                    return _Step(index, choices, expected_s)
        # Two policies can be compared.
        following = self._stages[number + 1]
        least_s = [self._expected_s(choice, following) for choice in choices[:2]]
        if sum(least_s) <= _SAFE_PART * left_s:
            return _Step(number + 1, choices, left_s)
        return None

    def _place(self, choice: PolicyChoice) -> tuple[bool, bool, bool]:
        # Time may be short: what takes long and is seldom the best comes last.
        return choice.label != WITHOUT_KNOWLEDGE, not self._searched[choice], is_reactive(choice)

    def _ordered(self, stage: Stage) -> list[PolicyChoice]:
        """Return the policies that went through a stage.

        Fair sharing comes first, then those that search, which takes longest, then the best means.
        """
        means = {}
        for choice, measured in self._measured.items():
            result = measured.exact(stage)
            if result is not None and not measured.problem:
                means[choice] = fmean(result["slowdowns"].values())

        def place(choice: PolicyChoice) -> tuple[bool, bool, float]:
            is_other, is_quick, _ = self._place(choice)
            return is_other, is_quick, means[choice]

        return sorted(means, key=place)

    def _runs(self, stage: Stage, choices: Sequence[PolicyChoice]) -> list[Run]:
        """Return the runs of a stage: those with right job files first."""
        runs = []
        for draw in (None, *range(stage.draws)):
            for choice in choices:
                runs.append(Run(choice, stage, draw))
        return runs

    def _stage(self, number: int, choices: Sequence[PolicyChoice]) -> Iterator[Estimates]:
        """Do the runs of a stage. Yield a table if it is time for the first one."""
        stage = self._stages[number]
        runs = self._runs(stage, choices)
        waiting = []
        for run in runs:
            identity = run.identity(*self._digests)
            stored = self._store.get("", identity)
            if stored is None:
                waiting.append(run)
            else:
                self._measured[run.choice].add(run, stored.result, stored.wall_s)
        kept = len(runs) - len(waiting)
        self._progress.stage("measuring", len(runs), "runs", kept=kept)
        waiting.reverse()

        while (waiting or self._under_way) and self._left_s > 0:
            while waiting and self._crew.free:
                self._begin(waiting.pop())
            timeout_s = min(_BEAT_S, self._left_s)
            timeout_s = max(0.0, timeout_s)
            for outcome in self._crew.outcomes(timeout_s):
                self._keep(outcome)
            self._stop_slow(number)
            self._report(number, choices, waiting)
            if self._is_first_table_due():
                self._has_shown = True
                yield self.estimates()
                # Whoever shows progress has stopped to print the table.
                kept = len(runs) - len(waiting) - len(self._under_way)
                self._progress.stage("measuring", len(runs), "runs", kept=kept)
        for run in list(self._under_way):
            self._stop(run)
        if self._left_s <= 0 and not number:
            self._miss("not measured in the time given")

    def _begin(self, run: Run) -> None:
        if self._measured[run.choice].problem:
            self._progress.done()
            return
        self._progress.doing(f"measuring {run.text}, {run.stage.text}")
        self._under_way[run] = self._now_s()
        self._crew.begin(run)

    def _keep(self, outcome: Outcome) -> None:
        run = outcome.run
        self._under_way.pop(run, None)
        # Faults may be gone next time, and what cannot be planned is soon tried again.
        if "error" not in outcome.result:
            identity = run.identity(*self._digests)
            took_s = round(outcome.took_s, 3)
            self._store.put("", Stored(identity, outcome.result, took_s))
        self._measured[run.choice].add(run, outcome.result, outcome.took_s)
        self._progress.done()

    def _stop(self, run: Run) -> None:
        del self._under_way[run]
        self._crew.stop(run)

    def _stop_slow(self, number: int) -> None:
        """End the runs that take too long, whose policies then take no further part."""
        stage = self._stages[number]
        for run, began_s in list(self._under_way.items()):
            limit_s = self._limit_s(run, number)
            if self._now_s() - began_s > limit_s:
                self._stop(run)
                self._progress.done()
                problem = f"a run of {stage.text} takes more than {limit_s:.0f} s"
                self._measured[run.choice].problem = problem

    def _limit_s(self, run: Run, number: int) -> float:
        """Return how long a run may take."""
        if run.choice.label == WITHOUT_KNOWLEDGE:
            # All others are compared with it.
            return self._budget_s
        if number:
            expected_s = self._expected_s(run.choice, run.stage)
            return max(_LEAST_LIMIT_S, _PATIENCE * expected_s)
        others_s = self._others_s(run.stage)
        if not others_s:
            return self._budget_s
        part = _REACTIVE_PART if is_reactive(run.choice) else _FIRST_PART
        return max(part * self._budget_s, _PATIENCE * min(others_s))

    def _others_s(self, stage: Stage) -> list[float]:
        """Return the times of the runs of a stage."""
        times_s = []
        for measured in self._measured.values():
            if stage in measured.took_s:
                times_s.append(measured.took_s[stage])
        return times_s

    def _miss(self, problem: str) -> None:
        for measured in self._measured.values():
            if not measured.runs and not measured.problem:
                measured.problem = problem

    # -- time --------------------------------------------------------------------------------------

    def _expected_s(self, choice: PolicyChoice, stage: Stage) -> float:
        """Return how long a run will take, by the last stage that its policy went through."""
        took_s = self._measured[choice].took_s
        if stage in took_s:
            return took_s[stage]
        if not took_s:
            # As the others, in the first stage.
            return fmean(self._others_s(stage) or [self._budget_s])
        before = list(took_s)[-1]
        growth = self._flows[stage] / self._flows[before]
        expected_s = took_s[before] * max(1.0, growth)
        if stage.searches and not before.searches:
            iteration_s = expected_s / stage.iterations
            expected_s += min(_SEARCH_S, self._searched[choice] * iteration_s)
        return expected_s

    def _expected_stage_s(self, stage: Stage, choices: Sequence[PolicyChoice]) -> float:
        expected_s = [self._expected_s(choice, stage) for choice in choices]
        total_s = (1 + stage.draws) * sum(expected_s)
        return max([total_s / self._crew.size, *expected_s])

    def _report(
        self,
        number: int,
        choices: Sequence[PolicyChoice],
        waiting: Sequence[Run],
    ) -> None:
        """Say how far it is, by the paces so far, once the first stage has one."""
        if not self._has_shown and not number:
            return
        stage = self._stages[number]
        now_s = self._now_s()
        left_s = 0.0
        longest_s = 0.0
        for run, began_s in self._under_way.items():
            expected_s = self._expected_s(run.choice, stage)
            rest_s = max(0.0, expected_s - (now_s - began_s))
            left_s += rest_s
            longest_s = max(longest_s, rest_s)
        for run in waiting:
            rest_s = self._expected_s(run.choice, stage)
            left_s += rest_s
            longest_s = max(longest_s, rest_s)
        left_s = max(left_s / self._crew.size, longest_s)
        step: _Step | None = _Step(number, choices, left_s)
        while step is not None:
            later_s = self._left_s - left_s
            step = self._following(step.number, step.choices, later_s)
            if step is not None:
                left_s += step.expected_s
        left_s = min(left_s, self._left_s)
        left_s = max(left_s, 0.0)
        over_s = now_s - self._phase_began_s
        if over_s:
            self._progress.share(over_s / (over_s + left_s))

    def _is_first_table_due(self) -> bool:
        if self._has_shown or self._now_s() - self._began_s < FIRST_TABLE_S:
            return False
        measured = sum(bool(measured.runs) for measured in self._measured.values())
        return measured >= min(2, len(self._choices))
