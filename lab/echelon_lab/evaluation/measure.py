"""The measurements of an evaluation: what a scenario is, and how slow a policy makes its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Literal, TypeAlias, get_args

from echelon.model.errors import RunError
from echelon.model.jobs.analysis import with_profile_error
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Link
from echelon.planning.fluid.interval import MeanInterval, interval_of_draws, mean_slowdown_interval
from echelon.planning.fluid.slowdown import phase_s, slowdown, spans_s
from echelon.planning.policies import PlanError, make_policy
from echelon.planning.policies.base import Policy
from echelon.switches.lowering.lower import LoweringError
from echelon.switches.targets import DEFAULT_TARGET
from echelon_lab.evaluation.demand import Demand, demands, shared_load
from echelon_lab.evaluation.draw import MIXED, Kind, draw
from echelon_lab.evaluation.limit import limit
from echelon_lab.scenarios.results import PolicyRun, alone_iterations_s
from echelon_lab.scenarios.scenario import PolicyChoice, Scenario, load_scenario, scenario_of

Mode = Literal["plan", "ideal", "packets"]
"""The ways to run a policy.

These are its plan on the fluid engine, the rates that it ideally gives, and its plan on switches.
"""
MODES: tuple[Mode, ...] = get_args(Mode)

Origin: TypeAlias = int | str
"""A scenario: the seed of a drawn one, or the path of a file."""

_DIGITS = 9
_KEPT = 4
"""Scenarios that a process keeps. Tasks come scenario after scenario."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario, ready to run."""

    kind: Kind
    scenario: Scenario
    demands: Mapping[str, Demand]
    least_s: Mapping[str, Fraction]
    """The least time of an iteration of each job, under any policy.

    Slowdowns are multiples of it.
    """


@lru_cache(maxsize=_KEPT)
def prepared(origin: Origin) -> Prepared:
    """Return a scenario; its jobs iterate until they are stopped.

    Raises `DocumentError` for a file.
    """
    if isinstance(origin, str):
        scenario = load_scenario(Path(origin))
        kind = Kind(scenario.fabric.name, MIXED, "given", len(scenario.jobs))
    else:
        drawn = draw(origin)
        scenario = scenario_of(drawn.document(["fair"], iterations=1), f"seed {origin}")
        kind = drawn.kind
    demands_by_job = demands(scenario.jobs, scenario.fabric)
    return Prepared(kind, scenario, demands_by_job, alone_iterations_s(scenario))


def describe(origin: Origin) -> dict[str, Any]:
    """Return, for JSON, a scenario's ``kind``, ``load``, ``alone_s`` and ``limit``.

    ``alone_s`` are least iteration times by job.
    """
    scenario = prepared(origin)
    links: dict[Link, dict[str, float]] = {}
    for job, demand in scenario.demands.items():
        for link, part in demand.use.items():
            links.setdefault(link, {})[job] = float(part)
    load = float(shared_load([*scenario.demands.values()]))
    alone_s = {}
    for job, least_s in scenario.least_s.items():
        alone_s[job] = round(float(least_s), _DIGITS)
    return {
        "kind": asdict(scenario.kind),
        "load": round(load, _DIGITS),
        "alone_s": alone_s,
        "limit": asdict(limit([*links.values()], len(scenario.demands))),
    }


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The runs of a scenario that are averaged, and what policies know of its jobs."""

    draws: int = 1
    """The number of runs. All but the first have phases of their own."""
    error: float = 0.0
    """The part by which policies misjudge sizes and computing of each job.

    If it is not 0, phases are unknown, too.
    """

    def scenario(self, origin: Origin, draw: int) -> Scenario:
        """Return a scenario in a draw, counted from 0."""
        if isinstance(origin, str):
            name = Path(origin).name
        else:
            name = str(origin)
        drawn = prepared(origin)
        alone_s = {job: demand.alone_s for job, demand in drawn.demands.items()}
        return self.drawn(drawn.scenario, name, alone_s, draw)

    def drawn(
        self,
        scenario: Scenario,
        name: str,
        alone_s: Mapping[str, Fraction],
        draw: int,
    ) -> Scenario:
        """Return a scenario of this name in a draw, counted from 0.

        `alone_s` are the seconds of an iteration of each job, in which its phase is drawn.
        """
        if draw:
            phases = Random(f"phases {name} {draw}")
            jobs = [_starting(job, phases.random(), alone_s) for job in scenario.jobs]
        else:
            jobs = in_phases(scenario.jobs, alone_s)
        scenario = replace(scenario, jobs=tuple(jobs))
        if self.error:
            random = Random(f"errors {name} {draw}")
            misjudged = [self._misjudged(job, random, alone_s) for job in scenario.jobs]
            scenario = replace(scenario, misjudged=tuple(misjudged))
        return scenario

    def _misjudged(
        self,
        job: Job,
        random: Random,
        alone_s: Mapping[str, Fraction],
    ) -> Job:
        computing = self._draw_error(random)
        sizes = self._draw_error(random)
        believed = with_profile_error(job, computing)
        flows = []
        for flow in believed.flows:
            size_bytes = round(flow.size_bytes * (1 + sizes))
            flows.append(replace(flow, size_bytes=max(1, size_bytes)))
        return _starting(replace(believed, flows=tuple(flows)), random.random(), alone_s)

    def _draw_error(self, random: Random) -> Fraction:
        # Short fractions keep exact runs fast.
        return Fraction(random.uniform(-self.error, self.error)).limit_denominator(1000)


def in_phases(jobs: Sequence[Job], alone_s: Mapping[str, Fraction]) -> list[Job]:
    """Return jobs of which none starts after the first iteration of the slowest job (`phase_s`)."""
    slowest_s = max(alone_s.values())
    early = []
    for job in jobs:
        start_s = Fraction(phase_s(job.start_s, alone_s[job.name], slowest_s))
        early.append(replace(job, start_s=start_s))
    return early


def _starting(
    job: Job,
    phase: float,
    alone_s: Mapping[str, Fraction],
) -> Job:
    part = Fraction(phase).limit_denominator(1000)
    return replace(job, start_s=part * alone_s[job.name])


def slowdowns(
    origin: Origin,
    choice: PolicyChoice,
    mode: Mode,
    iterations: int,
    knowledge: Knowledge = Knowledge(),
) -> dict[str, Any]:
    """Run a scenario in each draw, as long as its slowest job alone needs for these iterations.

    Return, for JSON, ``slowdowns`` by job, as `slowdown` has them, in the mean over the draws,
    ``half_width``, that of the 95 % interval of their mean over the jobs (None: too few
    iterations), and ``packets``, how many of them were ``dropped``, ``reordered`` and
    ``retransmitted`` (only from packets); or ``error``: why there are none.
    """
    scenario = prepared(origin)
    end_s = iterations * max(demand.alone_s for demand in scenario.demands.values())
    make = partial(make_policy, choice.name, **dict(choice.parameters))
    try:
        runs = []
        for draw in range(knowledge.draws):
            drawn = knowledge.scenario(origin, draw)
            runs.append(_run(mode, drawn, choice.label, make, end_s))
    except (RunError, PlanError, LoweringError) as error:
        return {"error": str(error)}
    except Exception as error:
        # A policy may come from anywhere,
        # and one of its faults must not end the runs of all others.
        return {"error": f"{type(error).__name__}: {error}"}

    means = {}
    for job, least_s in scenario.least_s.items():
        each = [slowdown(run.records[job], float(end_s), float(least_s)) for run in runs]
        means[job] = round(fmean(each), _DIGITS)
    intervals = [_interval(run, float(end_s), scenario.least_s) for run in runs]
    half_width = interval_of_draws(intervals).half_width
    if half_width is not None:
        half_width = round(half_width, _DIGITS)
    measured: dict[str, Any] = {"slowdowns": means, "half_width": half_width}
    if mode == "packets":
        measured["packets"] = _astray(runs)
    return measured


def _interval(
    run: PolicyRun,
    end_s: float,
    least_s: Mapping[str, Fraction],
) -> MeanInterval:
    spans_by_job = {job: spans_s(run.records[job]) for job in least_s}
    alone_s = {job: float(job_least_s) for job, job_least_s in least_s.items()}
    return mean_slowdown_interval(spans_by_job, end_s, alone_s)


def _astray(runs: Sequence[PolicyRun]) -> dict[str, int]:
    dropped = 0
    reordered = 0
    retransmitted = 0
    for run in runs:
        dropped += sum(switch.packets_dropped for switch in run.switches.values())
        reordered += sum(run.reordered.values())
        retransmitted += sum(run.retransmitted.values())
    return {"dropped": dropped, "reordered": reordered, "retransmitted": retransmitted}


def _run(
    mode: Mode,
    scenario: Scenario,
    label: str,
    make: Callable[[], Policy],
    end_s: Fraction,
) -> PolicyRun:
    if mode == "packets":
        from echelon_lab.virtual.judging import judged
        from echelon_lab.virtual.run import run as run_packets

        return run_packets(
            scenario,
            label,
            judged(make, scenario, DEFAULT_TARGET),
            _quiet,
            target=DEFAULT_TARGET,
            end_s=end_s,
        )
    from echelon_lab.virtual.fluid_run import run as run_fluid

    return run_fluid(
        scenario,
        label,
        make,
        _quiet,
        ideal=mode == "ideal",
        end_s=end_s,
    )


def _quiet(_job: str, _iteration: int) -> None:
    return
