"""The measurement of a scenario in a draw: one plan, on the fluid model and on each rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import fmean
from typing import Any

from bench.ladder.fabric import Counts, Ladder, counted
from bench.ladder.flows import shim_flows
from bench.ladder.laboratory import (
    Origin,
    PolicyChoice,
    PolicyRun,
    Scenario,
    alone_iterations_s,
    run_fluid,
    run_packets,
)
from bench.ladder.rungs import Rung, beside_fluid
from bench.ladder.scenarios import is_one_link, scenario_in_draw
from bench.ladder.tofino import LimitedSwitch, concerned, limited_plan
from echelon.model.errors import RunError
from echelon.planning.fluid.simulator import SearchingPlanSource
from echelon.planning.fluid.slowdown import slowdown
from echelon.planning.policies import make_policy
from echelon.planning.policies.base import FixedPlan

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a run from packets."""

    mean: float
    """The mean slowdown of the jobs."""
    counts: Counts
    reordered: int
    """The packets that arrived after one of their flow that was sent later."""


class Case:
    """A scenario with the plan of a policy, which is run for so many iterations.

    Iterations are those of the slowest job alone. Raises `RunError` for a policy without a plan.
    """

    def __init__(
        self,
        scenario: Scenario,
        choice: PolicyChoice,
        iterations: int,
    ) -> None:
        self._scenario = scenario
        self._label = choice.label
        self._alone_s = alone_iterations_s(scenario)
        self.end_s: Fraction = iterations * max(self._alone_s.values())
        policy = make_policy(choice.name, **dict(choice.parameters))
        # The plan is made once: a search knows nothing of rungs, and takes longer than a run.
        jobs = scenario.believed_jobs
        if isinstance(policy, SearchingPlanSource):
            plan = policy.best_plan(jobs, scenario.fabric)
        else:
            plan = policy.plan(jobs, scenario.fabric)
        if plan.reactive:
            raise RunError(f"policy {choice.label} decides during a run, so it has no plan")
        self.plan = plan

    def _policy(self) -> FixedPlan:
        return FixedPlan(self.plan)

    def fluid(self) -> float:
        """Return the mean slowdown on the fluid model, with levels."""
        run = run_fluid(
            self._scenario,
            self._label,
            self._policy,
            _ignore,
            end_s=self.end_s,
        )
        return self.mean(run)

    def on_rung(self, rung: Rung) -> Measured:
        """Return what a rung makes of the plan."""
        scenario = rung.scenario(self._scenario)
        plan = limited_plan(self.plan, rung.limits)
        ladder = Ladder(rung, shim_flows(plan, scenario.described.identities))
        run = run_packets(
            scenario,
            self._label,
            lambda: FixedPlan(plan),
            _ignore,
            target=LimitedSwitch(rung.limits),
            end_s=self.end_s,
            build=ladder.build,
        )
        mean = self.mean(run)
        reordered = sum(run.reordered.values())
        return Measured(mean, counted(), reordered)

    def concerns(self, rung: Rung) -> bool:
        """Return whether the limits of a rung concern any flow; those without limits do."""
        if not rung.limits:
            return True
        identities = self._scenario.described.identities
        return concerned(self.plan, identities, rung.limits)

    def mean(self, run: PolicyRun) -> float:
        """Return the mean slowdown of the jobs in a run until `end_s`."""
        end_s = float(self.end_s)
        slowdowns = []
        for job, alone_s in self._alone_s.items():
            records = run.records[job]
            job_slowdown = slowdown(records, end_s, float(alone_s))
            slowdowns.append(job_slowdown)
        return fmean(slowdowns)


def _ignore(_job: str, _iteration: int) -> None:
    return


def measure(
    origin: Origin,
    draw_number: int,
    choice: PolicyChoice,
    rungs: Sequence[Rung],
    iterations: int,
) -> Mapping[str, Any]:
    """Return what the ladder says of a scenario in a draw, for JSON.

    It has ``one_link``, ``fluid``, the mean slowdown on the fluid model, and by the name of each
    rung ``mean``, ``above``, how far that is above fluid, as a part, ``bytes``, of which the others
    are parts, and ``reordered`` packets. A rung whose limits concern no flow is left out, and so is
    what compares with the fluid model if no rung does.
    """
    scenario = scenario_in_draw(origin, draw_number)
    case = Case(scenario, choice, iterations)
    fluid = None
    if beside_fluid(rungs):
        # One figure for all rungs, also for those with other windows: the model has the product's.
        fluid = round(case.fluid(), _DIGITS)
    rows = {}
    for rung in rungs:
        if not case.concerns(rung):
            continue
        measured = case.on_rung(rung)
        row: dict[str, Any] = {
            "mean": round(measured.mean, _DIGITS),
            "bytes": asdict(measured.counts),
            "reordered": measured.reordered,
        }
        if fluid is not None:
            above = measured.mean / fluid - 1
            row["above"] = round(above, _DIGITS)
        rows[rung.name] = row
    return {
        "one_link": is_one_link(scenario),
        "fluid": fluid,
        "rungs": rows,
    }
