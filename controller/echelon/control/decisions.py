"""The decisions of a central scheduler: active flows in, queue schedules and rates out.

Varys and its kin recompute the rates of all flows whenever one starts or finishes. The policy's new allocation becomes
a new plan: a queue for each active flow, and for the queues of each port either weights by rate, beside the rates that
senders keep to, or levels by rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from echelon.allocation import ActiveFlow, Allocator
from echelon.jobs.graph import FlowKey
from echelon.plan import FlowPlan, Plan, PlanError
from echelon.policies.base import Policy
from echelon.policies.schedule import to_levels, to_schedule
from echelon.rankings.fixed import Fixed


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """What to decide on."""

    now_s: Fraction
    """The time of the newest event, by the clock of the switch that reported it."""
    flows: tuple[ActiveFlow, ...]
    """The active flows, those whose start is newest last."""
    bytes_passed: Mapping[FlowKey, int]
    """How much of each of them has reached its last switch."""


def decide(policy: Policy, last: Plan, due: DecisionDue) -> Plan:
    """Return the plan that follows the `last` one. Raises `PlanError`, and whatever a policy raises."""
    if not isinstance(policy, Allocator):
        raise PlanError(f"policy {policy.name}: its plan is reactive, but it does not allocate rates")
    keys = [(flow.job, flow.flow) for flow in due.flows]
    flows = [
        replace(flow, remaining_bytes=Fraction(max(flow.size_bytes - due.bytes_passed.get(key, 0), 1)))
        for key, flow in zip(keys, due.flows, strict=True)
    ]
    allocation = policy.allocate(due.now_s, flows)
    # A flow's packets go there before the scheduler has heard of it, so it best stays there.
    before = {(one.job, one.flow): one.ranking.queues[0] for one in last.flows if len(one.ranking.queues) == 1}
    rates_Bps: dict[FlowKey, Fraction] = {}  # noqa: N806
    if allocation.ranks is None:
        queues, schedules = to_schedule(flows, allocation.rates_Bps, before)
        rates_Bps = {key: Fraction(rate) for key, rate in zip(keys, allocation.rates_Bps, strict=True)}  # noqa: N806
    else:
        queues, schedules = to_levels(flows, allocation.ranks, before)
    queues = {**before, **queues}
    return replace(
        last,
        flows=tuple(_in_queue(one, queues.get((one.job, one.flow))) for one in last.flows),
        schedules=schedules,
        rates_Bps=rates_Bps,
    )


def _in_queue(flow: FlowPlan, queue: int | None) -> FlowPlan:
    return flow if queue is None or flow.ranking == Fixed(queue) else replace(flow, ranking=Fixed(queue))
