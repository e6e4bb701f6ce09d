"""The measurements of an evaluation: what a scenario is, and how slow its jobs are under one
policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from echelon.planning.fluid.slowdown import slowdown
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
"""The ways to run a policy: its plan on the fluid engine, the rates that it ideally gives, its plan
on switches.
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
    """What an iteration of each job takes at least, under any policy; slowdowns are multiples of
    it.
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
    return Prepared(
        kind, scenario, demands(scenario.jobs, scenario.fabric), alone_iterations_s(scenario)
    )


def describe(origin: Origin) -> dict[str, Any]:
    """Return, for JSON, a scenario's ``kind``, ``load``, least iteration times ``alone_s`` by job,
    and ``limit``.
    """
    of = prepared(origin)
    links: dict[Link, dict[str, float]] = {}
    for job, needed in of.demands.items():
        for link, part in needed.use.items():
            links.setdefault(link, {})[job] = float(part)
    return {
        "kind": asdict(of.kind),
        "load": round(float(shared_load([*of.demands.values()])), _DIGITS),
        "alone_s": {job: round(float(least_s), _DIGITS) for job, least_s in of.least_s.items()},
        "limit": asdict(limit([*links.values()], len(of.demands))),
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
        of, name = prepared(origin), Path(origin).name if isinstance(origin, str) else origin
        scenario = of.scenario
        if draw:
            phases = Random(f"phases {name} {draw}")
            jobs = [_starting(job, phases.random(), of.demands) for job in scenario.jobs]
            scenario = replace(scenario, jobs=tuple(jobs))
        if not self.error:
            return scenario
        random = Random(f"errors {name} {draw}")
        return replace(
            scenario,
            misjudged=tuple(self._misjudged(job, random, of.demands) for job in scenario.jobs),
        )

    def _misjudged(self, job: Job, random: Random, demands: Mapping[str, Demand]) -> Job:
        computing, sizes = (
            Fraction(random.uniform(-self.error, self.error)).limit_denominator(1000) for _ in "ab"
        )
        known = with_profile_error(job, computing)
        flows = tuple(
            replace(flow, size_bytes=max(1, round(flow.size_bytes * (1 + sizes))))
            for flow in known.flows
        )
        return _starting(replace(known, flows=flows), random.random(), demands)


def _starting(job: Job, phase: float, demands: Mapping[str, Demand]) -> Job:
    return replace(job, start_s=Fraction(phase).limit_denominator(1000) * demands[job.name].alone_s)


def slowdowns(
    origin: Origin,
    choice: PolicyChoice,
    mode: Mode,
    iterations: int,
    knowledge: Knowledge = Knowledge(),
) -> dict[str, Any]:
    """Run a scenario for as long as its slowest job needs alone for so many iterations, in each
    draw.

    Return, for JSON, ``slowdowns`` by job, as `slowdown` has them, in the mean over the draws, and
    ``packets``, how many of them were ``dropped``, ``reordered`` and ``retransmitted`` (only from
    packets); or ``error``: why there are none.
    """
    of = prepared(origin)
    end_s = iterations * max(needed.alone_s for needed in of.demands.values())
    make = partial(make_policy, choice.name, **dict(choice.parameters))
    try:
        runs = [
            _run(mode, knowledge.scenario(origin, draw), choice.label, make, end_s)
            for draw in range(knowledge.draws)
        ]
    except (RunError, PlanError, LoweringError) as error:
        return {"error": str(error)}
    except Exception as error:
        # A policy may come from anywhere, and one of its faults must not end the runs of all
        # others.
        return {"error": f"{type(error).__name__}: {error}"}
    measured: dict[str, Any] = {
        "slowdowns": {
            job: round(
                fmean(slowdown(run.records[job], float(end_s), float(least_s)) for run in runs),
                _DIGITS,
            )
            for job, least_s in of.least_s.items()
        }
    }
    if mode == "packets":
        measured["packets"] = {
            "dropped": sum(
                switch.packets_dropped for run in runs for switch in run.switches.values()
            ),
            "reordered": sum(sum(run.reordered.values()) for run in runs),
            "retransmitted": sum(sum(run.retransmitted.values()) for run in runs),
        }
    return measured


def _run(
    mode: Mode, scenario: Scenario, label: str, make: Callable[[], Policy], end_s: Fraction
) -> PolicyRun:
    if mode == "packets":
        from echelon_lab.virtual.run import run as run_packets

        return run_packets(scenario, label, make, _quiet, target=DEFAULT_TARGET, end_s=end_s)
    from echelon_lab.virtual.fluid_run import run as run_fluid

    return run_fluid(scenario, label, make, _quiet, ideal=mode == "ideal", end_s=end_s)


def _quiet(_job: str, _iteration: int) -> None:
    return
