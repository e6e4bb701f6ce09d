"""The policy of Crux: paths by intensity, and one level for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import ActiveFlow, Allocation, Link, Number
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths
from echelon.planning.plan import Plan
from echelon.planning.policies.crux.compression import compress, contention
from echelon.planning.policies.crux.intensity import load_of
from echelon.planning.policies.crux.priority import factors
from echelon.planning.policies.crux.routes import LeastCongested
from echelon.planning.policies.filling import ZERO, fill_evenly, residual_of
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES, fixed_flows, strict


class Crux:
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
        if parameters is None:
            self._chosen = self.Parameters()
        else:
            self._chosen = parameters
        self._capacities: Mapping[Link, Fraction] = {}
        self._order: Sequence[str] = ()
        self._routes = LeastCongested()
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._loads = Kept(load_of)
        self._flows = Kept(fixed_flows)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a queue and paths for each job.

        Raises `PlanError` if a worker cannot be reached.
        """
        of_jobs = self._paths.update(
            jobs, fabric, self._routes if self._chosen.paths == "intensity" else paths
        )
        alone = self._alone.update(jobs, fabric)
        self._capacities = fabric.capacity_Bps
        loads = self._loads.update(
            {job.name: (job, of_jobs[job.name], self._capacities, alone[job.name]) for job in jobs}
        )
        loops = {name: load.loop for name, load in loads.items()}
        intensities = {name: load.intensity for name, load in loads.items()}
        k = factors(loops, {job.name: sum(flow.size_bytes for flow in job.flows) for job in jobs})
        priorities = {name: k[name] * float(intensities[name]) for name in loads}
        self._order = sorted(priorities, key=lambda name: -priorities[name])
        edges = contention(
            priorities, intensities, {name: frozenset(load.at) for name, load in loads.items()}
        )
        levels = compress(self._order, edges, self._chosen.levels, self._chosen.orders)
        return Plan.of_jobs(
            self.name,
            self._flows.update(
                {
                    job: (job, of_job, JOB_QUEUES[-1] - levels[job])
                    for job, of_job in of_jobs.items()
                }
            ),
            default_schedule=strict(),
            hosts_rank=True,
            best_effort_queue=BEST_EFFORT_QUEUE,
        )

    def allocate(self, now_s: Number, flows: Sequence[ActiveFlow]) -> Allocation:
        """Return the rates with a level for each job. Best effort shares what is left."""
        residual = residual_of(self._capacities, flows)
        rates = [ZERO] * len(flows)
        for job in self._order:
            fill_evenly(
                flows, [i for i, flow in enumerate(flows) if flow.job == job], residual, rates
            )
        known = set(self._order)
        fill_evenly(
            flows, [i for i, flow in enumerate(flows) if flow.job not in known], residual, rates
        )
        return Allocation(tuple(rates))

    def neighbourhood(self, flow: ActiveFlow) -> None:
        """Return None: rates depend on other flows through links only."""
