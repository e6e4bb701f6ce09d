"""The policy of Crux: paths by intensity, and one level for each job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Capacities, Number
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.base import LinksOnly
from echelon.planning.policies.crux.compression import compress, contention
from echelon.planning.policies.crux.intensity import load_of
from echelon.planning.policies.crux.priority import factors
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import JOB_QUEUES, fixed_flows, strict


class Crux(LinksOnly):
    """Jobs by priority: k times GPU intensity. All flows of a job are in one queue.

    Where we differ: a job's FLOPs and period come from its job file rather than from counters and a
    Fourier transform of its traffic; levels are queues of switches rather than traffic classes of
    NICs; paths are entries of switches rather than source ports for ECMP; a new job is not moved to
    the top while it is profiled.
    """

    name = "crux"
    needs = "job files"
    source = "SIGCOMM '24"

    class Parameters(Section):
        """The mechanisms in use, and the effort of compression."""

        paths: Literal["intensity", "given"] = "intensity"
        """Whether Crux chooses paths, anew whenever a job comes or goes, or connections stay where
        they are.
        """
        levels: Annotated[int, Field(ge=1, le=len(JOB_QUEUES))] = len(JOB_QUEUES)
        """The levels for jobs."""
        orders: Annotated[int, Field(ge=1, le=1000)] = 10
        """Number of random orders that compression tries."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self._chosen = parameters or self.Parameters()
        self._capacities: Capacities = {}
        self._order: Sequence[str] = ()
        self._routes = LeastCongested()
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._loads = Kept(load_of)
        self._flows = Kept(fixed_flows)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a queue and paths for each job.

        Raises `PlanError` if a worker cannot be reached.
        """
        chooser = paths
        if self._chosen.paths == "intensity":
            chooser = self._routes
        paths_by_job = self._paths.update(jobs, fabric, chooser)
        alone = self._alone.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        load_rows = {}
        traffic_bytes = {}
        for job in jobs:
            name = job.name
            load_rows[name] = job, paths_by_job[name], self._capacities, alone[name]
            traffic_bytes[name] = sum(flow.size_bytes for flow in job.flows)
        loads = self._loads.update(load_rows)

        loops = {}
        intensities = {}
        links = {}
        for name, load in loads.items():
            loops[name] = load.loop
            intensities[name] = load.intensity
            links[name] = frozenset(load.busy_s)
        k = factors(loops, traffic_bytes)
        priorities = {name: k[name] * float(intensities[name]) for name in loads}
        self._order = sorted(priorities, key=lambda name: -priorities[name])
        edges = contention(priorities, intensities, links)
        levels = compress(self._order, edges, self._chosen.levels, self._chosen.orders)
        rows = {}
        for name, job_paths in paths_by_job.items():
            rows[name] = name, job_paths, JOB_QUEUES[-1] - levels[name]
        flows = self._flows.update(rows)
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=strict(),
            hosts_rank=True,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates with a level for each job. Best effort shares what is left."""
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        by_job: dict[str, list[int]] = {job: [] for job in self._order}
        best_effort: list[int] = []
        for i, flow in enumerate(flows):
            by_job.get(flow.job, best_effort).append(i)
        for indices in by_job.values():
            fill_evenly(flows, indices, residual, rates)
        fill_evenly(flows, best_effort, residual, rates)
        return Allocation(tuple(rates))
