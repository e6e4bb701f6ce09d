"""What a change would do: the entries and queues that it changes, and how much slower or faster it
makes jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

from echelon.controller.machine.jobstore import ChosenPolicy
from echelon.controller.machine.planning import MakePolicy, Planned
from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.fluid.least import least_iterations_s
from echelon.planning.fluid.network import FluidError
from echelon.planning.fluid.simulator import FluidPlanner
from echelon.planning.fluid.slowdown import (
    MOST_FLOWS,
    MOST_SHARED,
    ROUNDS,
    flows_of_prediction,
    predicted_slowdowns,
)
from echelon.planning.paths import links_of
from echelon.planning.plan import Plan, PlanError
from echelon.switches.lowering.difference import IntentDifference, difference

_FEWER_ROUNDS = (4, 3, 2)
"""The iterations of the slowest job that are simulated instead of `ROUNDS` where jobs are many."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A plan, and what it was made of."""

    planned: Planned
    fabric: Fabric
    policy: ChosenPolicy


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a change means for one job."""

    job: str
    before: float | None
    """Mean time of an iteration over the least on the whole fabric, in the fluid model, before the
    change; None: the job is in no plan, or was not simulated."""
    after: float | None
    """The same after the change."""
    problem: str | None = None
    """The reason why the job is in no plan after the change."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What a change would do."""

    differences: tuple[IntentDifference, ...]
    """The changes of each switch that has any, by what the plan in force has for it."""
    forecasts: tuple[Forecast, ...]
    """The jobs that change, and those that share links with them, directly or through others, by
    name.
    """
    unpredicted: str | None
    """The reason why no slowdowns were predicted."""


def outcome(
    before: Situation, after: Situation, whole: Fabric, make_policy: MakePolicy
) -> ChangeOutcome:
    """Compare two plans. `whole` is the fabric with all links."""
    was = before.planned
    now = after.planned
    differences = (difference(was.intents[name], intent) for name, intent in now.intents.items())
    concerned = _concerned(was, now)
    slow_before: Mapping[str, float] = {}
    slow_after: Mapping[str, float] = {}
    unpredicted = None
    try:
        runs = [_Run.of_some(situation, concerned, whole) for situation in (before, after)]
        rounds = min(run.rounds() for run in runs)
        slow_before, slow_after = (run.slowdowns(rounds, make_policy) for run in runs)
    except (_TooLargeError, FluidError, PlanError) as error:
        unpredicted = str(error)
    forecasts = (
        Forecast(name, slow_before.get(name), slow_after.get(name), now.problems.get(name))
        for name in sorted(concerned | now.problems.keys())
    )
    return ChangeOutcome(tuple(one for one in differences if one), tuple(forecasts), unpredicted)


class _TooLargeError(Exception):
    """The jobs have too many flows to be simulated while somebody waits."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A simulation of the jobs concerned, under one of the plans."""

    of: Situation
    jobs: Sequence[Job]
    alone_s: Mapping[str, Fraction]

    @classmethod
    def of_some(cls, of: Situation, names: set[str], whole: Fabric) -> Self:
        """Return the run of jobs of these names."""
        jobs = [job for job in of.planned.jobs if job.name in names]
        return cls(of, jobs, least_iterations_s(jobs, whole))

    def rounds(self) -> int:
        """Return how many iterations of the slowest job can be simulated in seconds.

        Raises `_TooLargeError`.
        """
        most = min(MOST_FLOWS, MOST_SHARED // max(1, len(self.jobs)))
        for rounds in (ROUNDS, *_FEWER_ROUNDS):
            flows = flows_of_prediction(self.jobs, self.alone_s, rounds)
            if flows <= most:
                return rounds
        raise _TooLargeError(
            f"{len(self.jobs)} jobs with {flows} flows in the time to simulate are too many: the"
            f" limit is {most}"
        )

    def slowdowns(self, rounds: int, make_policy: MakePolicy) -> Mapping[str, float]:
        """Return the slowdown of each job."""
        plan = self.of.planned.plan
        names = {job.name for job in self.jobs}
        if plan.reactive:
            planner: FluidPlanner = make_policy(self.of.policy)
        else:
            planner = _Fixed(_part(plan, names))
        if self.jobs:
            return predicted_slowdowns(self.jobs, self.of.fabric, planner, self.alone_s, rounds)
        return {}


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A planner whose plan is made."""

    made: Plan

    def plan(self, jobs: Iterable[Job], fabric: Fabric) -> Plan:
        return self.made


def _part(plan: Plan, names: set[str]) -> Plan:
    """Return the plan of some of its jobs."""
    return replace(plan, flows=tuple(flow for flow in plan.flows if flow.job in names))


def _concerned(before: Planned, after: Planned) -> set[str]:
    """Return the jobs that change, and those that share links with them, directly or through
    others.
    """
    plans = before.plan, after.plan
    if _outline(before.plan) != _outline(after.plan):
        return {name for plan in plans for name in plan.by_job}
    graphs = [{job.name: job for job in planned.jobs} for planned in (before, after)]
    found = {
        name
        for name in before.plan.by_job.keys() | after.plan.by_job.keys()
        if plans[0].by_job.get(name) != plans[1].by_job.get(name)
        or plans[0].shifts_s.get(name) != plans[1].shifts_s.get(name)
        or graphs[0].get(name) is not graphs[1].get(name)
    }
    on_link: dict[tuple[str, str], set[str]] = {}
    links: dict[str, set[tuple[str, str]]] = {}
    for plan in plans:
        for name, flows in plan.by_job.items():
            for path in {flow.path for flow in flows}:
                for link in links_of(path):
                    on_link.setdefault(link, set()).add(name)
                    links.setdefault(name, set()).add(link)
    waiting = list(found)
    while waiting:
        for link in links.get(waiting.pop(), ()):
            new = on_link.pop(link, set()) - found
            found |= new
            waiting += new
    return found


def _outline(plan: Plan) -> Plan:
    """Return what a plan says of all flows: its queues, and who ranks."""
    return replace(plan, flows=(), shifts_s={}, rates_Bps={})
