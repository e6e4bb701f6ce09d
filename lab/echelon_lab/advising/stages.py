"""The stages of an advice, and one run of a policy in a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

from echelon.model.errors import RunError
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.fluid.interval import MeanInterval, mean_slowdown_interval
from echelon.planning.fluid.slowdown import mean_time_s, spans_s
from echelon.planning.plan import Plan
from echelon.planning.policies import PlanError, make_policy
from echelon.planning.policies.base import Patient, Policy
from echelon_lab.advice import DOUBT, DRAWS
from echelon_lab.evaluation.measure import Knowledge, in_phases
from echelon_lab.scenarios.coarse import Grain, Setup, with_grain
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario

_SHORT_ERROR = 0.05
"""The part by which a mean is off if the run is too short to tell: 3 to 5 % at four iterations."""
_DIGITS = 9
_KEPT_JOBS = 2
"""The grains whose jobs a process keeps. Stages come one after another."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The length and the grain of runs."""

    iterations: int
    """The length of a run, in iterations of the slowest job alone."""
    grain: Grain
    """How finely jobs are simulated."""
    draws: int
    """The number of draws in which sizes and computing are misjudged, and phases unknown."""
    short_error: float = 0.0
    """The part by which means are off because runs are short, beside their interval."""
    searches: bool = True
    """Whether policies that search for their plan do so; otherwise they take what they have."""

    @property
    def error(self) -> float:
        """The part by which means are off because runs are short or coarse."""
        return max(self.short_error, self.grain.error)

    @property
    def text(self) -> str:
        """The stage in words."""
        text = f"{self.iterations} iterations"
        if self.error:
            return f"{text}, coarse"
        return text


STAGES = (
    Stage(
        iterations=2, grain=Grain(1, False, 1000, 0.05), draws=0, short_error=0.75, searches=False
    ),
    Stage(iterations=6, grain=Grain(1, False, 2000, 0.05), draws=1),
    Stage(iterations=12, grain=Grain(4, False, 2000, 0.05), draws=1),
    Stage(iterations=12, grain=Grain(8, False, 4000, 0.05), draws=2),
    Stage(iterations=12, grain=Grain(20, True, 8000, 0.02), draws=2),
    Stage(iterations=30, grain=Grain(20, True, 8000, 0.02), draws=DRAWS),
    Stage(iterations=30, grain=Grain(40, True, None, 0.0), draws=DRAWS),
)
"""The stages, each some two to six times as much work as that before. In two iterations, of which
one counts, means are up to 75 % off, above all those of policies that delay jobs (`cassini`);
grains of eight are 7 to 8 % off, but about as much under every policy."""


def stages(iterations: int) -> tuple[Stage, ...]:
    """Return the stages, of which the last has this length and none is longer."""
    shorter = []
    for stage in STAGES[:-1]:
        length = min(stage.iterations, iterations)
        shorter.append(replace(stage, iterations=length))
    last = replace(STAGES[-1], iterations=iterations)
    return (*shorter, last)


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of a policy in a stage."""

    choice: PolicyChoice
    stage: Stage
    draw: int | None = None
    """The draw, from 0, in which jobs are misjudged; None: job files are right."""

    @property
    def text(self) -> str:
        """The run in words."""
        if self.draw is None:
            return self.choice.label
        return f"{self.choice.label}, ±{100 * DOUBT:.0f} %"

    def identity(self, scenario: str, code: str) -> dict[str, Any]:
        """Return all that determines the result, given digests of the scenario and the code."""
        stage = asdict(self.stage)
        # How many runs there are, and what they are worth, says nothing about one of them.
        del stage["draws"], stage["short_error"]
        return {
            "scenario": scenario,
            "code": code,
            "policy": self.choice.label,
            "stage": stage,
            "draw": self.draw,
        }


def measure(prepared: Setup, run: Run) -> dict[str, Any]:
    """Return, for JSON, ``slowdowns`` by job, ``interval`` and ``worst_interval``, or ``error``.

    Intervals are the parts by which the mean, and the worst slowdown, may be off to either side.
    """
    from echelon_lab.virtual.fluid_run import run as run_fluid

    stage = run.stage
    scenario = _coarse_scenario(_Same(prepared), stage.grain)
    alone_s = {}
    for name, size in prepared.sizes(stage.grain.lives).items():
        alone_s[name] = prepared.least_s[name] * size
    if run.draw is None:
        jobs = in_phases(scenario.jobs, alone_s)
        scenario = replace(scenario, jobs=tuple(jobs))
    else:
        knowledge = Knowledge(DRAWS, DOUBT)
        scenario = knowledge.drawn(scenario, scenario.file.name, alone_s, run.draw)
    exact_end_s = stage.iterations * prepared.period_s
    end_s = float(exact_end_s)
    make = partial(_policy, run.choice, stage.searches)
    try:
        result = run_fluid(scenario, run.choice.label, make, _quiet, end_s=exact_end_s)
    except (RunError, PlanError) as error:
        return {"error": str(error)}

    spans = {}
    periods_s = {}
    slowdowns = {}
    for name, job_alone_s in alone_s.items():
        spans[name] = spans_s(result.records[name])
        periods_s[name] = float(job_alone_s)
        mean_s = mean_time_s(spans[name], end_s)
        slowdowns[name] = round(mean_s / periods_s[name], _DIGITS)
    worst = max(slowdowns, key=slowdowns.__getitem__)
    mean_interval = mean_slowdown_interval(spans, end_s, periods_s)
    worst_interval = mean_slowdown_interval({worst: spans[worst]}, end_s, periods_s)
    return {
        "slowdowns": slowdowns,
        "interval": _part(mean_interval),
        "worst_interval": _part(worst_interval),
    }


def _part(interval: MeanInterval) -> float:
    """Return the half width as a part of the mean."""
    if interval.half_width is None:
        return _SHORT_ERROR
    return round(interval.half_width / interval.mean, _DIGITS)


class _Same:
    """A setup that is equal to itself only, so that a cache need not compare its jobs."""

    def __init__(self, prepared: Setup) -> None:
        self.setup = prepared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.setup is self.setup

    def __hash__(self) -> int:
        return id(self.setup)


@lru_cache(maxsize=_KEPT_JOBS)
def _coarse_scenario(same: _Same, grain: Grain) -> Scenario:
    return with_grain(same.setup, grain)


class _AtOnce:
    """A policy that searches, with the plan that it has without."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """Return the plan before any search."""
        return self._policy.plan(jobs, fabric)


def _policy(choice: PolicyChoice, searches: bool) -> Any:
    policy = make_policy(choice.name, **dict(choice.parameters))
    if isinstance(policy, Patient) and policy.simulated_iterations and not searches:
        return _AtOnce(policy)
    return policy


def searched_iterations(choice: PolicyChoice) -> int:
    """Return about how many iterations a policy simulates to find its plan; 0: none.

    Raises `PlanError` if there is no such policy.
    """
    policy = make_policy(choice.name, **dict(choice.parameters))
    if isinstance(policy, Patient):
        return policy.simulated_iterations
    return 0


def is_reactive(choice: PolicyChoice) -> bool:
    """Return whether a policy decides at each event, so that its runs take long.

    Raises `PolicyChoiceError` if there is no such policy.
    """
    policy = make_policy(choice.name, **dict(choice.parameters))
    return bool(getattr(policy, "reactive", False))


def _quiet(_job: str, _iteration: int) -> None:
    return
