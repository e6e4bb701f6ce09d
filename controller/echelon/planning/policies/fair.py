"""Fair sharing between flows, as ideal congestion control does and fair queueing enforces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import CONTROL_QUEUE, Plan, QueuePlan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.coflows import CoflowSharing
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.spread import Spread


class Fair:
    """Max-min fair rates, flow by flow."""

    name = "fair"
    needs = "nothing"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Mapping[Link, Fraction] = {}
        self._paths = FlowPaths()
        self.carried = self._spread = Spread(range(CONTROL_QUEUE))

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan of seven equal queues. Raises `PlanError` if a worker cannot be reached."""
        of_jobs = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        return Plan.of_jobs(
            self.name,
            self._spread.update(jobs, of_jobs),
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return max-min fair rates.

        Best effort takes part like any other flow, up to its senders' limits.
        """
        rates = [ZERO] * len(flows)
        fill_evenly(flows, range(len(flows)), residual_of(self._capacities, flows), rates)
        return Allocation(tuple(rates))

    def neighbourhood(self, flow: ActiveFlow) -> None:
        """Return None: rates depend on other flows through links only."""

    def share(self, sharing: CoflowSharing) -> None:
        """Give max-min fair rates to all flows, whatever coflow they are in."""
        sharing.fill_evenly(sharing.coflows, sharing.residual_Bps)
