"""The central scheduler of a reactive policy: starts and finishes of flows in, queue schedules and rates out.

Varys and its kin recompute the rates of all flows whenever one starts or finishes. The scheduler knows which flows are
active and turns the policy's new allocation into a new plan: a queue for each active flow, and for the queues of each
port either weights by rate, beside the rates that senders keep to, or levels by rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from echelon.allocation import ActiveFlow, Allocator
from echelon.jobs.graph import FlowKey, Job
from echelon.plan import FlowPlan, Plan, PlanError
from echelon.policies.base import Policy
from echelon.policies.schedule import to_levels, to_schedule
from echelon.rankings.fixed import Fixed


@dataclass
class CentralScheduler:
    """The active flows of a set of jobs; `plan` is the plan in force."""

    policy: Policy
    jobs: Sequence[Job]
    plan: Plan
    active: dict[FlowKey, ActiveFlow] = field(default_factory=dict)
    _starts: int = 0
    _finished: dict[FlowKey, int] = field(default_factory=dict)
    _queues: dict[FlowKey, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sizes = {(job.name, flow.name): flow.size_bytes for job in self.jobs for flow in job.flows}
        self._echelonflows = {(job.name, f): h.name for job in self.jobs for h in job.echelonflows for f in h.flows}
        self._paths = {(flow.job, flow.flow): flow.path for flow in self.plan.flows}
        # A flow's packets go there before the scheduler has heard of it, so it best stays there.
        self._queues = {
            (flow.job, flow.flow): flow.ranking.queues[0] for flow in self.plan.flows if len(flow.ranking.queues) == 1
        }

    @property
    def paths(self) -> Mapping[FlowKey, tuple[str, ...]]:
        """The nodes of each planned flow's path, both hosts included."""
        return self._paths

    def take_over(self, before: CentralScheduler) -> None:
        """Continue from a scheduler whose plan was replaced: active flows stay active, in their order, on new paths."""
        self._starts = before._starts
        for key, flow in before.active.items():
            same = (self._sizes.get(key), self._echelonflows.get(key)) == (flow.size_bytes, flow.echelonflow)
            if key in self._paths and same:
                self.active[key] = replace(flow, links=tuple(pairwise(self._paths[key])))

    def start(self, key: FlowKey, iteration: int, now_s: Fraction) -> bool:
        """Note that the first packet of a flow was seen. Return whether that is news.

        It is no news of a flow without a plan, of one that is active in this iteration, or of one whose finish in this
        iteration was reported first, which happens where two switches report. In another iteration it is news: the
        report of the last finish was lost.
        """
        known = self.active.get(key)
        if key not in self._paths or self._finished.get(key) == iteration or (known and known.iteration == iteration):
            return False
        size = self._sizes[key]
        self._starts += 1
        # The newest start is the last in line.
        self.active.pop(key, None)
        self.active[key] = ActiveFlow(
            job=key[0],
            flow=key[1],
            iteration=iteration,
            echelonflow=self._echelonflows.get(key),
            links=tuple(pairwise(self._paths[key])),
            size_bytes=size,
            remaining_bytes=Fraction(size),
            start_s=now_s,
            ideal_finish_s=now_s,
            sequence=self._starts,
        )
        return True

    def finish(self, key: FlowKey, iteration: int) -> bool:
        """Note that the last packet of a flow was seen. Return whether an active flow ends: digests may come twice."""
        if key not in self._paths:
            return False
        known = self.active.get(key)
        if known is not None and known.iteration != iteration:
            return False
        self._finished[key] = iteration
        return self.active.pop(key, None) is not None

    def decide(self, now_s: Fraction, bytes_passed: Mapping[FlowKey, int]) -> Plan:
        """Return the new plan. `bytes_passed`: how much of each active flow has reached its last switch."""
        flows = [
            replace(flow, remaining_bytes=Fraction(max(flow.size_bytes - bytes_passed.get(key, 0), 1)))
            for key, flow in self.active.items()
        ]
        if not isinstance(self.policy, Allocator):
            raise PlanError(f"policy {self.policy.name}: its plan is reactive, but it does not allocate rates")
        allocation = self.policy.allocate(now_s, flows)
        rates_Bps: dict[FlowKey, Fraction] = {}  # noqa: N806
        if allocation.ranks is None:
            queues, schedules = to_schedule(flows, allocation.rates_Bps, self._queues)
            rates_Bps = {key: Fraction(rate) for key, rate in zip(self.active, allocation.rates_Bps, strict=True)}  # noqa: N806
        else:
            queues, schedules = to_levels(flows, allocation.ranks, self._queues)
        self._queues |= queues
        self.plan = replace(
            self.plan,
            flows=tuple(self._requeue(flow) for flow in self.plan.flows),
            schedules=schedules,
            rates_Bps=rates_Bps,
        )
        return self.plan

    def _requeue(self, flow: FlowPlan) -> FlowPlan:
        queue = self._queues.get((flow.job, flow.flow))
        return flow if queue is None or flow.ranking == Fixed(queue) else replace(flow, ranking=Fixed(queue))
