"""The plan: a policy's decision, in terms of no particular target.

Policies make it from jobs and fabric; `lowering` turns it into one intent per switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Any, Self

from echelon.model.errors import Code, CodedError
from echelon.model.fabric.model import Path
from echelon.model.jobs.graph import FlowKey, Job
from echelon.planning.rankings.base import Ranking

LEVELS = 8
"""Strict-priority levels (and queues) of an egress port; 0 is the lowest."""
CONTROL_QUEUE = LEVELS - 1
"""The queue of acknowledgements.

A policy that does not keep it free must serve it before what waits for them.
"""


class PlanError(CodedError, ValueError):
    """A policy that cannot be made, or cannot plan these jobs; the message says what to change."""

    code: Code = "plan-impossible"

    def __init__(
        self,
        reason: str,
        job: str | None = None,
        *,
        code: Code | None = None,
    ) -> None:
        super().__init__(reason, code=code)
        self.job = job
        """The job without which the others can be planned; None if no single job is at fault."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """One flow of every iteration: how it is ranked, and along which switches it goes."""

    job: str
    flow: str
    ranking: Ranking
    path: Path
    """Nodes from source host to destination host, both included."""


FlowPlans = tuple[FlowPlan, ...]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """One queue of an egress port."""

    level: int
    weight: int = 1
    """DWRR share among the queues of the same level, 1..1023."""
    min_share: Fraction = Fraction(0)
    """Part of the port's rate that the queue gets whatever waits in higher levels."""
    max_share: Fraction | None = None
    """Part of the port's rate that it never exceeds; None: no limit."""


PortSchedule = tuple[QueuePlan, ...]
"""The LEVELS queues of a port, indexed by queue."""


@dataclass(frozen=True)
class Plan:
    """A policy's decision for a set of jobs on a fabric."""

    policy: str
    flows: FlowPlans
    default_schedule: PortSchedule
    """The queues of every egress port that `schedules` does not name."""
    schedules: Mapping[tuple[str, str], PortSchedule] = field(default_factory=dict)
    """The setting by (node, next node)."""
    best_effort_queue: int = 0
    """The queue of traffic that no job claims."""
    shifts_s: Mapping[str, Fraction] = field(default_factory=dict)
    """Seconds by which the host agents delay the first iteration of a job, by its name; absent:
    0.
    """
    rates_Bps: Mapping[FlowKey, Fraction] = field(default_factory=dict)  # noqa: N815
    """The rates on the wire at which host agents send flows under way; absent: no limit."""
    hosts_rank: bool = False
    """Whether a host sends its flows by their rankings, and acknowledgements first.

    Otherwise packets leave a host as they come. No switch ranks them on their first link.
    """
    unranked_hosts: frozenset[str] = frozenset()
    """The hosts that send packets as they come although `hosts_rank`."""
    memory: Mapping[tuple[str, Path], object] = field(default_factory=dict)
    """The memory of switches that trees get, by job and path; absent: what the plug-in gives.

    It is in the terms of the plug-in that carries trees (`echelon.switches.lowering.trees`).
    """
    allocated: bool = False
    """Whether the fluid engine takes the policy's rates (`Allocator`), which say more than queues.
    """
    reactive: bool = False
    """Whether a central scheduler must hear of each flow's start and finish.

    The policy is then an `Allocator`.
    """

    @classmethod
    def of_jobs(
        cls,
        policy: str,
        flows: Mapping[str, FlowPlans],
        **fields: Any,
    ) -> Self:
        """Return a plan of the flows of each job, by its name; `fields` are the other fields.

        `by_job` is `flows` then: a policy that gives the same object for a job as in its last plan
        says that nothing has changed for that job (identity: see `echelon.planning`).
        """
        all_flows = tuple(chain.from_iterable(flows.values()))
        plan = cls(policy, all_flows, **fields)
        plan.__dict__["by_job"] = flows
        return plan

    def with_rankings(self, rankings: Mapping[FlowKey, Ranking], **fields: Any) -> Self:
        """Return this plan with other rankings of some of its flows; `fields` change, too.

        Jobs none of whose rankings differ keep their object in `by_job`.
        """
        flows = list(self.flows)
        changed = {}
        """The flows of each job of which some ranking differs."""
        for key, ranking in rankings.items():
            job, _ = key
            place, place_in_job = self.places[key]
            if flows[place].ranking == ranking:
                continue
            flows[place] = replace(flows[place], ranking=ranking)
            if job not in changed:
                changed[job] = list(self.by_job[job])
            changed[job][place_in_job] = flows[place]

        new_flows = self.flows
        if changed:
            new_flows = tuple(flows)
        plan = replace(self, flows=new_flows, **fields)
        by_job = dict(self.by_job)
        for job, job_flows in changed.items():
            by_job[job] = tuple(job_flows)
        plan.__dict__["by_job"] = by_job
        plan.__dict__["places"] = self.places
        return plan

    def ranks_at(self, host: str) -> bool:
        """Return whether this host sends its flows by their rankings."""
        return self.hosts_rank and host not in self.unranked_hosts

    def ranking_at_host(self, flow: FlowKey) -> Ranking | None:
        """Return the ranking by which a host sends a flow; None: packets leave as they come."""
        job, name = flow
        host = self.paths[job][name][0]
        if self.ranks_at(host):
            return self.ranking[flow]
        return None

    def delayed(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return the jobs as host agents start them: those of `shifts_s` that much later."""

        def delayed(job: Job) -> Job:
            shift_s = self.shifts_s.get(job.name)
            if not shift_s:
                return job
            return replace(job, start_s=job.start_s + shift_s)

        return tuple(map(delayed, jobs))

    @cached_property
    def ranking(self) -> Mapping[FlowKey, Ranking]:
        """Return the ranking of each flow."""
        return {(flow.job, flow.flow): flow.ranking for flow in self.flows}

    @cached_property
    def places(self) -> Mapping[FlowKey, tuple[int, int]]:
        """Return the index of each flow in `flows`, and in those of its job."""
        in_job = {}
        for flows in self.by_job.values():
            for index, flow in enumerate(flows):
                in_job[flow.job, flow.flow] = index
        places = {}
        for index, flow in enumerate(self.flows):
            key = flow.job, flow.flow
            places[key] = index, in_job[key]
        return places

    @cached_property
    def by_job(self) -> Mapping[str, FlowPlans]:
        """Return the flows of each job that has any, in the order of `flows`."""
        out: dict[str, list[FlowPlan]] = {}
        for flow in self.flows:
            out.setdefault(flow.job, []).append(flow)
        return {job: tuple(flows) for job, flows in out.items()}

    @cached_property
    def paths(self) -> Mapping[str, Mapping[str, Path]]:
        """Return the path of each flow, by job and flow."""
        paths = {}
        for job, flows in self.by_job.items():
            paths[job] = {flow.flow: flow.path for flow in flows}
        return paths
