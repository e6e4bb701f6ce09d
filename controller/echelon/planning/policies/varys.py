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

from echelon.planning.allocation import ActiveFlow, Allocation, Number
from echelon.planning.policies.coflows import (
    CentralPolicy,
    CoflowSharing,
    FlowSharing,
    bottleneck_s,
)
from echelon.planning.policies.filling import nine_digits


class Varys(CentralPolicy):
    """SEBF between coflows, MADD inside, backfill with the rest.

    A coflow is the set of flows of one EchelonFlow that are active now. Its bottleneck is computed
    anew at every flow start and finish, so a central scheduler has to hear of each (the plan is
    `reactive`).
    """

    name = "varys"
    needs = "job files, a controller in the loop"
    source = "SIGCOMM '14"

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of Varys. Best effort gets what no coflow can use."""
        sharing = FlowSharing(flows, self._capacities)
        self.share(sharing)
        return Allocation(sharing.rates_Bps())

    def share(self, sharing: CoflowSharing) -> None:
        """Give rates, which hold until a flow starts or finishes."""
        residual = sharing.residual_Bps
        loads = {}
        gammas_s = {}
        for coflow in sharing.coflows:
            loads[coflow] = sharing.load_bytes(coflow)
            gammas_s[coflow] = bottleneck_s(loads[coflow], residual) or 0
        # Of equals, the first to arrive.
        order = sorted(loads, key=lambda coflow: nine_digits(gammas_s[coflow]))
        skipped = []
        for coflow in order:
            gamma_s = bottleneck_s(loads[coflow], residual)
            if gamma_s is None:
                skipped.append(coflow)
            elif gamma_s:
                sharing.finish_in(coflow, gamma_s)
        sharing.fill_evenly(skipped, residual)
        sharing.fill_in_order()
