"""The policy of one order between EchelonFlows, over paths that one chooser chooses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, groupby
from math import log2
from operator import attrgetter
from types import MappingProxyType
from typing import Self

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import Path, PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept, altered, by_name
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Link, Number
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths, links_of
from echelon.planning.plan import FlowPlans, Plan, PlanError
from echelon.planning.policies.base import Carried
from echelon.planning.policies.cassini.shifts import Shifts
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import (
    MIN_SHARE,
    ranked_flows,
    strict,
)
from echelon.planning.policies.memories import Memories
from echelon.planning.policies.orders import JobFacts, Levels, Order, next_overtaking_s
from echelon.planning.policies.references import Dues, References, due_together, latest_alone_s
from echelon.planning.policies.tardiness import EffectiveTardiness
from echelon.planning.rankings.deadline import GRAINS_OF_UNIT, Deadline

SEPARATION = Fraction(2, 1000)
"""The units of a relative rank by which one job goes before the next, if nothing else tells them
apart. Copies of a job that start together are then at different levels. It is small against all
steps of levels but the first, and against what the memory of one delay adds."""
FEW = 1 / 16
"""The part of the bytes that are due together on a link below which a flow has few of them."""
_PLACES = 8


class OrderedPolicy:
    """EDF inside EchelonFlows, and an order between them.

    Flows that are in no EchelonFlow have no deadline: they are best effort.

    Args:
        order: the order between EchelonFlows.
        shifts: a maker of delays of jobs; None: they are not delayed.
        units: factors of the units in which the tardiness of jobs is measured, by job. The flows of
            a job with a larger unit are less urgent.
    """

    name = "echelon"

    def __init__(
        self,
        order: Order,
        shifts: Callable[..., Shifts] | None = None,
        units: Mapping[str, Fraction] = MappingProxyType({}),
    ) -> None:
        self._order = order
        self._units = units
        self.carried = None
        if isinstance(order, Carried):
            self.carried = order
        self._shifts = shifts
        self._references = References()
        self._capacities: Capacities = {}
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._memories = Memories()
        self._facts = Kept(_facts)
        self._facts_in_units = Kept(JobFacts.in_units)
        self._jobs: Mapping[str, JobFacts] = {}
        """The facts that `_facts_in_units` keeps; after it, so that a copy of the policy shares
        them."""
        self._flows = Kept(_ranked)
        self._plan: Plan | None = None
        self._levels: Mapping[str, Levels] = {}

    def with_order(
        self,
        order: Order,
        shifts: Callable[..., Shifts] | None = None,
        units: Mapping[str, Fraction] = MappingProxyType({}),
    ) -> Self:
        """Return a policy of another order, which shares with this one what no order changes."""
        return altered(
            self,
            _order=order,
            carried=order if isinstance(order, Carried) else None,
            _shifts=shifts,
            _units=units,
            _facts_in_units=Kept(JobFacts.in_units),
            _references=self._references.renewed(),
            _memories=Memories(),
            _flows=Kept(_ranked),
            _plan=None,
            _levels={},
        )

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
        names = by_name(jobs)
        paths_by_job = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        self._memories = Memories()

        common = (self._capacities,)
        due = self._references.plan(names, alone, paths_by_job, self._capacities)
        facts = self._facts.update_columns(
            names,
            alone,
            paths_by_job,
            due,
            places,
            self._alone.has_copies,
            common=common,
        )
        self._jobs = self._facts_in_units.update_columns(facts, self._units)
        self._levels = self._order.levels(self._jobs)
        shifts_s: Mapping[str, Fraction] = {}
        if self._shifts:
            shifts_s = self._shifts(jobs, paths_by_job, self._capacities, alone).delays_s
        flows = self._flows.update_columns(names, paths_by_job, due, self._levels, common=common)
        schedule = strict(MIN_SHARE)
        if all(map(attrgetter("relative"), self._levels.values())):
            schedule = strict()
        self._plan = Plan.of_jobs(
            self.name,
            flows,
            default_schedule=schedule,
            hosts_rank=True,
            shifts_s=shifts_s,
        )
        return self._plan

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the ideal order, without levels, until it changes on some link.

        In the order of urgency each flow takes what is left on its path. Neighbours in this order
        that are of one job and due at the same time share it max-min fairly, as a collective needs
        all of them. Best effort flows share the rest, max-min fairly as well.
        """
        ranked = []
        best_effort = []
        for i, flow in enumerate(flows):
            if flow.echelonflow is None:
                best_effort.append(i)
            else:
                ranked.append(i)
        urgent_flows = [flows[i] for i in ranked]
        arranged_s = self._references.deadlines_s(urgent_flows)
        self._memories.observe(self._jobs, urgent_flows)
        rankings = {}
        due_s = {}
        urgencies = {}
        for i, time_s in zip(ranked, arranged_s, strict=True):
            flow = flows[i]
            ranking = rankings[i] = self._deadline(flow)
            due_s[i] = time_s + ranking.due_s - ranking.offset_s
            late_from_s = due_s[i] + ranking.left_s * flow.remaining_bytes
            memory_s = self._memories.delay_s(flow.job)
            facts = self._jobs[flow.job]
            urgencies[i] = self._order.urgency(facts, now_s, flow, late_from_s, memory_s)

        order = sorted(urgencies, key=lambda i: urgencies[i].rank)
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)

        def together_key(i: int) -> tuple[str, Number]:
            return flows[i].job, due_s[i]

        for _, together in groupby(order, key=together_key):
            fill_evenly(flows, together, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        self._memories.expect(now_s, urgent_flows, arranged_s, [rates[i] for i in ranked])

        # A flow that sends becomes more urgent faster, as its bytes left grow fewer.
        for i, urgency in urgencies.items():
            left_s = rankings[i].left_s
            if left_s and rates[i]:
                slope = urgency.slope * (1 + left_s * rates[i])
                urgencies[i] = replace(urgency, slope=slope)
        change_s = next_overtaking_s(flows, order, urgencies)
        if change_s is None:
            return Allocation(tuple(rates))
        active_jobs = {flow.job for flow in urgent_flows}
        grain_s = min(map(self._grain_s, active_jobs), default=0)
        return Allocation(tuple(rates), now_s + max(change_s, grain_s))

    def _grain_s(self, job: str) -> Fraction:
        """Return the shortest time for which an order that counts the bytes left is valid."""
        levels = self._levels[job]
        if levels.left and levels.relative is not None:
            return levels.relative.unit_s / GRAINS_OF_UNIT
        return Fraction(0)

    def _deadline(self, flow: ActiveFlow) -> Deadline:
        assert self._plan is not None
        ranking = self._plan.ranking[flow.job, flow.flow]
        assert isinstance(ranking, Deadline)
        return ranking

    def neighbourhood(self, flow: ActiveFlow) -> str:
        """Return the flow's job, whose flows share a reference time and a memory."""
        return flow.job


def _facts(
    job: Job,
    alone: AloneRecord,
    paths: Paths,
    due: Dues,
    place: int | None,
    has_copies: bool,
    capacities: Capacities,
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
    bytes_by_path: Counter[Path] = Counter()
    for flow in job.flows:
        bytes_by_path[paths[flow.name]] += flow.size_bytes
    bytes_on: Counter[Link] = Counter()
    for path, size_bytes in bytes_by_path.items():
        for link in links_of(path):
            bytes_on[link] += size_bytes
    busy_s = [size_bytes / capacities[link] for link, size_bytes in bytes_on.items()]
    tardiness_s = EffectiveTardiness(job, paths, capacities)
    busiest_s = max(busy_s, default=Fraction(0))
    occupied_s = sum(busy_s, Fraction(0))
    latest_s = latest_alone_s(alone, due)
    handicap = SEPARATION * ((place or 0) % _PLACES)
    return JobFacts(
        alone_s, job.weight, tardiness_s, busiest_s, occupied_s, latest_s, handicap, has_copies
    )


def _ranked(
    job: Job,
    paths: Paths,
    due: Dues,
    levels: Levels,
    capacities: Capacities,
) -> FlowPlans:
    due_s = {}
    together = due_together(due)
    for flow_due, names in together:
        time_s = flow_due.offset_s + flow_due.slack_s
        if levels.latest:
            time_s = flow_due.latest_s
        due_s.update(dict.fromkeys(names, time_s))
    shifts = {}
    if levels.left:
        shifts = _left_shifts(job, paths, due_s, levels, capacities)

    rankings = {}
    # Flows that are due together have one ranking: what reads a plan then reads far fewer.
    rankings_by_due: dict[tuple[object, ...], Deadline] = {}
    for flow_due, names in together:
        offset_s = flow_due.offset_s
        time_s = due_s[names[0]]
        other_due_s = None
        if time_s != offset_s:
            other_due_s = time_s
        # Ratios of integers are hashed much faster than fractions.
        times = offset_s.as_integer_ratio(), time_s.as_integer_ratio()
        for name in names:
            shift = shifts.get(name)
            key = flow_due.echelonflow, *times, shift
            ranking = rankings_by_due.get(key)
            if ranking is None:
                ranking = rankings_by_due[key] = Deadline(
                    flow_due.echelonflow,
                    offset_s,
                    levels.thresholds_s,
                    levels.lowest,
                    levels.highest,
                    levels.relative,
                    other_due_s,
                    shift,
                )
            rankings[name] = ranking
    return ranked_flows(job.name, paths, rankings)


def _left_shifts(
    job: Job,
    paths: Paths,
    due_s: Mapping[str, Fraction],
    levels: Levels,
    capacities: Capacities,
) -> dict[str, int]:
    """Return, by flow, the shift for `levels.left` times the microseconds of the bytes left.

    A flow that stands for rounds has as many bytes left as each of them. With `levels.together`,
    those are the bytes of all flows of the job that are due at the same
    time. A flow that has few of them hardly delays the others, so its own do not count. A byte of
    Gloo's words, which announce gradients, would also stand for more time than switches can count.
    """
    links_by_path = {path: links_of(path) for path in set(paths.values())}
    used = set(chain.from_iterable(links_by_path.values()))
    rates_Bps = {link: float(capacities[link]) for link in used}  # noqa: N806
    narrowest_Bps = {}  # noqa: N806
    for path, links in links_by_path.items():
        narrowest_Bps[path] = min((rates_Bps[link] for link in links), default=0.0)
    numbers = _numbers(due_s)
    busy_s: dict[tuple[int, Link], float] = defaultdict(float)
    ranked = [flow for flow in job.flows if flow.name in due_s]
    if levels.together:
        for flow in ranked:
            number = numbers[flow.name]
            for link in links_by_path[paths[flow.name]]:
                busy_s[number, link] += flow.size_bytes / rates_Bps[link]

    shifts = {}
    for flow in ranked:
        links = links_by_path[paths[flow.name]]
        if not links or not flow.size_bytes:
            continue
        if levels.together:
            number = numbers[flow.name]
            all_s, line_Bps = max((busy_s[number, link], rates_Bps[link]) for link in links)  # noqa: N806
            if flow.size_bytes < FEW * all_s * line_Bps:
                continue
            byte_s = all_s / flow.size_bytes
        else:
            byte_s = 1 / narrowest_Bps[paths[flow.name]] / flow.rounds
        # Switches shift rather than multiply: by the power of two that is nearest.
        shifts[flow.name] = -round(log2(levels.left * byte_s * 1_000_000))
    return shifts


def _numbers(due_s: Mapping[str, Fraction]) -> dict[str, int]:
    """Return a number for each flow, the same for all that are due at the same time.

    Most of these have one object as their time, and fractions are hashed slowly.
    """
    by_time: dict[Fraction, int] = {}
    by_object: dict[int, int] = {}
    numbers = {}
    for name, time_s in due_s.items():
        if id(time_s) not in by_object:
            by_object[id(time_s)] = by_time.setdefault(time_s, len(by_time))
        numbers[name] = by_object[id(time_s)]
    return numbers
