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
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths
from echelon.planning.plan import CONTROL_QUEUE, FlowPlan, Plan, QueuePlan
from echelon.planning.policies.cassini.shifts import time_shifts
from echelon.planning.policies.levels import BEST_EFFORT_QUEUE, JOB_QUEUES, MIN_SHARE, strict
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
        if parameters is None:
            chosen = self.Parameters()
        else:
            chosen = parameters
        self._enforce = chosen.enforce
        self._stretch = 1 + Fraction(chosen.margin).limit_denominator(10**6)
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self.carried = self._spread = Spread(range(CONTROL_QUEUE))
        self._windows = Kept(_windows)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan with the time shifts. Raises `PlanError` if a worker cannot be reached.

        All shifts count from the start of one of the jobs, so a job that comes later may move those
        of jobs that run already; hosts obey only those of jobs that have not started.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        shifts_s = time_shifts(jobs, of_jobs, fabric.capacity_Bps, alone).delays_s
        by_hosts = shifts_s if self._enforce != "windows" else {}
        if self._enforce == "hosts":
            return Plan.of_jobs(
                self.name,
                self._spread.update(jobs, of_jobs),
                default_schedule=(*(QueuePlan(level=0),) * CONTROL_QUEUE, QueuePlan(level=1)),
                shifts_s=by_hosts,
            )
        if self._enforce == "windows":
            late = shifts_s
        else:
            late = dict.fromkeys(shifts_s, Fraction(0))
        return Plan.of_jobs(
            self.name,
            self._windows.update(
                {
                    job.name: (
                        job,
                        of_jobs[job.name],
                        alone[job.name],
                        late[job.name],
                        self._stretch,
                    )
                    for job in jobs
                }
            ),
            default_schedule=strict(MIN_SHARE),
            best_effort_queue=BEST_EFFORT_QUEUE,
            shifts_s=by_hosts,
        )


def _windows(
    job: Job, paths: Paths, alone: IterationRecord[Fraction], late_s: Fraction, stretch: Fraction
) -> tuple[FlowPlan, ...]:
    """Return the flows of a job, each with the slot that it has in the iteration alone, `late_s`
    later.
    """
    period_s = duration_s(alone)
    # A switch counts periods from the first packet of the job that it sees.
    first_s = min((span.start for span in alone.flows.values()), default=Fraction(0))

    def ranking(name: str) -> Ranking:
        span = alone.flows[name]
        assert span.finish is not None
        if not period_s or span.finish - span.start >= period_s:
            return Fixed(JOB_QUEUES[-1])
        begin_s, end_s = (
            stretch * ((at - first_s + late_s) % period_s) for at in (span.start, span.finish)
        )
        return Window(stretch * period_s, begin_s, end_s, JOB_QUEUES[-1], JOB_QUEUES[0])

    return tuple(FlowPlan(job.name, flow, ranking(flow), path) for flow, path in paths.items())
