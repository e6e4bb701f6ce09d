"""Varys: coflows in order of their bottleneck, each finishing all its flows together.

Source: Chowdhury, Zhong, Stoica, Efficient Coflow Scheduling with Varys, SIGCOMM '14: SEBF (smallest effective
bottleneck first), MADD (minimum allocation for desired duration), and backfilling, section 5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from echelon.allocation import ActiveFlow, Allocation, Link, Number
from echelon.fabric.model import Fabric
from echelon.fabric.routing import PathChooser
from echelon.jobs.graph import Job
from echelon.paths import FlowPaths
from echelon.plan import Plan
from echelon.policies.base import NoParameters
from echelon.policies.filling import ZERO, fill_evenly, fill_in_order, residual_of
from echelon.policies.schedule import BEST_EFFORT_QUEUE, QUEUES, to_port
from echelon.policies.spread import Spread


def bottleneck_s(flows: Iterable[ActiveFlow], capacities: Mapping[Link, Number]) -> Number | None:
    """Return gamma, the seconds in which these flows can finish at best; None if a link that they need is full."""
    load: dict[Link, Number] = defaultdict(int)
    for flow in flows:
        for link in flow.links:
            load[link] += flow.remaining_bytes
    if any(capacities[link] <= 0 for link in load):
        return None
    return max(load[link] / capacities[link] for link in load)


class Varys:
    """SEBF between coflows, MADD inside, backfill with what is left.

    A coflow is the set of flows of one EchelonFlow that are active now. Its bottleneck is computed anew at every flow
    start and finish, so a central scheduler has to hear of each (the plan is `reactive`).
    """

    name = "varys"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self._spread = Spread(QUEUES)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return equal queues, which hold until the scheduler has heard of the flows.

        Raises `PlanError` if a worker cannot be reached.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        return Plan.of_jobs(
            self.name,
            self._spread.update(jobs, of_jobs),
            default_schedule=to_port({}),
            best_effort_queue=BEST_EFFORT_QUEUE,
            reactive=True,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of Varys. Best effort gets what no coflow can use, in max-min fair shares."""
        members: dict[tuple[str, int, str], list[int]] = defaultdict(list)
        best_effort = []
        for i, flow in enumerate(flows):
            if flow.echelonflow is None:
                best_effort.append(i)
            else:
                members[flow.job, flow.iteration, flow.echelonflow].append(i)

        def effective_bottleneck(coflow: list[int]) -> tuple[Number, int]:
            gamma = bottleneck_s((flows[i] for i in coflow), self._capacities)
            return gamma or ZERO, min(flows[i].sequence for i in coflow)

        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        skipped: list[int] = []
        for coflow in sorted(members.values(), key=effective_bottleneck):
            gamma = bottleneck_s((flows[i] for i in coflow), residual)
            if gamma is None:
                skipped += coflow
            elif gamma:
                for i in coflow:
                    rates[i] = flows[i].remaining_bytes / gamma
                    for link in flows[i].links:
                        residual[link] -= rates[i]
        fill_evenly(flows, skipped, residual, rates)
        by_arrival = sorted((i for coflow in members.values() for i in coflow), key=lambda i: flows[i].sequence)
        fill_in_order(flows, by_arrival, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        return Allocation(tuple(rates))
