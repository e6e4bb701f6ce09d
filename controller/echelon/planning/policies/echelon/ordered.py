"""Plans in one order between EchelonFlows, over paths that one chooser chooses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby, repeat
from math import log2
from types import MappingProxyType
from typing import Any

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths, links_of
from echelon.planning.plan import FlowPlan, Plan, PlanError
from echelon.planning.policies.base import Carried
from echelon.planning.policies.cassini.shifts import Shifts
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, MIN_SHARE, strict
from echelon.planning.policies.memories import Memories
from echelon.planning.policies.orders import JobFacts, Levels, Order, next_overtaking_s
from echelon.planning.policies.references import Dues, References, latest_alone_s
from echelon.planning.policies.tardiness import EffectiveTardiness
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import GRAINS_OF_UNIT, Deadline
from echelon.planning.rankings.fixed import Fixed

SEPARATION = Fraction(2, 1000)
"""The units of a relative rank by which one job goes before the next, if nothing else tells them
apart. Copies of a job that start together are then at different levels. It is small against all
steps of levels but the first, and against what the memory of one delay adds."""
FEW = 1 / 16
"""The part of the bytes that are due together on a link below which a flow has few of them."""
_PLACES = 8


class Ordered:
    """A planner of EDF inside EchelonFlows, and an order between them.

    Flows that are in no EchelonFlow have no ideal finish time: they are best effort.
    """

    name = "echelon"

    def __init__(self, order: Order, shifts: Callable[..., Shifts] | None = None) -> None:
        self._order = order
        self.carried = order if isinstance(order, Carried) else None
        self._shifts = shifts
        self._references = References()
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._memories = Memories()
        self._facts = Kept(_facts)
        self._jobs: Mapping[str, JobFacts] = {}
        """The facts that `_facts` keeps; after it, so that a copy of the policy shares them."""
        self._flows = Kept(_ranked)
        self._plan: Plan | None = None
        self._levels: Mapping[str, Levels] = {}

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
        places: Mapping[str, int] = MappingProxyType({}),
    ) -> Plan:
        """Return a plan that ranks every flow by its slack.

        `places` tells jobs apart that are as urgent: the smaller goes first; jobs without a place
        are not told apart. Raises `PlanError` if a worker cannot be reached or a job takes no time.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        self._memories = Memories()

        def rows(*columns: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
            """Return what a maker needs of each job. All columns are in the order of the jobs."""
            return dict(zip(of_jobs, zip(jobs, *columns, strict=False), strict=True))

        fast = repeat(self._capacities)
        due = self._references.plan(rows(alone.values(), of_jobs.values(), fast))
        place = [places.get(name, 0) % _PLACES for name in of_jobs]
        alone_s = [duration_s(record) for record in alone.values()]
        times = Counter(alone_s)
        copied = (times[time_s] > 1 for time_s in alone_s)
        self._jobs = self._facts.update(
            rows(alone.values(), of_jobs.values(), due.values(), fast, place, copied)
        )
        levels = self._levels = self._order.levels(self._jobs)
        level = map(levels.__getitem__, of_jobs)
        plan = Plan.of_jobs(
            self.name,
            self._flows.update(rows(of_jobs.values(), due.values(), level, fast)),
            default_schedule=strict(MIN_SHARE),
            hosts_rank=True,
            best_effort_queue=BEST_EFFORT_QUEUE,
            shifts_s=self._shifts(jobs, of_jobs, self._capacities, alone).delays_s
            if self._shifts
            else {},
        )
        self._plan = plan
        return plan

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the ideal order, without levels, until the order changes on some
        link.

        In the order of urgency each flow takes what is left on its path; flows of a job that are
        due at the same time share it max-min fairly, as a collective needs all of them. So does
        best effort, with the rest.
        """
        ranked = [i for i, flow in enumerate(flows) if flow.echelonflow is not None]
        begun = self._references.deadlines_s([flows[i] for i in ranked])
        rankings = {i: self._deadline(flows[i]) for i in ranked}
        due = {
            i: at_s + rankings[i].due_s - rankings[i].offset_s
            for i, at_s in zip(ranked, begun, strict=True)
        }
        self._memories.observe(self._jobs, [flows[i] for i in ranked])
        urgencies = {}
        for i, deadline_s in due.items():
            flow = flows[i]
            late_from_s = deadline_s + rankings[i].left_s * flow.remaining_bytes
            memory_s = self._memories.delay_s(flow.job)
            urgencies[i] = self._order.urgency(
                self._jobs[flow.job], now_s, flow, late_from_s, memory_s
            )
        order = sorted(urgencies, key=lambda i: urgencies[i].rank)
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        for _, together in groupby(order, key=lambda i: (flows[i].job, due[i])):
            fill_evenly(flows, together, residual, rates)
        fill_evenly(
            flows, (i for i, flow in enumerate(flows) if flow.echelonflow is None), residual, rates
        )
        for i, urgency in urgencies.items():
            if rankings[i].left_s and rates[i]:
                urgencies[i] = replace(
                    urgency, slope=urgency.slope * (1 + rankings[i].left_s * rates[i])
                )
        change_s = next_overtaking_s(flows, order, urgencies)
        if change_s is not None:
            change_s = max(
                change_s, min(map(self._grain_s, {flows[i].job for i in ranked}), default=0)
            )
        self._memories.expect(now_s, [flows[i] for i in ranked], begun, [rates[i] for i in ranked])
        return Allocation(tuple(rates), None if change_s is None else now_s + change_s)

    def _grain_s(self, job: str) -> Fraction:
        """Return the shortest time for which an order that counts the bytes left is valid."""
        levels = self._levels[job]
        if levels.left and levels.relative is not None:
            return levels.relative.unit_s / GRAINS_OF_UNIT
        return Fraction(0)

    def _deadline(self, flow: ActiveFlow) -> Deadline:
        assert self._plan is not None
        found = self._plan.ranking[flow.job, flow.flow]
        assert isinstance(found, Deadline)
        return found

    def neighbourhood(self, flow: ActiveFlow) -> str:
        """Return the flow's job, whose flows share a reference time and a memory."""
        return flow.job


def _facts(
    job: Job,
    alone: IterationRecord[Fraction],
    paths: Paths,
    due: Dues,
    capacities: Mapping[Link, Fraction],
    place: int,
    has_copies: bool,
) -> JobFacts:
    alone_s = duration_s(alone)
    if alone_s <= 0:
        raise PlanError(
            f"job {job.name}: its iteration takes no time; give it compute time or bytes to send",
            job.name,
        )
    if job.weight <= 0:
        raise PlanError(
            f"job {job.name}: weight {job.weight} must be positive", job.name, code="too-small"
        )
    bytes_on: Counter[Link] = Counter()
    for flow in job.flows:
        for link in links_of(paths[flow.name]):
            bytes_on[link] += flow.size_bytes
    busy_s = [size_bytes / capacities[link] for link, size_bytes in bytes_on.items()]
    return JobFacts(
        alone_s,
        job.weight,
        EffectiveTardiness(job, paths, capacities),
        max(busy_s, default=Fraction(0)),
        sum(busy_s, Fraction(0)),
        latest_alone_s(alone, due),
        SEPARATION * place,
        has_copies,
    )


def _ranked(
    job: Job, paths: Paths, due: Dues, levels: Levels, capacities: Mapping[Link, Fraction]
) -> tuple[FlowPlan, ...]:
    due_s = {
        name: of.latest_s if levels.latest else of.offset_s + of.slack_s for name, of in due.items()
    }
    if levels.left:
        shifts = _left_shifts(job, paths, due_s, levels, capacities)
    else:
        shifts = {}

    def ranking(flow: str) -> Ranking:
        if flow not in due:
            return Fixed(BEST_EFFORT_QUEUE)
        of = due[flow]
        return Deadline(
            of.echelonflow,
            of.offset_s,
            levels.thresholds_s,
            levels.lowest,
            levels.highest,
            levels.relative,
            None if due_s[flow] == of.offset_s else due_s[flow],
            shifts.get(flow),
        )

    return tuple(FlowPlan(job.name, flow, ranking(flow), path) for flow, path in paths.items())


def _left_shifts(
    job: Job,
    paths: Paths,
    due_s: Mapping[str, Fraction],
    levels: Levels,
    capacities: Mapping[Link, Fraction],
) -> dict[str, int]:
    """Return, by flow, the shift that takes off about `levels.left` times the microseconds that the
    bytes left take.

    With `levels.together`, those are the bytes of all flows of the job that are due at the same
    time. A flow that has few of them hardly delays the others, so its own do not count. A byte of
    Gloo's words, which announce gradients, would also stand for more time than switches can count.
    """
    busy_s: dict[tuple[Fraction, Link], float] = defaultdict(float)
    if levels.together:
        for flow in job.flows:
            for link in links_of(paths[flow.name]):
                busy_s[due_s.get(flow.name, Fraction(-1)), link] += flow.size_bytes / float(
                    capacities[link]
                )
    shifts = {}
    for flow in job.flows:
        links = links_of(paths[flow.name])
        if not links or not flow.size_bytes or flow.name not in due_s:
            continue
        if levels.together:
            all_s, line_Bps = max(  # noqa: N806
                (busy_s[due_s[flow.name], link], float(capacities[link])) for link in links
            )
            if flow.size_bytes < FEW * all_s * line_Bps:
                continue
            takes_s = all_s / flow.size_bytes
        else:
            takes_s = 1 / float(min(capacities[link] for link in links))
        shifts[flow.name] = -round(log2(levels.left * takes_s * 1_000_000))
    return shifts
