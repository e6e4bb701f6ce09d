"""The cost of a placement for each job, predicted without a run.

A job's iteration lasts as long as alone on its hosts, and longer by contention. CASSINI's score of
a link says how much more its jobs ask for than it carries, even if they are shifted in time as well
as possible (S. Rajasekaran et al., NSDI '24, section 3): the demand above capacity, as a part of
what the link carries in the same time. Sending it takes that part of the time in addition, so the
prediction is ``alone x (1 + the largest 1 - score of the job's links)``. Links whose shifts
contradict those of others count unshifted.

Placements are compared by the computing of all jobs in a second, which is what Crux maximises (J.
Cao et al., SIGCOMM '24, section 3): jobs of high intensity, with much computing for each second of
communication, weigh more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from echelon.model.fabric.model import Fabric
from echelon.model.jobs.graph import Job
from echelon.planning.allocation import Link
from echelon.planning.execution import duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths, links_of
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.policies.crux.intensity import load_of


@dataclass(frozen=True, slots=True)
class JobCost:
    """The predicted cost of a placement for one job."""

    racks: int
    """The number of edge switches that its hosts are at."""
    alone_s: float
    """Seconds of an iteration on these hosts alone."""
    slowdown: float
    """The factor by which an iteration takes longer with the other jobs."""
    intensity: float
    """GPU intensity: computing for each second that the busiest link is kept (Crux, equation 2)."""
    work_s: float
    """Computing of an iteration on all workers, in seconds."""

    @property
    def iteration_s(self) -> float:
        """Return the predicted seconds of an iteration."""
        return self.alone_s * self.slowdown


@dataclass(frozen=True, slots=True)
class PlacementCost:
    """The predicted cost of a placement."""

    jobs: Mapping[str, JobCost]

    @property
    def utilisation(self) -> float:
        """Return the computing of all jobs in a second, on all workers together."""
        costs = self.jobs.values()
        return sum(cost.work_s / cost.iteration_s for cost in costs if cost.iteration_s)


def placement_cost(
    jobs: tuple[Job, ...],
    fabric: Fabric,
    alone_runs: AloneRuns,
) -> PlacementCost:
    """Return the predicted cost of jobs where they are.

    `alone_runs` keeps what several placements have in common. Raises `PlanError` if a worker cannot
    be reached.
    """
    paths = FlowPaths().update(jobs, fabric)
    alone = alone_runs.update(jobs, fabric)
    shifts = time_shifts(jobs, paths, fabric.capacity_Bps, alone)
    excess: dict[Link, float] = {}
    for link, score in shifts.scores.items():
        if link in shifts.ignored:
            score = shifts.unrotated[link]
        excess[link] = 1 - score

    costs = {}
    for job in jobs:
        load = load_of(job, paths[job.name], fabric.capacity_Bps, alone[job.name])
        worst = max((excess.get(link, 0.0) for link in _links(paths[job.name])), default=0.0)
        racks = {edge_switch(fabric, host) for host in job.workers}
        work_s = sum((unit.duration_s for unit in job.computes), Fraction(0))
        costs[job.name] = JobCost(
            racks=len(racks),
            alone_s=float(duration_s(alone[job.name])),
            slowdown=1 + max(0.0, worst),
            intensity=float(load.intensity),
            work_s=float(work_s),
        )
    return PlacementCost(costs)


def edge_switch(fabric: Fabric, host: str) -> str:
    """Return the switch that a host is linked to."""
    return fabric.neighbour[host, 0]  # a host has one link


def _links(paths: Paths) -> set[Link]:
    links: set[Link] = set()
    for path in set(paths.values()):
        links.update(links_of(path))
    return links
