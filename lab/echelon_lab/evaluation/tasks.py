"""The measurements of an evaluation, as tasks of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from echelon.model.progress import UNSEEN, CommandProgress
from echelon_lab.evaluation.measure import Knowledge, Mode, Origin, describe, prepared, slowdowns
from echelon_lab.evaluation.results import ScenarioResult, scored
from echelon_lab.points.store import code_digest
from echelon_lab.points.tasks import ResultStore, Task, sweep
from echelon_lab.run import scenario_digest
from echelon_lab.scenarios.scenario import PolicyChoice

_SOURCES = tuple(
    Path(__file__).with_name(f"{name}.py")
    for name in ("demand", "draw", "fabrics", "limit", "measure", "shapes")
)
"""The modules here that determine a measurement."""
Half = Literal["tune", "report"]
"""The half of the seeds: even ones to choose between variants, odd ones to report the choice."""
HALVES: tuple[Half, ...] = get_args(Half)
BASELINE = PolicyChoice("fair")
"""The policy that all others are compared with."""


Measurement = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measurements to make."""

    half: Half
    scenarios: int
    """The number of scenarios: the first of the half."""
    policies: tuple[PolicyChoice, ...]
    """The policies to measure, `BASELINE` among them."""
    iterations: int
    """The length of a run, in iterations of the scenario's slowest job alone."""
    packets: int = 0
    """The number of scenarios that also run on switches."""
    ideal: bool = False
    """Whether policies also run with the rates that they would ideally give."""
    knowledge: Knowledge = Knowledge()  # noqa: RUF009
    """The draws of each run, and what policies know."""
    files: tuple[str, ...] = ()
    """The paths of scenario files to run instead of drawn scenarios."""

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Return the scenarios."""
        if self.files:
            return self.files
        first = HALVES.index(self.half)
        return tuple(range(first, first + 2 * self.scenarios, 2))

    def modes(self, place: int) -> tuple[Mode, ...]:
        """Return the modes in which scenario number `place`, from 0, runs."""
        modes: list[Mode] = ["plan"]
        if self.ideal:
            modes.append("ideal")
        if place < self.packets:
            modes.append("packets")
        return tuple(modes)

    def identity(self) -> dict[str, Any]:
        """Return the evaluation as JSON."""
        return {
            "half": self.half,
            "scenarios": list(self.files) or self.scenarios,
            "policies": [choice.label for choice in self.policies],
            "iterations": self.iterations,
            "packets": self.packets,
            "ideal": self.ideal,
            **asdict(self.knowledge),
        }


def evaluate(
    evaluation: Evaluation,
    store: ResultStore,
    workers: int,
    progress: CommandProgress = UNSEEN,
) -> list[ScenarioResult]:
    """Return all scenarios' results, of which it measures what `store` does not have.

    This is done in `workers` processes (0: in this one). Raise `SweepError` if a process ends
    unexpectedly, and `OSError` if nothing can be written.
    """
    tasks = _tasks(evaluation)
    points = sweep(tasks, store, workers, progress)
    results = []
    for place, origin in enumerate(evaluation.origins):
        runs = {}
        for choice in evaluation.policies:
            for mode in evaluation.modes(place):
                runs[choice.label, mode] = points[_name(origin, choice, mode)].result
        results.append(scored(origin, points[_name(origin)].result, runs))
    return results


def _tasks(evaluation: Evaluation) -> list[Task]:
    knowledge = asdict(evaluation.knowledge)
    tasks: list[Task] = []

    def add(
        name: str,
        mode: Mode | None,
        identity: Mapping[str, Any],
        measure: Measurement,
        kind: str,
    ) -> None:
        code = code_digest(*_SOURCES, packets=mode == "packets")
        identity = {**identity, "mode": mode, "code": code}
        # Scenario after scenario, because a process keeps the last ones that it has drawn.
        tasks.append(
            Task(
                name,
                identity,
                measure,
                cost=-len(tasks),
                kind=kind,
            )
        )

    iterations = evaluation.iterations
    for place, origin in enumerate(evaluation.origins):
        if isinstance(origin, str):
            scenario: dict[str, Any] = {"scenario": scenario_digest(prepared(origin).scenario)}
        else:
            scenario = {"seed": origin}
        add(_name(origin), None, scenario, partial(describe, origin), "")
        for mode in evaluation.modes(place):
            for choice in evaluation.policies:
                run = {"policy": choice.label, "iterations": iterations, **knowledge}
                measure = partial(slowdowns, origin, choice, mode, iterations, evaluation.knowledge)
                name = _name(origin, choice, mode)
                add(name, mode, {**scenario, **run}, measure, f"{choice.label}, {mode}")
    return tasks


def _name(
    origin: Origin,
    choice: PolicyChoice | None = None,
    mode: Mode = "plan",
) -> str:
    name = f"seed {origin}"
    if isinstance(origin, str):
        name = origin
    if choice is None:
        return name
    return f"{name}, {choice.label}, {mode}"
