"""Varys: coflows in order of their bottleneck, each finishing all its flows together.

Source: Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM '14: SEBF (smallest effective
bottleneck first), MADD (minimum allocation for desired duration), and backfilling, section 5.

A coflow that would need a full link is skipped, and shares what the others have left; what is left then goes to flows
in order of arrival. Rates are decided at every start and finish of a flow, where Varys decides at those of coflows.
There is no guard against starvation and there are no deadlines.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.allocation import ActiveFlow, Allocation, Number
from echelon.fabric.model import Fabric
from echelon.fabric.routing import PathChooser
from echelon.jobs.graph import Job
from echelon.plan import Plan
from echelon.policies.base import NoParameters
from echelon.policies.coflows import CentralPlans, bottleneck_s, by_coflow, load_of
from echelon.policies.filling import ZERO, fill_evenly, fill_in_order, residual_of

ROUNDING = 2**30
"""A link is full if at most its capacity divided by this is left, since rates may have been rounded."""


class Varys:
    """SEBF between coflows, MADD inside, backfill with what is left.

    A coflow is the set of flows of one EchelonFlow that are active now. Its bottleneck is computed anew at every flow
    start and finish, so a central scheduler has to hear of each (the plan is `reactive`).
    """

    name = "varys"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._central = CentralPlans(self.name)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return equal queues, which hold until the scheduler has heard of the flows.

        Raises `PlanError` if a worker cannot be reached.
        """
        return self._central.plan(jobs, fabric, paths)

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of Varys. Best effort gets what no coflow can use, in max-min fair shares."""
        residual = residual_of(self._central.capacities_Bps, flows)
        least = {link: capacity / ROUNDING for link, capacity in residual.items()}
        coflows, best_effort = by_coflow(flows)
        loads = {coflow: load_of(flows[i] for i in members) for coflow, members in coflows.items()}
        gammas_s = {coflow: bottleneck_s(load, residual) or 0 for coflow, load in loads.items()}
        arrivals = {coflow: min(flows[i].sequence for i in members) for coflow, members in coflows.items()}
        rates: list[Number] = [ZERO] * len(flows)
        skipped: list[int] = []
        for coflow in sorted(coflows, key=lambda coflow: (gammas_s[coflow], arrivals[coflow])):
            gamma_s = bottleneck_s(loads[coflow], residual)
            if gamma_s is None:
                skipped += coflows[coflow]
            elif gamma_s:
                for i in coflows[coflow]:
                    rates[i] = flows[i].remaining_bytes / gamma_s
                for link, load in loads[coflow].items():
                    left = residual[link] - load / gamma_s
                    residual[link] = left if left > least[link] else 0 * left
        fill_evenly(flows, skipped, residual, rates)
        by_arrival = sorted((i for members in coflows.values() for i in members), key=lambda i: flows[i].sequence)
        fill_in_order(flows, by_arrival, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        return Allocation(tuple(rates))
