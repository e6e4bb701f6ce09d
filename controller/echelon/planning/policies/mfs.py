"""Least laxity first by deferring and promoting, after MFS.

Source: MFS (arXiv 2603.17456, 2026), which schedules the flows of model serving by deadlines on the
time to the first token. We had its abstract only: flows begin in the lowest queue and are promoted
as their laxity shrinks ("defer and promote", a reverse multi-level queue), which comes close to
least laxity first without knowing the exact slack. What the abstract leaves open is ours:

- The laxity of a flow is deadline - now - remaining / capacity of its narrowest link. Switches take
  the flow's size for the remaining bytes, so that its laxity never grows and it is only ever
  promoted.
- Training has no service-level objective. The deadline of a flow is when it finishes in the job's
  iteration alone, plus `allowance` iterations.
- A flow goes up one queue each time its laxity halves, and is in the highest when it has none left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import Link
from echelon.planning.execution import IterationRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths, links_of
from echelon.planning.plan import FlowPlan, Plan
from echelon.planning.policies.levels import (
    BEST_EFFORT_QUEUE,
    JOB_QUEUES,
    MIN_SHARE,
    fixed_flows,
    strict,
)
from echelon.planning.rankings.base import Ranking
from echelon.planning.rankings.deadline import Deadline
from echelon.planning.rankings.fixed import Fixed


class Mfs:
    """A policy whose flows wait in the lowest queue, and are promoted as their laxity runs out.

    Flows that are in no EchelonFlow have no deadline: they are best effort.
    """

    name = "mfs"
    needs = "job files"
    source = "arXiv 2603.17456"

    class Parameters(Section):
        """The bound from which a flow counts as late."""

        allowance: Annotated[float, Field(gt=0, le=10)] = 0.5
        """The lateness that a flow is allowed, in iterations of its job alone."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        if parameters is None:
            chosen = self.Parameters()
        else:
            chosen = parameters
        self._allowance = Fraction(chosen.allowance).limit_denominator(10**6)
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._flows = Kept(_ranked)

    def plan(self, jobs: Sequence[Job], fabric: Fabric, paths: PathChooser | None = None) -> Plan:
        """Return a plan that promotes every flow by its laxity.

        Raises `PlanError` if a worker cannot be reached.
        """
        of_jobs = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        return Plan.of_jobs(
            self.name,
            self._flows.update(
                {
                    job.name: (
                        job,
                        of_jobs[job.name],
                        alone[job.name],
                        fabric.capacity_Bps,
                        self._allowance,
                    )
                    for job in jobs
                }
            ),
            default_schedule=strict(MIN_SHARE),
            hosts_rank=True,
            best_effort_queue=BEST_EFFORT_QUEUE,
        )


def _ranked(
    job: Job,
    paths: Paths,
    alone: IterationRecord[Fraction],
    capacities: Mapping[Link, Fraction],
    allowance: Fraction,
) -> tuple[FlowPlan, ...]:
    if not job.echelonflows:
        return fixed_flows(job.name, paths, BEST_EFFORT_QUEUE)
    # The EchelonFlow that starts first in the iteration gives all deadlines of the job their
    # reference time.
    first = min(job.echelonflows, key=lambda h: alone.references[h.name])
    begin_s = alone.references[first.name]
    claimed = {name for h in job.echelonflows for name in h.flows}
    allowance_s = allowance * duration_s(alone)
    steps = len(JOB_QUEUES) - 1
    thresholds_s = (*(allowance_s * (1 - Fraction(1, 2**k)) for k in range(1, steps)), allowance_s)

    def ranking(name: str, size_bytes: int) -> Ranking:
        if name not in claimed:
            return Fixed(BEST_EFFORT_QUEUE)
        finish_s = alone.flows[name].finish
        assert finish_s is not None
        alone_s = size_bytes / min(capacities[link] for link in links_of(paths[name]))
        # A flow that starts later than this has used up some of its allowance.
        latest_start_s = finish_s - alone_s - begin_s
        return Deadline(
            first.name,
            max(Fraction(0), latest_start_s),
            thresholds_s,
            JOB_QUEUES[0],
            JOB_QUEUES[-1],
        )

    return tuple(
        FlowPlan(job.name, flow.name, ranking(flow.name, flow.size_bytes), paths[flow.name])
        for flow in job.flows
    )
