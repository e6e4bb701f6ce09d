"""What one policy takes on one scenario, in a process of its own.

`python -m bench.mixes.measure FILE POLICY ITERATIONS` prints a `Measured` as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import ParamSpec, TypeVar
from unittest import mock

from echelon.planning.fluid import simulate
from echelon.planning.fluid.result import FluidResult
from echelon.planning.policies import make_policy
from echelon_lab import FLUID
from echelon_lab.scenarios.results import PolicyRun, assemble, to_text
from echelon_lab.scenarios.scenario import load_scenario

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measured:
    """Counts of the engine, and seconds of the processor."""

    hosts: int
    jobs: int
    flows: int
    """The flows of an iteration of each job."""
    started: int
    """Flows that began during the run."""
    settings: int
    """The number of times that rates were set."""
    work: int
    """The sum over the settings of rates, of the links on the paths concerned."""
    load_s: float
    plan_s: float
    run_s: float
    results_s: float
    peak_mb: float
    mean_slowdown: float
    worst_slowdown: float

    @property
    def setting_us(self) -> float:
        return 1e6 * self.run_s / max(1, self.settings)

    @property
    def links_near(self) -> float:
        """Links on the paths concerned, for each setting of rates."""
        return self.work / max(1, self.settings)


class _Stopwatch:
    """Adds up the processor's time in a function."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def timed(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            begin_s = process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.elapsed_s += process_time() - begin_s

        return call


def measure(
    file: Path,
    policy: str,
    iterations: int,
) -> Measured:
    """Return what the policy takes on the scenario of a file, results included.

    Pictures are not drawn. The engine is built before, if it is not yet.
    """
    begin_s = process_time()
    scenario = load_scenario(file)
    load_s = process_time() - begin_s

    # The plan is made inside the run; a search has a method of its own for it.
    planning = _Stopwatch()
    chosen = make_policy(policy)
    if hasattr(chosen, "best_plan"):
        planner = "best_plan"
    else:
        planner = "plan"
    timed_plan = planning.timed(getattr(chosen, planner))
    begin_s = process_time()
    with mock.patch.object(chosen, planner, timed_plan):
        result = simulate(
            scenario.jobs,
            scenario.fabric,
            chosen,
            iterations,
            until=scenario.until,
            windows=scenario.transport.windows,
        )
    run_s = process_time() - begin_s - planning.elapsed_s

    begin_s = process_time()
    run = PolicyRun(result.jobs, paths=result.plan.paths)
    document = assemble(scenario, FLUID, {policy: run})
    to_text(document)
    results_s = process_time() - begin_s

    slowdowns: list[float] = []
    for job in document["results"][policy]["jobs"].values():
        slowdowns.append(job["mean_slowdown"])
    mean_slowdown = sum(slowdowns) / len(slowdowns)
    return Measured(
        hosts=len(scenario.fabric.hosts),
        jobs=len(scenario.jobs),
        flows=sum(len(job.flows) for job in scenario.jobs),
        started=_started(result),
        settings=result.allocations,
        work=result.work,
        load_s=load_s,
        plan_s=planning.elapsed_s,
        run_s=run_s,
        results_s=results_s,
        peak_mb=_peak_mb(),
        mean_slowdown=mean_slowdown,
        worst_slowdown=max(slowdowns),
    )


def _started(result: FluidResult) -> int:
    started = 0
    for record in result.jobs.values():
        started += sum(len(iteration.flows) for iteration in record.iterations)
    return started


def _peak_mb() -> float:
    """Return the most memory of this process.

    `getrusage` would count what the process that started this one had before.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


if __name__ == "__main__":
    _, path, label, count = sys.argv
    measured = measure(Path(path), label, int(count))
    print(json.dumps(asdict(measured)))
