"""The measurements of an evaluation: what a scenario is, and how slow its jobs are under one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal, get_args

from echelon.allocation import Link
from echelon.experiments.evaluation.demand import Demand, demands, shared_load
from echelon.experiments.evaluation.draw import Drawn, draw
from echelon.experiments.evaluation.limit import limit
from echelon.fluid.slowdown import slowdown
from echelon.lowering.lower import LoweringError
from echelon.policies import PlanError, make_policy
from echelon.policies.base import Policy
from echelon.scenarios.results import PolicyRun, RunError
from echelon.scenarios.scenario import PolicyChoice, Scenario, scenario_of
from echelon.targets import DEFAULT_TARGET

Mode = Literal["plan", "ideal", "packets"]
"""The ways to run a policy: its plan on the fluid engine, the rates that it ideally gives, its plan on switches."""
MODES: tuple[Mode, ...] = get_args(Mode)

_DIGITS = 9
_KEPT = 4
"""Scenarios that a process keeps. Tasks come scenario after scenario."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A drawn scenario, ready to run."""

    drawn: Drawn
    scenario: Scenario
    demands: Mapping[str, Demand]


@lru_cache(maxsize=_KEPT)
def prepared(seed: int) -> Prepared:
    """Return the scenario of a seed; its jobs iterate until they are stopped."""
    drawn = draw(seed)
    scenario = scenario_of(drawn.document(["fair"], iterations=1), f"seed {seed}")
    return Prepared(drawn, scenario, demands(scenario.jobs, scenario.fabric))


def describe(seed: int) -> dict[str, Any]:
    """Return, for JSON, a scenario's ``kind``, ``load``, iteration times alone ``alone_s`` by job, and ``limit``."""
    of = prepared(seed)
    links: dict[Link, dict[str, float]] = {}
    for job, needed in of.demands.items():
        for link, part in needed.use.items():
            links.setdefault(link, {})[job] = float(part)
    return {
        "kind": asdict(of.drawn.kind),
        "load": round(float(shared_load([*of.demands.values()])), _DIGITS),
        "alone_s": {job: round(float(needed.alone_s), _DIGITS) for job, needed in of.demands.items()},
        "limit": asdict(limit([*links.values()], len(of.demands))),
    }


def slowdowns(seed: int, choice: PolicyChoice, mode: Mode, iterations: int) -> dict[str, Any]:
    """Run the scenario of a seed for as long as its slowest job needs alone for so many iterations.

    Return, for JSON, ``slowdowns`` by job, as `slowdown` has them, and ``packets``, how many of them were ``dropped``,
    ``reordered`` and ``retransmitted`` (only from packets); or ``error``: why there are none.
    """
    of = prepared(seed)
    end_s = iterations * max(needed.alone_s for needed in of.demands.values())
    make = partial(make_policy, choice.name, **dict(choice.parameters))
    try:
        run = _run(mode, of.scenario, choice.label, make, end_s)
    except (RunError, PlanError, LoweringError) as error:
        return {"error": str(error)}
    except Exception as error:
        # A policy may come from anywhere, and one of its faults must not end the runs of all others.
        return {"error": f"{type(error).__name__}: {error}"}
    measured: dict[str, Any] = {
        "slowdowns": {
            job: round(slowdown(run.records[job], float(end_s), float(needed.alone_s)), _DIGITS)
            for job, needed in of.demands.items()
        }
    }
    if mode == "packets":
        measured["packets"] = {
            "dropped": sum(switch.packets_dropped for switch in run.switches.values()),
            "reordered": sum(run.reordered.values()),
            "retransmitted": sum(run.retransmitted.values()),
        }
    return measured


def _run(mode: Mode, scenario: Scenario, label: str, make: Callable[[], Policy], end_s: Fraction) -> PolicyRun:
    if mode == "packets":
        from echelon.virtual.run import run as run_packets

        return run_packets(scenario, label, make, _quiet, target=DEFAULT_TARGET, end_s=end_s)
    from echelon.virtual.fluid_run import run as run_fluid

    return run_fluid(scenario, label, make, _quiet, ideal=mode == "ideal", end_s=end_s)


def _quiet(_job: str, _iteration: int) -> None:
    return
