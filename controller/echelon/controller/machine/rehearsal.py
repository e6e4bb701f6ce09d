"""The outcome of a change that is not carried out.

That is the entries and queues that it would change, and how much slower or faster jobs would be.
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
from echelon.planning.fluid.simulator import PlanSource
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

Link = tuple[str, str]
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
    """The predicted slowdowns of one job, before and after a change."""

    job: str
    before: float | None
    """The mean time of an iteration over the least on the whole fabric, in the fluid model.

    None: the job is in no plan, or was not simulated.
    """
    after: float | None
    """The same after the change."""
    problem: str | None = None
    """The reason why the job is in no plan after the change."""


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of a change that is not carried out."""

    differences: tuple[IntentDifference, ...]
    """The changes of each switch that has any, by what the plan in force has for it."""
    forecasts: tuple[Forecast, ...]
    """The jobs that change, by name, and those that share links with them, even through others."""
    unpredicted: str | None
    """The reason why no slowdowns were predicted."""


def outcome(
    before: Situation,
    after: Situation,
    all_links: Fabric,
    make_policy: MakePolicy,
) -> ChangeOutcome:
    """Compare two plans. `all_links` is the fabric with the drained links."""
    was = before.planned
    now = after.planned
    differences = (difference(was.intents[name], intent) for name, intent in now.intents.items())
    names = _concerned_jobs(was, now)
    slow_before: Mapping[str, float] = {}
    slow_after: Mapping[str, float] = {}
    unpredicted = None
    try:
        runs = [_Run.for_jobs(names, situation, all_links) for situation in (before, after)]
        rounds = min(run.rounds() for run in runs)
        # Both or none: a prediction of one of them would be compared with nothing.
        slow_before, slow_after = [run.slowdowns(rounds, make_policy) for run in runs]
    except (_TooLargeError, FluidError, PlanError) as error:
        unpredicted = str(error)
    forecasts = tuple(
        Forecast(name, slow_before.get(name), slow_after.get(name), now.problems.get(name))
        for name in sorted(names | now.problems.keys())
    )
    return ChangeOutcome(tuple(filter(None, differences)), forecasts, unpredicted)


class _TooLargeError(Exception):
    """The jobs have too many flows to be simulated while somebody waits."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A simulation of the jobs concerned, under one of the plans."""

    situation: Situation
    jobs: Sequence[Job]
    alone_s: Mapping[str, Fraction]
    """The time of an iteration on the whole fabric."""

    @classmethod
    def for_jobs(
        cls,
        names: set[str],
        situation: Situation,
        all_links: Fabric,
    ) -> Self:
        """Return the run of the jobs of these names."""
        jobs = [job for job in situation.planned.jobs if job.name in names]
        return cls(situation, jobs, least_iterations_s(jobs, all_links))

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
        if not self.jobs:
            return {}
        situation = self.situation
        plan = situation.planned.plan
        if plan.reactive:
            planner: PlanSource = make_policy(situation.policy)
        else:
            planner = _Fixed(_part(plan, {job.name for job in self.jobs}))
        return predicted_slowdowns(self.jobs, situation.fabric, planner, self.alone_s, rounds)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A planner that has one plan for everything."""

    constant: Plan

    def plan(self, jobs: Iterable[Job], fabric: Fabric) -> Plan:
        return self.constant


def _part(plan: Plan, names: set[str]) -> Plan:
    """Return the plan of some of its jobs."""
    return replace(plan, flows=tuple(flow for flow in plan.flows if flow.job in names))


def _concerned_jobs(before: Planned, after: Planned) -> set[str]:
    """Return the jobs that change, and those that share links with them, even through others."""
    plans = (before.plan, after.plan)
    # Other queues or another ranking concern every flow.
    if _outline(before.plan) != _outline(after.plan):
        return {*before.plan.by_job, *after.plan.by_job}

    on_link: dict[Link, set[str]] = {}
    links: dict[str, set[Link]] = {}
    for plan in plans:
        for name, flows in plan.by_job.items():
            for path in {flow.path for flow in flows}:
                for link in links_of(path):
                    on_link.setdefault(link, set()).add(name)
                    links.setdefault(name, set()).add(link)

    concerned = _changed_jobs(before, after)
    waiting = list(concerned)
    while waiting:
        for link in links.get(waiting.pop(), ()):
            neighbours = on_link.pop(link, set()) - concerned
            concerned |= neighbours
            waiting += neighbours
    return concerned


def _changed_jobs(before: Planned, after: Planned) -> set[str]:
    """Return the jobs that differ in their graphs, or in their flows or shifts in the plans."""
    graphs_before = {job.name: job for job in before.jobs}
    graphs_after = {job.name: job for job in after.jobs}
    was = before.plan
    now = after.plan
    changed = set()
    for name in was.by_job.keys() | now.by_job.keys():
        same_flows = was.by_job.get(name) == now.by_job.get(name)
        same_shift = was.shifts_s.get(name) == now.shifts_s.get(name)
        same_graph = graphs_before.get(name) is graphs_after.get(name)
        if not (same_flows and same_shift and same_graph):
            changed.add(name)
    return changed


def _outline(plan: Plan) -> Plan:
    """Return what a plan says of all flows: its queues, and who ranks."""
    return replace(
        plan,
        flows=(),
        shifts_s={},
        rates_Bps={},
    )
