"""The policy of CASSINI: fair sharing between jobs that start at the right time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import CONTROL_QUEUE, FlowPlans, Plan
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.policies.levels import (
    JOB_QUEUES,
    MIN_SHARE,
    equal,
    ranked_flows,
    strict,
)
from echelon.planning.policies.spread import Spread
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.fixed import Fixed
from echelon.planning.rankings.window import Window


class Cassini:
    """Time shifts at the hosts, slots of the period in the switches, or both.

    Where we differ: CASSINI also chooses among placements of the workers, which are given here; and
    its agents shift a job again when it has drifted, where ours delay its first iteration only. The
    paper enforces shifts at the hosts; a window in a switch is ours: in its own slot a flow is in
    the high queue, at other times in the low one, so that nobody waits while the link is idle.
    """

    name = "cassini"
    needs = "job files, hosts that delay"
    source = "NSDI '24"

    class Parameters(Section):
        """The enforcement of time shifts."""

        enforce: Literal["hosts", "windows", "both"] = "hosts"
        """`hosts` delay a job's first iteration; `windows` give each flow a slot of its job's
        period in switches.
        """
        margin: Annotated[float, Field(ge=0, le=0.5)] = 0.02
        """The part by which the period of slots is longer than the job's iteration time alone.

        A job that is faster than its slots waits for them and so keeps in step; one that is slower,
        by acknowledgements for instance, loses them.
        """

    def __init__(self, parameters: Parameters | None = None) -> None:
        chosen = parameters or self.Parameters()
        self._enforce = chosen.enforce
        self._stretch = 1 + Fraction(chosen.margin).limit_denominator(10**6)
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self.carried = self._spread = Spread(range(CONTROL_QUEUE))
        self._windows = Kept(_windows)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan with the time shifts. Raises `PlanError` if a worker cannot be reached.

        All shifts count from the start of one of the jobs, so a job that comes later may move those
        of jobs that run already; hosts obey only those of jobs that have not started.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        shifts_s = time_shifts(jobs, paths_by_job, fabric.capacity_Bps, alone).delays_s
        if self._enforce == "hosts":
            flows = self._spread.update(jobs, paths_by_job)
            return Plan.of_jobs(
                self.name,
                flows,
                default_schedule=equal(),
                shifts_s=shifts_s,
            )

        # Windows are later by what hosts do not delay.
        late_s = dict.fromkeys(shifts_s, Fraction(0))
        if self._enforce == "windows":
            late_s.update(shifts_s)
            shifts_s = {}
        rows = {}
        for job in jobs:
            name = job.name
            rows[name] = job, paths_by_job[name], alone[name], late_s[name], self._stretch
        flows = self._windows.update(rows)
        schedule = strict(MIN_SHARE)
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=schedule,
            shifts_s=shifts_s,
        )


def _windows(
    job: Job,
    paths: Paths,
    alone: AloneRecord,
    late_s: Fraction,
    stretch: Fraction,
) -> FlowPlans:
    """Return the flows of a job, each with its slot of the iteration alone, `late_s` later."""
    period_s = duration_s(alone)
    # A switch counts periods from the first packet of the job that it sees.
    starts_s = [span.start for span in alone.flows.values()]
    first_s = min(starts_s, default=Fraction(0))

    def ranking(name: str) -> Ranking:
        span = alone.flows[name]
        assert span.finish is not None
        if not period_s or span.finish - span.start >= period_s:
            return Fixed(JOB_QUEUES[-1])
        begin_s = stretch * ((span.start - first_s + late_s) % period_s)
        end_s = stretch * ((span.finish - first_s + late_s) % period_s)
        return Window(stretch * period_s, begin_s, end_s, JOB_QUEUES[-1], JOB_QUEUES[0])

    rankings = {flow: ranking(flow) for flow in paths}
    return ranked_flows(job.name, paths, rankings)
