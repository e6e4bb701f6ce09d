"""Shortest remaining first: the flow with the fewest bytes left goes first.

Source: Alizadeh et al., pFabric: Minimal Near-Optimal Datacenter Transport, SIGCOMM '13, section 4:
every packet carries its flow's remaining size, and switches serve the smallest. pFabric's switches
drop the packet of the largest remaining size when a queue is full and pick the earliest packet of
the best flow; ours have eight queues, so a flow's queue rises as its bytes pass (section 5.4.3 of
the paper describes priority queues as the approximation on existing switches). Sizes are known
here, so a flow has `size - attained` left. Deadlines do not count: a large flow waits for as long
as smaller ones come.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Link, Number
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import FlowPlans, Plan
from echelon.planning.policies.base import LinksOnly, NoParameters
from echelon.planning.policies.filling import ZERO, fill_evenly, fill_in_order, residual_of
from echelon.planning.policies.levels import (
    JOB_QUEUES,
    MIN_SHARE,
    ranked_flows,
    strict,
)
from echelon.planning.rankings.attained import Attained


class Srpt(LinksOnly):
    """Every flow by its remaining bytes.

    Flows in no EchelonFlow take part, because their size is known too.
    """

    name = "srpt"
    needs = "sizes of flows"
    source = "SIGCOMM '13"
    ranks_by_bytes = True
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Capacities = {}
        self._paths = FlowPaths()
        self._flows = Kept(_ranked)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan in which a flow's queue rises as its bytes pass.

        Raises `PlanError` if a worker cannot be reached.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        sizes_bytes = [flow.size_bytes for job in jobs for flow in job.flows]
        thresholds = remaining_thresholds_bytes(sizes_bytes)
        rows = {}
        for job in jobs:
            rows[job.name] = job, paths_by_job[job.name], thresholds
        plans = self._flows.update(rows)
        schedule = strict(MIN_SHARE)
        return Plan.of_jobs(
            self.name,
            plans,
            default_schedule=schedule,
            hosts_rank=True,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the exact order, until one flow overtakes another.

        Best effort shares what is left.
        """
        order = []
        best_effort = []
        for i, flow in enumerate(flows):
            if flow.job:
                order.append(i)
            else:
                best_effort.append(i)
        order.sort(key=lambda i: (flows[i].remaining_bytes, flows[i].sequence))
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        fill_in_order(flows, order, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        change_s = _next_overtaking_s(flows, order, rates)
        if change_s is None:
            return Allocation(tuple(rates))
        return Allocation(tuple(rates), now_s + change_s)


def remaining_thresholds_bytes(
    sizes_bytes: Sequence[int], queues: int = len(JOB_QUEUES)
) -> tuple[int, ...]:
    """Return the bytes left that separate queues, ascending, for the same load in each.

    A flow of S bytes passes min(S, t) of them while it has at most t left. That is how an equal
    load in each queue turns into thresholds; pFabric chooses them to the same end, from the
    distribution of flow sizes.
    """
    total = sum(sizes_bytes)
    passing = []
    """The sizes in ascending order. Each has the bytes that are sent while at most so much of their
    flow is left, and the number of larger flows."""
    below = 0
    larger = len(sizes_bytes)
    for size in sorted(sizes_bytes):
        larger -= 1
        below += size
        passing.append((size, below + larger * size, larger))

    thresholds = set()
    for queue in range(1, queues):
        wanted = Fraction(queue * total, queues)
        for size, passed, larger in passing:
            if passed >= wanted:
                # Between two sizes, what passes grows with the number of larger flows.
                beyond = (passed - wanted) / (larger + 1)
                thresholds.add(int(size - beyond))
                break
    return tuple(sorted(thresholds - {0}))


def _ranked(
    job: Job,
    paths: Paths,
    thresholds_bytes: tuple[int, ...],
) -> FlowPlans:
    top = JOB_QUEUES[-1]
    rankings = {}

    @cache  # many flows have one size
    def passed_and_order(size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        passed = tuple(size - left for left in reversed(thresholds_bytes) if left < size)
        return passed, tuple(range(top - len(passed), top + 1))

    for flow in job.flows:
        rankings[flow.name] = Attained(flow.name, *passed_and_order(flow.size_bytes))
    return ranked_flows(job.name, paths, rankings)


def _next_overtaking_s(
    flows: Sequence[ActiveFlow],
    order: Sequence[int],
    rates: Sequence[Number],
) -> Number | None:
    """Return the seconds until the first link sees its flows in another order; None if never.

    The first change on a link is between neighbours of its order, so only neighbours need to be
    compared.
    """
    last: dict[Link, int] = {}
    soonest: Number | None = None
    for index in order:
        for link in flows[index].links:
            leader = last.get(link)
            last[link] = index
            if leader is None or rates[index] <= rates[leader]:
                continue
            lead_bytes = flows[index].remaining_bytes - flows[leader].remaining_bytes
            wait_s = lead_bytes / (rates[index] - rates[leader])
            if wait_s > 0 and (soonest is None or wait_s < soonest):
                soonest = wait_s
    return soonest
