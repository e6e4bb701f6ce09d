"""First come, first served, packet by packet: a switch without configuration."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.levels import equal, fixed_flows


class Fifo:
    """One queue for all flows.

    The senders determine how it divides the link; see `echelon.planning.fluid.sharing`.
    """

    name = "fifo"
    needs = "nothing"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._paths = FlowPaths()
        self._flows = Kept(fixed_flows)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan with every flow in queue 0.

        Raises `PlanError` if a worker cannot be reached.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        rows = {job: (job, job_paths, 0) for job, job_paths in paths_by_job.items()}
        flows = self._flows.update(rows)
        return Plan.of_jobs(self.name, flows, default_schedule=equal())
