"""Fair sharing between flows: what ideal congestion control does, and what fair queueing enforces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.fabric.model import Fabric
from echelon.jobs.graph import Job
from echelon.plan import CONTROL_QUEUE, Fixed, FlowPlan, Plan, QueuePlan
from echelon.policies.base import ActiveFlow, Allocation, Link
from echelon.policies.filling import ZERO, fill_evenly, residual_of
from echelon.policies.network import FlowKey, capacities_Bps, links_of, shortest_paths


class Fair:
    """Max-min fair rates, flow by flow."""

    name = "fair"

    def __init__(self) -> None:
        self._capacities: dict[Link, Fraction] = {}

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """Flows spread over seven equal queues. Raises `PlanError` if a worker cannot be reached."""
        self._capacities = capacities_Bps(fabric)
        paths = shortest_paths(jobs, fabric)
        queues = spread(jobs, paths, range(CONTROL_QUEUE))
        return Plan(
            policy=self.name,
            flows=tuple(FlowPlan(*key, Fixed(queues[key]), path) for key, path in paths.items()),
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
        )

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        """Progressive filling; best effort takes part as any other flow, up to its senders' limits."""
        rates = [ZERO] * len(flows)
        fill_evenly(flows, range(len(flows)), residual_of(self._capacities, flows), rates)
        return Allocation(tuple(rates))


def spread(jobs: Sequence[Job], paths: Mapping[FlowKey, tuple[str, ...]], queues: Sequence[int]) -> dict[FlowKey, int]:
    """A queue for each flow such that flows likely to meet at a port are in different ones.

    Those are the consecutive flows of one EchelonFlow, which go round the queues port by port, and those of different
    jobs, which begin at different queues.
    """
    out: dict[FlowKey, int] = {}
    size = len(queues)
    for number, job in enumerate(jobs):
        first = number * max(1, size // len(jobs)) % size
        grouped = {name for echelonflow in job.echelonflows for name in echelonflow.flows}
        alone = [(flow.name,) for flow in job.flows if flow.name not in grouped]
        for group in (*(echelonflow.flows for echelonflow in job.echelonflows), *alone):
            used: Counter[tuple[Link, int]] = Counter()
            for name in group:
                ports = links_of(paths[job.name, name])[1:]  # the first link is the host's own, without queues
                turns = range(first, first + size)
                turn = min(turns, key=lambda k: (max((used[link, k % size] for link in ports), default=0), k))
                used.update((link, turn % size) for link in ports)
                out[job.name, name] = queues[turn % size]
    return out
