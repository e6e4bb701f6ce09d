"""Varys: coflows in order of their bottleneck, each finishing all its flows together.

Source: Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM '14: SEBF
(smallest effective bottleneck first), MADD (minimum allocation for desired duration), and
backfilling, section 5.

A coflow that would need a full link is skipped, and shares what the others have left; what is left
then goes to flows in order of arrival. Rates are decided at every start and finish of a flow, where
Varys decides at those of coflows. There is no guard against starvation and there are no deadlines.
"""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Allocation, Number
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.coflows import CentralPlans, CoflowSharing, FlowSharing, bottleneck_s
from echelon.planning.policies.filling import nine_digits


class Varys:
    """SEBF between coflows, MADD inside, backfill with the rest.

    A coflow is the set of flows of one EchelonFlow that are active now. Its bottleneck is computed
    anew at every flow start and finish, so a central scheduler has to hear of each (the plan is
    `reactive`).
    """

    name = "varys"
    needs = "job files, a controller in the loop"
    source = "SIGCOMM '14"
    reactive = True
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._central = CentralPlans(self.name)
        self.carried = self._central.carried

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return equal queues, which hold until the scheduler has heard of the flows.

        Raises `PlanError` if a worker cannot be reached.
        """
        return self._central.plan(jobs, fabric, paths)

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of Varys. Best effort gets what no coflow can use."""
        sharing = FlowSharing(flows, self._central.capacities_Bps)
        self.share(sharing)
        return Allocation(sharing.rates_Bps())

    def share(self, sharing: CoflowSharing) -> None:
        """Give rates, which hold until a flow starts or finishes."""
        residual = sharing.residual_Bps
        loads = {coflow: sharing.load_bytes(coflow) for coflow in sharing.coflows}
        gammas_s = {coflow: bottleneck_s(load, residual) or 0 for coflow, load in loads.items()}
        skipped = []
        for coflow in sorted(
            loads, key=lambda coflow: nine_digits(gammas_s[coflow])
        ):  # of equals, the first to arrive
            gamma_s = bottleneck_s(loads[coflow], residual)
            if gamma_s is None:
                skipped.append(coflow)
            elif gamma_s:
                sharing.finish_in(coflow, gamma_s)
        sharing.fill_evenly(skipped, residual)
        sharing.fill_in_order()
