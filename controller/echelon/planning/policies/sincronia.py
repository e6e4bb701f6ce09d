"""Sincronia: coflows in an order that its bottlenecks give, and any rates that keep the order.

Source: Agarwal, Krishnan, Agarwal, Smith, Stoica, Sincronia: Near-Optimal Network Design for
Coflows, SIGCOMM '18: the order is BSSI (bottleneck, select, scale, iterate), section 3; greedy
rates that preserve the order, section 4. For coflows that are all there at the start, the sum of
weighted completion times is at most four times the least possible.

Coflows that arrive later are ordered anew with what the others have left, at every start and finish
of a flow, rather than in epochs whose members a linear program admits. Flows of one coflow share
what it gets in max-min fairness, as transport protocols do in one priority. Links are measured in
seconds rather than bytes, since they need not be equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.coflows import CentralPolicy, CoflowKey, CoflowSharing, FlowSharing

C = TypeVar("C", bound=Hashable)


def bssi(demands_s: Mapping[C, Mapping[Link, Number]], weights: Mapping[C, Number]) -> list[C]:
    """Return the coflows in the order in which they should be served.

    Args:
        demands_s: the time that each coflow needs of each link that it uses.
        weights: the weight of each coflow.

    Time O(n² + n × links) for n coflows. Of equals, the last in `demands_s` is served last.
    """
    load: dict[Link, Number] = {}
    users: dict[Link, list[C]] = {}
    for coflow, demand in demands_s.items():
        for link, needed_s in demand.items():
            if needed_s > 0:
                load[link] = load.get(link, 0) + needed_s
                users.setdefault(link, []).append(coflow)
    place = {coflow: index for index, coflow in enumerate(demands_s)}
    left = dict(weights)
    unplaced = dict.fromkeys(demands_s)
    backwards = []
    while load:
        bottleneck = max(load, key=lambda link: load[link])
        candidates = [coflow for coflow in users[bottleneck] if coflow in unplaced]
        if not candidates:  # only a rest of rounding is left on this link
            del load[bottleneck]
            continue
        # Select: the largest demand for its weight goes last. Scale: the others are left with less
        # weight, as if each had taken part in the delay of the last.
        ratios = {}
        for coflow in candidates:
            ratios[coflow] = left[coflow] / demands_s[coflow][bottleneck]
        last = min(candidates, key=lambda coflow: (ratios[coflow], -place[coflow]))
        for coflow in candidates:
            left[coflow] -= ratios[last] * demands_s[coflow][bottleneck]
        del unplaced[last]
        backwards.append(last)
        for link, needed_s in demands_s[last].items():
            if link in load:
                load[link] -= needed_s
                if load[link] <= 0:
                    del load[link]
    # Coflows without bytes delay nobody.
    return [*unplaced, *reversed(backwards)]


class Sincronia(CentralPolicy):
    """BSSI between coflows, fair shares inside, and the rest for later coflows.

    A coflow is the set of flows of one EchelonFlow that are active now; its weight is that of its
    job. Switches serve coflows by strict priority in this order (`Allocation.ranks`): a central
    scheduler assigns the priorities, and hears of the start and finish of every flow.
    """

    name = "sincronia"
    needs = "job files, a controller in the loop"
    source = "SIGCOMM '18"

    def __init__(self, parameters: NoParameters | None = None) -> None:
        super().__init__()
        self._weights: dict[str, Fraction] = {}

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        plan = super().plan(jobs, fabric, paths)
        self._weights = {job.name: job.weight for job in jobs}
        return plan

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates and ranks of Sincronia. Best effort gets what no coflow can use."""
        sharing = FlowSharing(flows, self._capacities)
        order = self._share(sharing)
        ranks = [len(order)] * len(flows)
        for rank, coflow in enumerate(order):
            for i in sharing.members[coflow]:
                ranks[i] = rank
        return Allocation(sharing.rates_Bps(), ranks=tuple(ranks))

    def share(self, sharing: CoflowSharing) -> None:
        """Give rates, which hold until a flow starts or finishes."""
        self._share(sharing)

    def _share(self, sharing: CoflowSharing) -> list[CoflowKey]:
        """Give rates, and return the order of the coflows."""
        residual = sharing.residual_Bps
        demands_s = {}
        weights = {}
        for coflow in sharing.coflows:
            loads = sharing.load_bytes(coflow).items()
            demands_s[coflow] = {link: load / residual[link] for link, load in loads}
            weights[coflow] = self._weights.get(coflow[0], 1)
        order = bssi(demands_s, weights)
        for coflow in order:
            sharing.fill_evenly([coflow], residual)
        return order
