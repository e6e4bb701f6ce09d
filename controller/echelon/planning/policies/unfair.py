"""Deliberate unfairness: one job is always favoured over the next.

Source: Rajasekaran, Ghobadi, Kumar and Akella, Congestion Control in Machine Learning Clusters,
HotNets '22. Where jobs fit beside each other (one can compute while the other communicates), an
unfair share makes the favoured job finish earlier in each iteration, until they no longer meet;
fair sharing keeps them colliding. The paper names unfair congestion control, priority queues in
switches and flow scheduling as ways to get there; this policy has the second, and DWRR weights as a
milder form. The paper leaves open which job to favour; here it is the one that was named first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Number
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import CONTROL_QUEUE, Plan, PortSchedule, QueuePlan
from echelon.planning.policies.base import LinksOnly
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import (
    JOB_QUEUES,
    fixed_flows,
    links_of_jobs,
    queues_in_order,
    strict,
)
from echelon.planning.policies.schedule import HIGHEST_WEIGHT
from echelon.planning.policies.weighted import fill_by_weight


class Unfair(LinksOnly):
    """Jobs as they are named: each before the next, or with a multiple of its share."""

    name = "unfair"
    needs = "which flows are a job's"
    source = "HotNets '22"

    class Parameters(Section):
        """The degree of unfairness."""

        by: Literal["priority", "weights"] = "priority"
        """Strict priority between jobs that meet, or DWRR weights."""
        ratio: Annotated[int, Field(ge=2, le=4)] = 2
        """The share of a job over that of the next job, with `weights`."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self._chosen = parameters or self.Parameters()
        self._capacities: Capacities = {}
        self._is_strict = self._chosen.by == "priority"
        self._queues: Mapping[str, int] = {}
        self._paths = FlowPaths()
        self._flows = Kept(fixed_flows)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a queue for each job. Raises `PlanError` if a worker cannot be reached.

        Of more than six jobs that meet, the last share a queue.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        self._capacities = fabric.capacity_Bps
        names = [job.name for job in jobs]
        self._queues = queues_in_order(names, links_of_jobs(paths_by_job))
        rows = {}
        for name, paths_of_job in paths_by_job.items():
            rows[name] = name, paths_of_job, self._queues[name]
        flows = self._flows.update(rows)
        if self._is_strict:
            return Plan.of_jobs(
                self.name,
                flows,
                default_schedule=strict(),
                hosts_rank=True,
            )
        return Plan.of_jobs(self.name, flows, default_schedule=self._weighted())

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates of a queue for each job, or of a weighted one for each flow.

        Best effort gets the rest.
        """
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        by_job: dict[str, list[int]] = {job: [] for job in self._queues}
        weights = {}
        best_effort = []
        for i, flow in enumerate(flows):
            queue = self._queues.get(flow.job)
            if queue is None:
                best_effort.append(i)
            else:
                by_job[flow.job].append(i)
                weights[i] = self._weight(queue)

        if self._is_strict:
            for indices in by_job.values():
                fill_evenly(flows, indices, residual, rates)
        else:
            fill_by_weight(flows, weights, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        return Allocation(tuple(rates))

    def _weight(self, queue: int) -> int:
        weight: int = self._chosen.ratio ** (queue - JOB_QUEUES[0])
        return min(HIGHEST_WEIGHT, weight)

    def _weighted(self) -> PortSchedule:
        jobs = (QueuePlan(1, self._weight(queue)) for queue in JOB_QUEUES)
        return (QueuePlan(0), *jobs, QueuePlan(CONTROL_QUEUE))
