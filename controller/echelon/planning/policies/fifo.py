"""First come, first served, packet by packet: a switch without configuration."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import CONTROL_QUEUE, FlowPlan, Plan, QueuePlan
from echelon.planning.policies.base import NoParameters
from echelon.planning.rankings.fixed import Fixed


class Fifo:
    """One queue for all flows.

    The senders determine how it divides the link; see `echelon.planning.fluid.sharing`.
    """

    name = "fifo"
    needs = "nothing"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._paths = FlowPaths()
        self._flows = Kept(_in_one_queue)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan with every flow in queue 0.

        Raises `PlanError` if a worker cannot be reached.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        return Plan.of_jobs(
            self.name,
            self._flows.update({job: (job, of_job) for job, of_job in of_jobs.items()}),
            default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
        )


def _in_one_queue(job: str, paths: Paths) -> tuple[FlowPlan, ...]:
    return tuple(FlowPlan(job, flow, Fixed(0), path) for flow, path in paths.items())
