"""Decisions of reactive policies.

Varys and its kin recompute the rates of all flows whenever one starts or finishes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, compress

from echelon.model.jobs.graph import FlowKey
from echelon.planning.allocation import ActiveFlow, Allocation, Allocator
from echelon.planning.plan import Plan, PlanError
from echelon.planning.policies.base import Policy
from echelon.planning.policies.schedule import to_levels, to_schedule
from echelon.planning.rankings.fixed import Fixed


@dataclass(frozen=True, slots=True)
class DecisionDue:
    """A decision that is due.

    The policy's new allocation becomes a new plan: a queue for each active flow, and for the queues
    of each port either weights by rate, beside the rates that senders keep to, or levels by rank.
    """

    now_s: Fraction
    """The time of the newest event, by the clock of the switch that reported it."""
    flows: tuple[ActiveFlow, ...]
    """The active flows, those whose start is newest last."""
    bytes_passed: Mapping[FlowKey, int]
    """The bytes of each of them that have reached its last switch."""


def decide(
    policy: Policy,
    last: Plan,
    due: DecisionDue,
) -> Plan:
    """Return the plan that follows the `last` one.

    Raises `PlanError`, and whatever a policy raises.
    """
    if not isinstance(policy, Allocator):
        raise PlanError(
            f"policy {policy.name}: its plan is reactive, but it does not allocate rates"
        )
    keys = [(flow.job, flow.flow) for flow in due.flows]
    flows = [_with_what_remains(flow, due.bytes_passed) for flow in due.flows]
    allocation = policy.allocate(due.now_s, flows)
    before = _single_queues(last, keys)

    rates_Bps: dict[FlowKey, Fraction] = {}  # noqa: N806
    if allocation.ranks is None:
        queues, schedules = to_schedule(flows, allocation.rates_Bps, before)
        rates_Bps = _rates_of_senders(flows, allocation, queues)  # noqa: N806
    else:
        queues, schedules = to_levels(flows, allocation.ranks, before)
    fixed = {key: Fixed(queue) for key, queue in queues.items()}
    return last.with_rankings(
        fixed,
        schedules=schedules,
        rates_Bps=rates_Bps,
    )


def _with_what_remains(flow: ActiveFlow, bytes_passed: Mapping[FlowKey, int]) -> ActiveFlow:
    passed = bytes_passed.get((flow.job, flow.flow), 0)
    # A flow whose last packet has passed stays active until a switch reports it.
    remaining_bytes = Fraction(max(flow.size_bytes - passed, 1))
    return replace(flow, remaining_bytes=remaining_bytes)


def _single_queues(last: Plan, keys: Sequence[FlowKey]) -> dict[FlowKey, int]:
    """Return the queues of those flows that have one.

    A flow's packets go there before the scheduler has heard of it, so it best stays there.
    """
    queues = {}
    for key in keys:
        index, _ = last.places[key]
        ranking = last.flows[index].ranking
        if len(ranking.queues) == 1:
            queues[key] = ranking.queues[0]
    return queues


def _rates_of_senders(
    flows: Sequence[ActiveFlow],
    allocation: Allocation,
    queues: Mapping[FlowKey, int],
) -> dict[FlowKey, Fraction]:
    """Return the rates that senders have to keep to.

    A flow without a rate that shares neither its host's link nor a queue with a flow that has one
    is left out. It waits in its queues, at the lowest level, until the others have nothing to send;
    its host would have to hear of that first.
    """
    keys = [(flow.job, flow.flow) for flow in flows]
    places = []
    for key, flow in zip(keys, flows, strict=True):
        at_ports = [(link, queues[key]) for link in flow.links]
        places.append([(flow.links[0], None), *at_ports])
    taken = set(chain.from_iterable(compress(places, allocation.rates_Bps)))

    rates = {}
    for key, its_places, rate in zip(keys, places, allocation.rates_Bps, strict=True):
        if rate or not taken.isdisjoint(its_places):
            rates[key] = Fraction(rate)
    return rates
