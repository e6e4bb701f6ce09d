"""EchelonFlow scheduling: by deadline inside an EchelonFlow, by tardiness between them.

Source: Pan et al., Efficient Flow Scheduling in Distributed Deep Learning Training with Echelon Formation, HotNets '22.
Inside an EchelonFlow the order is EDF (earliest ideal finish time first), work conserving, which on one link minimises
its tardiness (Jackson 1955, Horn 1974). Between EchelonFlows there is a choice of orders (see `orders`). We differ from
the paper in the origin of deadlines; `references` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Literal

from echelon.allocation import ActiveFlow, Allocation, Link, Number
from echelon.documents import Section
from echelon.execution import IterationRecord, duration_s
from echelon.fabric.model import Fabric
from echelon.fabric.routing import PathChooser
from echelon.fluid.alone_runs import AloneRuns
from echelon.jobs.graph import Job
from echelon.kept import Kept
from echelon.paths import FlowPaths, Paths, links_of
from echelon.plan import FlowPlan, Plan, PlanError
from echelon.policies.base import Carried
from echelon.policies.cassini.shifts import Shifts, time_shifts
from echelon.policies.crux.routes import LeastCongested
from echelon.policies.filling import ZERO, fill_evenly, residual_of
from echelon.policies.levels import BEST_EFFORT_QUEUE, MIN_SHARE, strict
from echelon.policies.memories import Memories
from echelon.policies.orders import ORDERS, JobFacts, Levels, next_overtaking_s
from echelon.policies.references import Dues, References, latest_alone_s
from echelon.policies.tardiness import EffectiveTardiness
from echelon.rankings.base import Ranking
from echelon.rankings.deadline import Deadline
from echelon.rankings.fixed import Fixed

PATHS: Mapping[str, type[PathChooser] | None] = {"kept": None, "crux": LeastCongested}
SHIFTS: Mapping[str, Callable[..., Shifts] | None] = {"none": None, "cassini": time_shifts}


class Echelon:
    """A policy of EDF inside EchelonFlows, and an order between them.

    Flows that are in no EchelonFlow have no ideal finish time: they are best effort.
    """

    name = "echelon"

    class Parameters(Section):
        """The choices that the paper leaves open."""

        order: Literal["memory", "normalised", "deadline", "setf"] = "memory"
        """The order between EchelonFlows (`echelon.policies.orders`)."""
        paths: Literal["kept", "crux"] = "kept"
        """The paths of connections: kept, or chosen as Crux does whenever jobs come or go."""
        shifts: Literal["none", "cassini"] = "none"
        """The time shifts by which hosts delay jobs, so that fewer of their flows meet."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        chosen = self.Parameters() if parameters is None else parameters
        self._order = ORDERS[chosen.order]()
        self.carried = self._order if isinstance(self._order, Carried) else None
        self._references = References()
        chooser = PATHS[chosen.paths]
        self._chooser = None if chooser is None else chooser()
        self._shifts = SHIFTS[chosen.shifts]
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._memories = Memories()
        self._facts = Kept(_facts)
        self._jobs: dict[str, JobFacts] = {}
        """The facts that `_facts` keeps; after it, so that a copy of the policy shares them."""
        self._flows = Kept(_ranked)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan that ranks every flow by its slack.

        Raises `PlanError` if a worker cannot be reached or a job takes no time.
        """
        of_jobs = self._paths.update(jobs, fabric, self._chooser or paths)
        alone = self._alone.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        self._memories = Memories()
        due = self._references.plan({job.name: (job, alone[job.name]) for job in jobs})
        self._jobs = self._facts.update(
            {job.name: (job, alone[job.name], of_jobs[job.name], due[job.name], self._capacities) for job in jobs}
        )
        levels = self._order.levels(self._jobs)
        return Plan.of_jobs(
            self.name,
            self._flows.update({job: (job, of_job, due[job], levels[job]) for job, of_job in of_jobs.items()}),
            default_schedule=strict(MIN_SHARE),
            hosts_rank=True,
            best_effort_queue=BEST_EFFORT_QUEUE,
            shifts_s=self._shifts(jobs, of_jobs, self._capacities, alone).delays_s if self._shifts else {},
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the ideal order, without levels, until the order changes on some link.

        In the order of urgency each flow takes what is left on its path; flows of a job that are due at the same time
        share it max-min fairly, as a collective needs all of them. So does best effort, with the rest.
        """
        ranked = [i for i, flow in enumerate(flows) if flow.echelonflow is not None]
        begun = self._references.deadlines_s([flows[i] for i in ranked])
        due = {i: at_s + self._references.slack_s(flows[i]) for i, at_s in zip(ranked, begun, strict=True)}
        self._memories.observe(self._jobs, [flows[i] for i in ranked])
        urgencies = {
            i: self._order.urgency(
                self._jobs[flows[i].job], now_s, flows[i], deadline_s, self._memories.delay_s(flows[i].job)
            )
            for i, deadline_s in due.items()
        }
        order = sorted(urgencies, key=lambda i: urgencies[i].rank)
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        for _, together in groupby(order, key=lambda i: (flows[i].job, due[i])):
            fill_evenly(flows, together, residual, rates)
        fill_evenly(flows, (i for i, flow in enumerate(flows) if flow.echelonflow is None), residual, rates)
        change = next_overtaking_s(flows, order, urgencies)
        self._memories.expect(now_s, [flows[i] for i in ranked], begun, [rates[i] for i in ranked])
        return Allocation(tuple(rates), None if change is None else now_s + change)

    def neighbourhood(self, flow: ActiveFlow) -> str:
        """Return the flow's job, whose flows share a reference time and a memory."""
        return flow.job


def _facts(
    job: Job, alone: IterationRecord[Fraction], paths: Paths, due: Dues, capacities: Mapping[Link, Fraction]
) -> JobFacts:
    alone_s = duration_s(alone)
    if alone_s <= 0:
        raise PlanError(f"job {job.name}: its iteration takes no time; give it compute time or bytes to send", job.name)
    if job.weight <= 0:
        raise PlanError(f"job {job.name}: weight {job.weight} must be positive", job.name, code="too-small")
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
    )


def _ranked(job: str, paths: Paths, due: Dues, levels: Levels) -> tuple[FlowPlan, ...]:
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
            of.offset_s + of.slack_s if of.slack_s else None,
        )

    return tuple(FlowPlan(job, flow, ranking(flow), path) for flow, path in paths.items())
