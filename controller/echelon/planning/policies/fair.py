"""Fair sharing between flows, as ideal congestion control does and fair queueing enforces."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Number
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import CONTROL_QUEUE, Plan
from echelon.planning.policies.base import LinksOnly, NoParameters
from echelon.planning.policies.coflows import CoflowSharing
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import equal
from echelon.planning.policies.spread import Spread


class Fair(LinksOnly):
    """Max-min fair rates, flow by flow."""

    name = "fair"
    needs = "nothing"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._capacities: Capacities = {}
        self._paths = FlowPaths()
        self.carried = self._spread = Spread(range(CONTROL_QUEUE))

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan of seven equal queues. Raises `PlanError` if a worker cannot be reached."""
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        flows = self._spread.update(jobs, paths_by_job)
        return Plan.of_jobs(self.name, flows, default_schedule=equal())

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return max-min fair rates.

        Best effort takes part like any other flow, up to its senders' limits.
        """
        rates = [ZERO] * len(flows)
        residual = residual_of(self._capacities, flows)
        fill_evenly(flows, range(len(flows)), residual, rates)
        return Allocation(tuple(rates))

    def share(self, sharing: CoflowSharing) -> None:
        """Give max-min fair rates to all flows, whatever coflow they are in."""
        sharing.fill_evenly(sharing.coflows, sharing.residual_Bps)
