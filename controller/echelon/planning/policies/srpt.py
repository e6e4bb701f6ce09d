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

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import FlowPlan, Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.filling import ZERO, fill_evenly, fill_in_order, residual_of
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES, MIN_SHARE, strict
from echelon.planning.rankings.attained import Attained


class Srpt:
    """Every flow by its remaining bytes.

    Flows in no EchelonFlow take part, because their size is known too.
    """

    name = "srpt"
    needs = "sizes of flows"
    source = "SIGCOMM '13"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self._flows = Kept(_ranked)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan in which a flow's queue rises as its bytes pass. Raises `PlanError` if a
        worker cannot be reached."""
        of_jobs = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        thresholds = remaining_thresholds_bytes(
            [flow.size_bytes for job in jobs for flow in job.flows]
        )
        return Plan.of_jobs(
            self.name,
            self._flows.update({job.name: (job, of_jobs[job.name], thresholds) for job in jobs}),
            default_schedule=strict(MIN_SHARE),
            hosts_rank=True,
            best_effort_queue=BEST_EFFORT_QUEUE,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of the exact order, until one flow overtakes another.

        Best effort shares what is left.
        """
        claimed = [i for i, flow in enumerate(flows) if flow.job]
        order = sorted(claimed, key=lambda i: (flows[i].remaining_bytes, flows[i].sequence))
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        fill_in_order(flows, order, residual, rates)
        change_s = _next_overtaking_s(flows, order, rates)
        fill_evenly(flows, [i for i, flow in enumerate(flows) if not flow.job], residual, rates)
        return Allocation(tuple(rates), None if change_s is None else now_s + change_s)

    def neighbourhood(self, flow: ActiveFlow) -> None:
        """Return None: rates depend on other flows through links only."""


def remaining_thresholds_bytes(
    sizes_bytes: Sequence[int], queues: int = len(JOB_QUEUES)
) -> tuple[int, ...]:
    """Return the remaining bytes that separate `queues` queues, ascending, so that each queue
    carries the same bytes.

    A flow of S bytes passes min(S, t) of them while it has at most t left. That is how an equal
    load in each queue turns into thresholds; pFabric chooses them to the same end, from the
    distribution of flow sizes.
    """
    total = sum(sizes_bytes)
    at_most: list[tuple[int, int, int]] = []
    """Ascending sizes, each with the bytes that pass with at most so much left and the number of
    larger flows.
    """
    below = 0
    ascending = sorted(sizes_bytes)
    for index, size in enumerate(ascending):
        larger = len(ascending) - index - 1
        below += size
        at_most.append((size, below + larger * size, larger))
    thresholds = set()
    for k in range(1, queues):
        wanted = Fraction(k * total, queues)
        size, passed, larger = next((entry for entry in at_most if entry[1] >= wanted), (0, 0, 0))
        thresholds.add(int(size - (passed - wanted) / (larger + 1)))
    return tuple(sorted(thresholds - {0}))


def _ranked(job: Job, paths: Paths, thresholds_bytes: tuple[int, ...]) -> tuple[FlowPlan, ...]:
    top = JOB_QUEUES[-1]

    def ranking(name: str, size_bytes: int) -> Attained:
        passed = tuple(
            size_bytes - left for left in reversed(thresholds_bytes) if left < size_bytes
        )
        return Attained(name, passed, tuple(range(top - len(passed), top + 1)))

    return tuple(
        FlowPlan(job.name, flow.name, ranking(flow.name, flow.size_bytes), paths[flow.name])
        for flow in job.flows
    )


def _next_overtaking_s(
    flows: Sequence[ActiveFlow], order: Sequence[int], rates: Sequence[Number]
) -> Number | None:
    """Return the seconds until the first link sees its flows in another order; None if never.

    The first change on a link is between neighbours of its order, so only neighbours need to be
    compared.
    """
    last: dict[Link, int] = {}
    soonest: Number | None = None
    for index in order:
        for link in flows[index].links:
            ahead = last.get(link)
            last[link] = index
            if ahead is None or rates[index] <= rates[ahead]:
                continue
            lead_bytes = flows[index].remaining_bytes - flows[ahead].remaining_bytes
            wait_s = lead_bytes / (rates[index] - rates[ahead])
            if wait_s > 0 and (soonest is None or wait_s < soonest):
                soonest = wait_s
    return soonest
