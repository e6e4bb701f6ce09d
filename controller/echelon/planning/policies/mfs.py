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

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Annotated

from pydantic import Field

from echelon.model.documents import Section
from echelon.model.fabric.model import Fabric, Path
from echelon.model.fabric.routing import PathChooser
from echelon.model.jobs.graph import Job
from echelon.model.kept import Kept
from echelon.planning.allocation import Capacities
from echelon.planning.execution import AloneRecord, duration_s
from echelon.planning.fluid.alone_runs import AloneRuns
from echelon.planning.paths import FlowPaths, Paths, links_of
from echelon.planning.plan import FlowPlans, Plan
from echelon.planning.policies.levels import (
    JOB_QUEUES,
    MIN_SHARE,
    ranked_flows,
    strict,
)
from echelon.planning.rankings.deadline import Deadline


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
        chosen = parameters or self.Parameters()
        self._allowance = Fraction(chosen.allowance).limit_denominator(10**6)
        self._paths = FlowPaths()
        self._alone = AloneRuns()
        self._flows = Kept(_ranked)

    def plan(
        self,
        jobs: Sequence[Job],
        fabric: Fabric,
        paths: PathChooser | None = None,
    ) -> Plan:
        """Return a plan that promotes every flow by its laxity.

        Raises `PlanError` if a worker cannot be reached.
        """
        paths_by_job = self._paths.update(jobs, fabric, paths)
        alone = self._alone.update(jobs, fabric)
        rows = {}
        for job in jobs:
            job_paths = paths_by_job[job.name]
            record = alone[job.name]
            rows[job.name] = job, job_paths, record, fabric.capacity_Bps, self._allowance
        flows = self._flows.update(rows)
        schedule = strict(MIN_SHARE)
        return Plan.of_jobs(
            self.name,
            flows,
            default_schedule=schedule,
            hosts_rank=True,
        )


def _ranked(
    job: Job,
    paths: Paths,
    alone: AloneRecord,
    capacities: Capacities,
    allowance: Fraction,
) -> FlowPlans:
    if not job.echelonflows:
        return ranked_flows(job.name, paths, {})
    # The EchelonFlow that starts first in the iteration gives all deadlines of the job their
    # reference time.
    first = min(job.echelonflows, key=lambda h: alone.references[h.name])
    begin_s = alone.references[first.name]
    claimed = {name for h in job.echelonflows for name in h.flows}
    allowance_s = allowance * duration_s(alone)
    # Laxity halves from queue to queue, and in the last one nothing is left of it.
    left_s = allowance_s
    thresholds = []
    for _ in JOB_QUEUES[2:]:
        left_s /= 2
        thresholds.append(allowance_s - left_s)
    thresholds_s = (*thresholds, allowance_s)

    lowest, *_, highest = JOB_QUEUES

    @cache  # many flows have the same size and path
    def lasts_s(size_bytes: int, path: Path) -> Fraction:
        line_Bps = min(capacities[link] for link in links_of(path))  # noqa: N806
        return Fraction(size_bytes) / line_Bps + begin_s

    @cache  # flows that are due together share their ranking: what reads the plan reads fewer
    def ranking(numerator: int, denominator: int) -> Deadline:
        offset_s = Fraction(numerator, denominator)
        return Deadline(first.name, offset_s, thresholds_s, lowest, highest)

    rankings = {}
    for flow in job.flows:
        if flow.name in claimed:
            finish_s = alone.flows[flow.name].finish
            assert finish_s is not None
            # A flow that starts later than this has used up some of its allowance.
            latest_start_s = finish_s - lasts_s(flow.size_bytes, paths[flow.name])
            offset_s = max(Fraction(0), latest_start_s)
            rankings[flow.name] = ranking(*offset_s.as_integer_ratio())
    return ranked_flows(job.name, paths, rankings)
