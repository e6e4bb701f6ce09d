"""A policy by which the job with the larger weight goes first where two meet."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.base import NoParameters
from echelon.planning.policies.levels import JOB_QUEUES, fixed_flows, strict


class ByWeight:
    """Strict priority between jobs of different weights."""

    name = "by_weight"
    Parameters = NoParameters

    def __init__(self, parameters: NoParameters | None = None) -> None:
        self._paths = FlowPaths()

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan with a queue for each weight."""
        of_jobs = self._paths.update(jobs, fabric, paths)
        # The largest weight has the highest queue; where there are more weights than queues, the
        # smallest share one.
        rank = {
            weight: at
            for at, weight in enumerate(sorted({job.weight for job in jobs}, reverse=True))
        }
        queues = {job.name: max(JOB_QUEUES[-1] - rank[job.weight], JOB_QUEUES[0]) for job in jobs}
        flows = {job: fixed_flows(job, of_job, queues[job]) for job, of_job in of_jobs.items()}
        return Plan.of_jobs(self.name, flows, default_schedule=strict(), hosts_rank=True)
