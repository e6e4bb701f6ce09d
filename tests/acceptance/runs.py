"""Whole runs of committed scenarios.

A run is made once for all tests of a process, so the tests of one scenario form a group, which runs
in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from echelon.planning.execution import IterationRecord, JobRecord
from echelon.planning.fluid import alone_iteration_s
from echelon.planning.policies import make_policy
from echelon_lab.scenarios.results import PolicyRun
from echelon_lab.scenarios.scenario import Scenario, load_scenario
from echelon_lab.virtual import fluid_run
from echelon_lab.virtual import run as virtual_run

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "topologies" / "scenarios"
WORST = ROOT / "tests" / "scenarios" / "worst"


def grouped(name: str, value: object = None, *marks: pytest.MarkDecorator) -> Any:
    """Return a parameter, `name` itself by default, whose tests run with the others of the scenario
    `name`.
    """
    return pytest.param(
        name if value is None else value, marks=[pytest.mark.xdist_group(name), *marks]
    )


@cache
def scenario(name: str) -> Scenario:
    """Return a committed scenario, or a worst case that the tests keep."""
    file = next(
        folder / f"{name}.yaml"
        for folder in (SCENARIOS, WORST)
        if (folder / f"{name}.yaml").exists()
    )
    return load_scenario(file)


@dataclass(frozen=True)
class Run:
    scenario: Scenario
    run: PolicyRun

    def record(self, job: str) -> JobRecord[Fraction]:
        return self.run.records[job]

    def iteration(self, job: str, number: int = 1) -> IterationRecord[Fraction]:
        return self.record(job).iterations[number - 1]

    def iteration_times_s(self, job: str) -> list[float]:
        return [
            float(i.finish - i.start) for i in self.record(job).iterations if i.finish is not None
        ]

    def compute_finish_s(self, job: str, number: int = 1) -> float:
        """Return the end of the last compute unit, from the iteration's start."""
        iteration = self.iteration(job, number)
        return float(
            max(span.finish for span in iteration.computes.values() if span.finish)
            - iteration.start
        )

    def slowdowns(self) -> dict[str, float]:
        """Return the mean iteration time over the time alone, by job, once a third of the
        iterations have passed.
        """
        out = {}
        for job in self.scenario.jobs:
            times = self.iteration_times_s(job.name)
            settled = times[len(times) // 3 :]
            out[job.name] = (
                sum(settled) / len(settled) / float(alone_iteration_s(job, self.scenario.fabric))
            )
        return out


def perform(
    target: Callable[..., PolicyRun], which: Scenario, policy: str, **parameters: str
) -> Run:
    run = target(
        which, policy, lambda: make_policy(policy, **parameters), lambda _job, _iteration: None
    )
    return Run(which, run)


@cache
def softswitch(name: str, policy: str, order: str | None = None, **changes: object) -> Run:
    """Run `policy` over packets, in this order; `changes` replace values of the scenario."""
    parameters = {} if order is None else {"order": order}
    return perform(virtual_run.run, replace(scenario(name), **changes), policy, **parameters)  # type: ignore[arg-type]


@cache
def fluid(name: str, policy: str) -> Run:
    return perform(fluid_run.run, scenario(name), policy)


@cache
def ideal(name: str, policy: str) -> Run:
    """Return the run with the rates that the policy itself would give."""
    return perform(partial(fluid_run.run, ideal=True), scenario(name), policy)
