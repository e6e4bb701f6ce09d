"""First come, first served: what one queue a port does with senders that hand over a flow as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.fabric.model import Fabric
from echelon.fabric.routing import Routes
from echelon.jobs.graph import Job
from echelon.plan import CONTROL_QUEUE, Fixed, FlowPlan, Plan, QueuePlan
from echelon.policies.base import ActiveFlow, Allocation, Link, NoParameters
from echelon.policies.filling import ZERO, fill_in_order, residual_of
from echelon.policies.kept import Kept
from echelon.policies.network import FlowPaths, Paths


class Fifo:
    """Flows in order of their start, whoever they belong to, each taking what the earlier ones left on its path."""

    name = "fifo"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self._flows = Kept(_in_one_queue)

    def plan(self, jobs: Sequence[Job], fabric: Fabric) -> Plan:
        """Every flow in queue 0. Raises `PlanError` if a worker cannot be reached."""
        paths = self._paths.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        return Plan.of_jobs(
            self.name,
            self._flows.update({job: (job, of_job) for job, of_job in paths.items()}),
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
        )

    def remember(self, routes: Mapping[str, Routes]) -> None:
        self._paths.remember(routes)

    def allocate(self, now_s: Fraction, flows: Sequence[ActiveFlow]) -> Allocation:
        """The earliest flow gets all it can use, then the next."""
        rates = [ZERO] * len(flows)
        order = sorted(range(len(flows)), key=lambda i: (flows[i].start_s, flows[i].sequence))
        fill_in_order(flows, order, residual_of(self._capacities, flows), rates)
        return Allocation(tuple(rates))


def _in_one_queue(job: str, paths: Paths) -> tuple[FlowPlan, ...]:
    return tuple(FlowPlan(job, flow, Fixed(0), path) for flow, path in paths.items())
